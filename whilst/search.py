"""Binary search for reads (the paper's Algorithm 1): for each target token, where reading more stops paying.

All tokens of a batch are searched in parallel. Token i's interval is [l_1 + s(i-1), r_1 + s(i-1)], rounded down
and clamped to the sentence. Intervals shift together, so offset d of all of them is one path through the sentence,
and one decoder pass per offset fills a table from which every comparison is read (`search`).
`search_step_by_step` makes passes at every bisection instead: earlier tokens then follow their own current bounds.
It is slow, and tests the other.

The result is made monotone: the decoder attends to its own past, so source seen earlier is never unseen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from whilst import reads
from whilst.data import Batch
from whilst.model import Translator
from whilst.objectives import causal_mask, cross_mask, encoded

Slope = Literal["one", "ratio"]


@dataclass(frozen=True)
class Interval:
    """Where to search: `first` is l_1 of each target token's sentence, `size` the number of reads tried."""

    first: int | Tensor
    size: int
    slope: Slope = "one"  # one: the paper's text; ratio: J / I, the authors' code

    def start(self, batch: Batch) -> Tensor:
        """(rows, target) l_i before clamping."""
        positions = batch.target_at.position
        if self.slope == "one":
            return positions + self.first
        return positions * batch.source_lengths // batch.target_lengths + self.first

    def reads(self, batch: Batch, offset: int) -> Tensor:
        """(rows, target) the reads at this place of every interval, from 0, clamped to the sentence."""
        return (self.start(batch) + offset).clamp(min=1).minimum(batch.source_lengths)


@dataclass(frozen=True)
class Found:
    """What the decoder makes of one number of reads: all (rows, target)."""

    chance: Tensor  # probability of the reference token
    best: Tensor  # most probable token


Look = Callable[[Tensor], Found]  # reads -> what is found there


@dataclass(frozen=True)
class Bounds:
    """An interval of every token, and its middle."""

    low: Tensor
    middle: Tensor
    high: Tensor


GoLeft = Callable[[Bounds, Look, Tensor, float], Tensor]  # bounds, look, labels, tolerance -> take [low, middle]?


def concave(at: Bounds, look: Look, _: Tensor, tolerance: float) -> Tensor:
    """The paper's condition: the first half gains at least as much as the second (but for the tolerance)."""
    return look(at.middle).chance + tolerance >= (look(at.low).chance + look(at.high).chance) / 2


def authors(at: Bounds, look: Look, labels: Tensor, tolerance: float) -> Tensor:
    """The authors' code: also left when reading more does not help at all; of two reads left, the smaller one if
    the most probable token is the same."""
    low, high = look(at.low), look(at.high)
    left = concave(at, look, labels, tolerance) | (low.chance + tolerance >= high.chance)
    return torch.where(at.high - at.low == 1, low.best == high.best, left)


def ground_truth(at: Bounds, look: Look, labels: Tensor, _: float) -> Tensor:
    """The trade-off ablation: left as soon as the reference token is the most probable one."""
    return look(at.middle).best == labels


CONDITIONS: dict[str, GoLeft] = {"concavity": concave, "authors": authors, "ground-truth": ground_truth}


def bisect(
    low: Tensor, high: Tensor, size: int, look: Look, go_left: GoLeft, labels: Tensor, tolerance: float = 0.0
) -> Tensor:
    """Halve [low, high] of every token until one number of reads is left."""
    for _ in range((size - 1).bit_length()):  # the fixed count needs no word from the device
        middle = (low + high) // 2
        left = go_left(Bounds(low, middle, high), look, labels, tolerance) | (low == high)
        low, high = torch.where(left, low, middle + 1), torch.where(left, middle, high)
    return low


class Reader:
    """Runs the decoder under any reads; the encoder has run once."""

    def __init__(self, model: Translator, batch: Batch) -> None:
        self.model, self.batch = model, batch
        self.encoded, self.causal = encoded(model, batch), causal_mask(batch)

    def states(self, seen: Tensor) -> Tensor:
        """(rows, target, width) decoder states under these reads."""
        batch = self.batch
        cross = cross_mask(batch, seen)
        return self.model.decode(batch.target, batch.target_at.position, self.encoded, self.causal, cross)

    def find(self, seen: Tensor) -> Found:
        logits = self.model.logits(self.states(seen)).float()
        label = logits.gather(-1, self.batch.labels[..., None])[..., 0]
        return Found((label - logits.logsumexp(-1)).exp(), logits.argmax(-1))


@torch.no_grad()
def search(
    model: Translator, batch: Batch, interval: Interval, condition: str = "concavity", tolerance: float = 0.0
) -> Tensor:
    """(rows, target) monotone reads by the table; the model must be in eval mode.

    Where a probability is level, the condition decides by noise; a tolerance says what is too little to wait for.
    """
    reader = Reader(model, batch)
    start = interval.start(batch)
    table = [reader.find(interval.reads(batch, offset)) for offset in range(interval.size)]
    chances, bests = torch.stack([row.chance for row in table]), torch.stack([row.best for row in table])

    def look(seen: Tensor) -> Found:
        offset = (seen - start).clamp(0, interval.size - 1)[None]
        return Found(chances.gather(0, offset)[0], bests.gather(0, offset)[0])

    low, high = interval.reads(batch, 0), interval.reads(batch, interval.size - 1)
    found = bisect(low, high, interval.size, look, CONDITIONS[condition], batch.labels, tolerance)
    return monotone(found, batch)


@torch.no_grad()
def search_step_by_step(
    model: Translator, batch: Batch, interval: Interval, condition: str = "concavity", tolerance: float = 0.0
) -> Tensor:
    """The same with decoder passes at every bisection."""
    reader = Reader(model, batch)
    low, high = interval.reads(batch, 0), interval.reads(batch, interval.size - 1)
    found = bisect(low, high, interval.size, reader.find, CONDITIONS[condition], batch.labels, tolerance)
    return monotone(found, batch)


def monotone(found: Tensor, batch: Batch) -> Tensor:
    """Non-decreasing along each sentence. In a packed row, raising each above the last keeps them apart."""
    if not batch.packed:
        return reads.monotone(found)
    apart = batch.target_at.segment * (batch.source.shape[1] + 1)
    return reads.monotone(found + apart) - apart
