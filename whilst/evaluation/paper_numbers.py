"""The numbers that the BS-SiMT paper prints: average lagging and BLEU of each system. Knows none of our own."""

import functools
import json
import re
from importlib import resources
from typing import Any

from whilst.core.errors import UserError
from whilst.evaluation.curves import Point

FULL = "offline"  # the paper's full-sentence model
BEST = "bs-simt"
ORACLE = f"{BEST} oracle"
BASE = "multi-path"  # what BS-SiMT is fine-tuned from
# By the paper's name of a system: ours, and the kind of its policy.
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
_ABLATIONS = "ablations"


def title(system: str) -> str:
    """For people. Our own titles are those of `identity.System`."""
    return f"paper: {TITLES.get(system, system)}"


@functools.cache
def facts() -> dict[str, Any]:
    """The whole of paper.json: curves, contents, hyperparameters and the numbers in the running text."""
    text = (resources.files("whilst.evaluation") / "paper.json").read_text(encoding="utf-8")
    everything: dict[str, Any] = json.loads(text)
    return everything


def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = facts()["tables"]
    return tables


def task(pair: str) -> str:
    """The pair without training text that was added: `iwslt14+more.de-en` has the test set of iwslt14.de-en."""
    return re.sub(r"\+[^.]*", "", pair)


def pairs() -> list[str]:
    """Corpora and directions that the paper measured, such as iwslt15.en-vi."""
    return [name for name in _tables() if not name.startswith(_ABLATIONS)]


def systems(pair: str) -> list[str]:
    """The paper's systems on the test set of this pair; none for a pair that it does not have."""
    return list(_tables()[task(pair)]) if task(pair) in pairs() else []


def curve(pair: str, system: str) -> list[Point]:
    """The system's points by rising AL."""
    if system not in systems(pair):
        known = ", ".join(systems(pair)) or "no numbers at all"
        raise UserError(f"the paper has no {system!r} for {pair!r}, it has {known}")
    return _points(_tables()[task(pair)][system])


def ablations() -> dict[str, list[Point]]:
    """The paper's variants on iwslt14.de-en, two search intervals each."""
    table = next(table for name, table in _tables().items() if name.startswith(_ABLATIONS))
    return {name: _points(points) for name, points in table.items()}


def _points(table: dict[str, list[float]] | list[list[float]]) -> list[Point]:
    rows = table.items() if isinstance(table, dict) else (("", row) for row in table)
    points = [Point(label, al, bleu) for label, (al, bleu) in rows]
    return sorted(points, key=lambda point: point.al or 0.0)
