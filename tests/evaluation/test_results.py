"""The committed results: their traces give the recorded figures, hold no corpus text, and meet what is promised."""

import json
import re
from pathlib import Path

import pytest

from whilst.core.files import sha256
from whilst.evaluation.curves import Curve, over_seeds, to_curves
from whilst.evaluation.record import records_in, rescore
from whilst.live.loading import BUNDLED
from whilst.model.run_folder import WEIGHTS, read_recipe
from whilst.research.paper.provenance import nearest, read_recipes
from whilst.research.paper.shelf import TRIED

ROOT = Path(__file__).parents[2]
RECIPES = read_recipes(ROOT / "recipes")
TRACES = sorted((ROOT / "results").rglob("*.jsonl.xz"))


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}-{path.name}")
def test_latency_is_scored_again_from_the_trace(trace: Path) -> None:
    rescored = rescore(trace)
    assert rescored.record is not None
    assert rescored.differences == {}
    assert rescored.scores.bleu is None, "without its reference a trace has no BLEU, so it carries no text"
    assert all(item.source is None and item.reference is None for item in rescored.sentences)


# What was tried on the way has no recipe of its own: its records hold every setting.
RECORDS = [record for path, record in records_in(ROOT / "results").items() if TRIED not in path.parts]
KEPT = to_curves(over_seeds(RECORDS))[0]


@pytest.mark.parametrize("curve", KEPT, ids=lambda curve: f"{curve.pair}-{curve.first.system}-{curve.first.kind}")
def test_records_have_the_settings_of_a_committed_recipe(curve: Curve) -> None:
    """But for seeds, for what makes a point (k, lambda), and for how it was evaluated: the records say these."""
    near = nearest(curve, RECIPES)
    assert near is not None
    assert near[1] in ([], ["--each-interval"]), near[0].path


def test_there_are_results() -> None:
    assert len(TRACES) >= 13


def test_the_models_card_has_the_recorded_figures() -> None:
    """Of the very weights that come with the package."""
    card = (BUNDLED / "en-vi" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| \S* ?\| ([a-z]+-\d) \| ([\d. |]+) \|", card)
    assert {name for name, _ in rows} >= {"agent-1", "agent-5", "agent-9"}
    for name, figures in rows:
        path = ROOT / f"results/iwslt15-raw.en-vi/bundle/test.{name}.unknown-keep.ending-patient.json"
        record = json.loads(path.read_text())
        scores = record["scores"]
        wanted = [scores[key] for key in ("sacrebleu", "chrf", "al_word", "laal", "dal")]
        assert figures.split(" | ") == [f"{value:.2f}" for value in wanted]
        assert record["model_sha256"] == sha256(BUNDLED / "en-vi" / WEIGHTS)
        assert record["settings"]["evaluate"]["ending"] == read_recipe(BUNDLED / "en-vi").evaluate.ending
