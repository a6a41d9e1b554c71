"""The committed results: their traces give the recorded figures, hold no corpus text, and meet what is promised."""

from pathlib import Path

import pytest

from whilst.config import build, load_recipe, to_table
from whilst.scoring import read_record, record_path, rescore
from whilst.settings import Recipe
from whilst.stages import stages

ROOT = Path(__file__).parent.parent
RECIPES = [load_recipe(path, []) for path in sorted((ROOT / "recipes").rglob("*.toml"))]
TRACES = sorted((ROOT / "results").rglob("*.jsonl.xz"))


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}-{path.name}")
def test_latency_is_scored_again_from_the_trace(trace: Path) -> None:
    rescored = rescore(trace)
    assert rescored.record is not None
    assert rescored.differences == {}
    assert rescored.scores.bleu is None, "without its reference a trace has no BLEU, so it carries no text"
    assert all(item.source is None and item.reference is None for item in rescored.sentences)


# What was tried on the way has no recipe of its own: its records hold every setting.
KEPT = [trace for trace in TRACES if "tried" not in trace.parts]


@pytest.mark.parametrize("trace", KEPT, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}-{path.name}")
def test_record_has_the_settings_of_a_committed_recipe(trace: Path) -> None:
    """How it was evaluated (threshold, batches) stands in the record alone."""
    settings = read_record(record_path(trace)).settings
    recorded = to_table(build(Recipe, settings)) | {"evaluate": None}
    # A run of several stages keeps the recipe of all in its first.
    known = [candidate for recipe in RECIPES for candidate in (recipe, *stages(recipe))]
    assert recorded in [to_table(candidate) | {"evaluate": None} for candidate in known]


def test_there_are_results() -> None:
    assert len(TRACES) >= 13
