"""The numbers that the BS-SiMT paper prints: average lagging and BLEU of each system. It has no results of ours."""

import functools
import re
from pathlib import Path
from typing import Any

from whilst.core.files import read_json
from whilst.evaluation.curves import Point

FULL = "offline"  # the paper's full-sentence model
BEST = "bs-simt"
ORACLE = f"{BEST} oracle"
BASE = "multi-path"  # what BS-SiMT is fine-tuned from
# The paper's name of a system -> our name of the system, and the kind of its policy.
SYSTEMS = {
    FULL: ("full-sentence", "full"),
    "wait-k": ("wait-k", "wait"),
    BASE: (BASE, "wait"),
    "mma": ("mma", "mma"),
    BEST: (BEST, "agent"),
    ORACLE: (BEST, "oracle"),
    "translation-based": ("translation-based", "agent"),
}
TITLES = {FULL: "full-sentence", "mma": "MMA", BEST: "BS-SiMT", ORACLE: "BS-SiMT, oracle"}


def title(system: str) -> str:
    """The title of one of the paper's systems for display; those of ours are made by `identity.System`."""
    return f"paper: {TITLES.get(system, system)}"


@functools.cache
def facts() -> dict[str, Any]:
    """All of paper.json: curves, contents, hyperparameters and the numbers in the running text."""
    everything: dict[str, Any] = read_json(Path(__file__).with_name("paper.json"))
    return everything


def task(pair: str) -> str:
    """The pair without the name of added training text: iwslt14.de-en for `iwslt14+more.de-en`, same test set."""
    return re.sub(r"\+[^.]*", "", pair)


def pairs() -> list[str]:
    """Corpora and directions that the paper measured, such as iwslt15.en-vi."""
    return list(facts()["tables"])


def systems(pair: str) -> list[str]:
    """The paper's systems on the test set of this pair; none for a pair that it does not have."""
    return list(facts()["tables"].get(task(pair), {}))


def curve(pair: str, system: str) -> list[Point]:
    """The system's points by rising AL; none if the paper does not have the system on this pair."""
    return _points(facts()["tables"].get(task(pair), {}).get(system, {}))


def ablations() -> dict[str, list[Point]]:
    """The paper's variants on iwslt14.de-en, two search intervals each."""
    return {name: _points(table) for name, table in facts()["ablations"].items()}


def _points(table: dict[str, tuple[float | None, float]]) -> list[Point]:
    points = [Point(label, al, bleu) for label, (al, bleu) in table.items()]
    return sorted(points, key=lambda point: point.al or 0.0)
