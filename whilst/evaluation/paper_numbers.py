"""The numbers that the BS-SiMT paper prints, as reference lines: average lagging and BLEU of each system.

Knows no evaluation of ours; what is compared with what stands in report.py.
"""

import functools
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from whilst.core.errors import UserError

FULL = "offline"  # the paper's full-sentence model
BEST = "bs-simt"
ORACLE = f"{BEST} oracle"
# Under which policies it has its systems; all others have an agent.
KINDS = {FULL: "full", "wait-k": "wait", "multi-path": "wait", "mma": "mma", BEST: "agent", ORACLE: "oracle"}
_ABLATIONS = "ablations"


@dataclass(frozen=True)
class Point:
    label: str  # k, lambda or search interval, as the paper writes it
    al: float | None  # the paper does not give it for every full-sentence model
    bleu: float


@functools.cache
def facts() -> dict[str, Any]:
    """All that is there, beside the curves: contents, hyperparameters, and the few numbers of the running text."""
    everything: dict[str, Any] = json.loads(
        (resources.files("whilst.evaluation") / "paper.json").read_text(encoding="utf-8")
    )
    return everything


def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = facts()["tables"]
    return tables


def task(pair: str) -> str:
    """On whose test set a pair is measured: `iwslt14+more.de-en` is trained on other text but tested as IWSLT14."""
    return re.sub(r"\+[^.]*", "", pair)


def pairs() -> list[str]:
    """Corpora and directions that the paper measured, such as iwslt15.en-vi."""
    return [name for name in _tables() if not name.startswith(_ABLATIONS)]


def systems(pair: str) -> list[str]:
    """The paper's systems for the test set of this pair; none for a pair that it does not have."""
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


def interpolate(points: Sequence[Point], al: float) -> float | None:
    """BLEU on the straight lines between the points; None outside of them, since a guess is no reference."""
    known = [(point.al, point.bleu) for point in points if point.al is not None]
    for (left, low), (right, high) in itertools.pairwise(known):
        if left <= al <= right:
            return low + (high - low) * (al - left) / (right - left) if right > left else low
    return None
