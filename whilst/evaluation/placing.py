"""Where labels go: each beside its point, off the other labels, and off lines where there is room.

Knows boxes and lines in pixels, no figure. One label after the other takes the best place that is left, which is
enough for a few dozen of them. One that would have to lie over another has no place: neither could be read.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
# Above on the left first: curves rise to the right. Then around, then the same further off.
AROUND = ((-1, 1), (0, 1), (1, -1), (0, -1), (1, 1), (-1, -1), (1, 0), (-1, 0))
GAPS = (6.0, 15.0, 30.0)  # pixels between point and label
STEP = 2.0  # pixels between the dots that stand for a line
LATER = 1.0  # what a side costs for each one tried before it, in pixels of line covered
FURTHER = 25.0  # likewise the next gap
COVERED = 1e4  # another label under this one, or a label that leaves the frame: no place at all


@dataclass(frozen=True)
class Box:
    left: float
    low: float
    right: float
    high: float

    def overlaps(self, other: "Box") -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.high <= other.low or other.high <= self.low)

    def holds(self, other: "Box") -> bool:
        across = self.left <= other.left and other.right <= self.right
        return across and self.low <= other.low and other.high <= self.high

    def count(self, dots: Array) -> int:
        """How many of the dots [n, 2] lie inside."""
        x, y = dots[:, 0], dots[:, 1]
        return int(((self.left < x) & (x < self.right) & (self.low < y) & (y < self.high)).sum())


@dataclass(frozen=True)
class Label:
    """What needs a place: the point it belongs to, its width and height, and the sides to try, best first."""

    x: float
    y: float
    width: float
    height: float
    sides: Sequence[tuple[int, int]] = AROUND

    def at(self, side: tuple[int, int], gap: float) -> Box:
        x = self.x + side[0] * (self.width / 2 + gap * (0.3 if side[1] else 1))  # corners hug the point
        y = self.y + side[1] * (self.height / 2 + gap)
        return Box(x - self.width / 2, y - self.height / 2, x + self.width / 2, y + self.height / 2)

    def places(self) -> list[tuple[Box, float]]:
        """All places to try, with what they cost where nothing is in the way."""
        sides = [(LATER * number, side) for number, side in enumerate(self.sides)]
        gaps = [(FURTHER * number, gap) for number, gap in enumerate(GAPS)]
        return [(self.at(side, gap), further + later) for further, gap in gaps for later, side in sides]


def dots(line: Array) -> Array:
    """The line [n, 2] through these points as dots, STEP apart."""
    parts = [line]
    for start, end in itertools.pairwise(line):
        count = max(1, round(float(np.hypot(*(end - start))) / STEP))
        parts.append(start + (end - start) * np.linspace(0, 1, count, endpoint=False)[:, None])
    return np.concatenate(parts)


def place(labels: Sequence[Label], lines: Sequence[tuple[Array, float]], frame: Box) -> list[Box | None]:
    """A box for each label that has a place. `lines` are points [n, 2] and how bad it is to cover that line."""
    obstacles = [(dots(line), weight) for line, weight in lines]
    taken: list[Box] = []
    found: list[Box | None] = []
    for label in labels:
        costs = [(cost + _cost(box, obstacles, taken, frame), box) for box, cost in label.places()]
        cost, box = min(costs, key=lambda item: item[0])
        found.append(box if cost < COVERED else None)
        taken += [box] * (cost < COVERED)
    return found


def _cost(box: Box, obstacles: Sequence[tuple[Array, float]], taken: Sequence[Box], frame: Box) -> float:
    covered = sum(STEP * weight * box.count(line) for line, weight in obstacles)
    return covered + COVERED * sum(box.overlaps(other) for other in taken) + COVERED * (not frame.holds(box))
