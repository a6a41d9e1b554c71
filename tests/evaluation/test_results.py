"""The committed results: traces give the recorded figures and hold no corpus text; records have their recipes."""

import re
from pathlib import Path
from typing import Any

import pytest

from whilst.core.config import flatten, load_sweep, read_recipe, to_table
from whilst.core.files import MODELS
from whilst.core.settings import NEUTRAL, Recipe, Role, names_with
from whilst.evaluation.curves import used_by
from whilst.evaluation.record import TRACES, Record, read_archived, rescore_archive
from whilst.live.card import BEGIN
from whilst.model.run_folder import weights_checksum
from whilst.training.train import stages

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
ARCHIVES = sorted(RESULTS.glob(f"*/{TRACES}"))


@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_every_archived_trace_has_the_recorded_latency(archive: Path) -> None:
    names = []
    for name, rescored in rescore_archive(archive, None, None):
        names.append(name)
        assert rescored.differences == {}, name
        assert rescored.scores.bleu is None, "without its reference a trace has no BLEU, so it carries no text"
        assert all(item.source is None and item.reference is None for item in rescored.sentences), name
    assert sorted(names) == sorted(read_archived(archive.parent))


def test_the_results_are_small() -> None:
    assert len(ARCHIVES) == 6
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    tracked = [path for path in files if path.suffix != ".png"]
    assert sum(path.stat().st_size for path in tracked) <= 15_000_000


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_records_have_the_settings_of_their_recipe(archive: Path) -> None:
    """Except for seeds, the point (k, lambda), and how it was evaluated."""
    for name, record in read_archived(archive.parent).items():
        assert record.recipe is not None
        made = [stage for run in load_sweep(ROOT / record.recipe.file, []) for stage in (run, *stages(run))]
        same_objective = [stage for stage in made if stage.objective.name == record.recipe.objective.name]
        assert decisive(record.recipe, record) in [decisive(stage, record) for stage in same_objective], name


def decisive(recipe: Recipe, record: Record) -> dict[str, Any]:
    """The settings of a recipe that decide such a record."""
    used = used_by(record, flatten(to_table(recipe)))
    dropped = names_with(NEUTRAL | Role.SEED) | {"start"}
    dropped |= names_with(Role.POINT) if record.system.name in ("wait-k", "mma") else set()
    kept = {name: value for name, value in used.items() if name not in dropped and not name.startswith("evaluate.")}
    return kept | {"teacher": bool(kept["teacher"])}


def test_the_models_card_has_the_recorded_figures() -> None:
    """Of the very weights that come with the package."""
    card, _, _ = (MODELS / "en-vi" / "README.md").read_text(encoding="utf-8").partition(BEGIN)
    records = read_archived(RESULTS / "iwslt15-raw.en-vi")
    rows = re.findall(r"\| \S* ?\| ([a-z]+-\d) \| ([\d. |]+) \|", card)
    assert {name for name, _ in rows} >= {"agent-1", "agent-5", "agent-9"}
    for name, figures in rows:
        record = records[f"bundle/test.{name}.unknown-keep.ending-patient"]
        scores = record.scores.to_table()
        wanted = [scores[key] for key in ("sacrebleu", "chrf", "al_word", "laal", "dal")]
        assert figures.split(" | ") == [f"{value:.2f}" for value in wanted]
        assert record.model_sha256 == weights_checksum(MODELS / "en-vi")
        assert record.settings["evaluate"]["ending"] == read_recipe(MODELS / "en-vi").evaluate.ending
