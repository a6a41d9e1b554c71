"""The committed results: traces give the recorded figures and hold no corpus text; records have their recipes."""

import re
from pathlib import Path
from typing import Any

import pytest

from whilst.core.config import flat, load_sweep, to_table
from whilst.core.files import sha256
from whilst.core.settings import Recipe
from whilst.evaluation.archive import TRACES, rescore_archive
from whilst.evaluation.families import POINT, describe, read_filed, relevant
from whilst.evaluation.record import read_archived
from whilst.evaluation.seeds import Result
from whilst.live.loading import BUNDLED
from whilst.model.run_folder import WEIGHTS, read_recipe
from whilst.training.stages import stages

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
    tracked = [path for path in files if path.suffix != ".png" and path.name not in ("report.json", "paper.html")]
    assert sum(path.stat().st_size for path in tracked) <= 15_000_000


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_records_have_the_settings_of_their_recipe(archive: Path) -> None:
    """Except for seeds, the point (k, lambda), and how it was evaluated."""
    for item in read_filed(archive.parent):
        record = item.record
        describe(item)  # its settings are those of a recipe
        kind, objective = Result((record,)).kind, record.settings["objective"]["name"]
        made = [stage for run in load_sweep(ROOT / record.settings["file"], []) for stage in (run, *stages(run))]

        def decisive(table: dict[str, Any], kind: str = kind, system: str = record.system) -> dict[str, Any]:
            dropped = POINT.get(system, ())
            return {
                name: bool(value) if name == "teacher" else value
                for name, value in relevant(flat(table), kind, system).items()
                if not name.startswith("evaluate.") and not name.endswith("train.seed") and name not in dropped
            }

        from whilst.core.config import build

        own = decisive(to_table(build(Recipe, record.settings)))
        assert own in [decisive(to_table(stage)) for stage in made if stage.objective.name == objective], item.path


def test_the_models_card_has_the_recorded_figures() -> None:
    """Of the very weights that come with the package."""
    card = (BUNDLED / "en-vi" / "README.md").read_text(encoding="utf-8")
    records = read_archived(RESULTS / "iwslt15-raw.en-vi")
    rows = re.findall(r"\| \S* ?\| ([a-z]+-\d) \| ([\d. |]+) \|", card)
    assert {name for name, _ in rows} >= {"agent-1", "agent-5", "agent-9"}
    for name, figures in rows:
        record = records[f"bundle/test.{name}.unknown-keep.ending-patient"]
        scores = record.scores.to_table()
        wanted = [scores[key] for key in ("sacrebleu", "chrf", "al_word", "laal", "dal")]
        assert figures.split(" | ") == [f"{value:.2f}" for value in wanted]
        assert record.model_sha256 == sha256(BUNDLED / "en-vi" / WEIGHTS)
        assert record.settings["evaluate"]["ending"] == read_recipe(BUNDLED / "en-vi").evaluate.ending
