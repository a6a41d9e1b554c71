"""The committed results: their traces give the recorded figures, hold no corpus text, and meet what is promised."""

from pathlib import Path

import pytest

from whilst.config import build, load_recipe, to_table
from whilst.scoring import read_record, record_path, rescore
from whilst.settings import Recipe

ROOT = Path(__file__).parent.parent
TRACES = sorted((ROOT / "results").rglob("*.jsonl.xz"))


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}-{path.name}")
def test_latency_is_scored_again_from_the_trace(trace: Path) -> None:
    rescored = rescore(trace)
    assert rescored.record is not None
    assert rescored.differences == {}
    assert rescored.scores.bleu is None, "without its reference a trace has no BLEU, so it carries no text"
    assert all(item.source is None and item.reference is None for item in rescored.sentences)


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}-{path.name}")
def test_record_has_the_settings_of_a_committed_recipe(trace: Path) -> None:
    settings = read_record(record_path(trace)).settings
    recipe = ROOT / "recipes" / f"{Path(settings['run']).name}.toml"
    assert to_table(build(Recipe, settings)) == to_table(load_recipe(recipe, []))


def test_there_are_results() -> None:
    assert len(TRACES) >= 13
