"""Binary search for reads (the paper's Algorithm 1): for each target token, where reading more stops paying.

What is searched is the chance exp(-KL(q, p_g)) of a belief q about the token under the model's prediction p_g after
g reads. With the reference as q it is the probability of the reference token, as in the paper. With the model's own
prediction after the whole source as q it does not depend on which of many good words the reference happens to hold.

All tokens of a batch are searched in parallel. Token i's interval is [l_1 + s(i-1), r_1 + s(i-1)], rounded down
and clamped to the sentence. Intervals shift together, so offset d of all of them is one path through the sentence,
and one decoder pass per offset fills a table from which every comparison is read (`search`).
`search_step_by_step` makes passes at every bisection instead: earlier tokens then follow their own current bounds.
It is slow, and tests the other.

The result is made monotone: the decoder attends to its own past, so source seen earlier is never unseen.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from whilst.core.settings import Search
from whilst.data.batches import Batch
from whilst.model import reads
from whilst.model.attention import Mask
from whilst.model.forward import causal_mask, cross_mask, encoded
from whilst.model.transformer import Translator

Slope = Literal["one", "ratio"]
Target = Literal["reference", "belief"]


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

    chance: Tensor  # of the belief
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


def weigh(logits: Tensor, labels: Tensor, belief: Tensor | None) -> tuple[Tensor, Tensor]:
    """(rows, target) the chance of the belief, or of the labels if there is none, and the most probable tokens."""
    if belief is None:
        label = logits.gather(-1, labels[..., None])[..., 0]
        return (label - logits.logsumexp(-1)).exp(), logits.argmax(-1)
    apart = (belief.exp() * (belief - logits.log_softmax(-1))).sum(-1)
    return (-apart).exp(), logits.argmax(-1)


def wide_product(left: Tensor, right: Tensor) -> Tensor:
    """In 32 bits, of matrices in 16."""
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


def sharp_logits(model: Translator, states: Tensor) -> Tensor:
    """(rows, target, units) of the weights' own type, whatever that of the states."""
    weight = model.target_embedding.weight
    if states.dtype != torch.bfloat16:
        return model.many_logits(states.to(weight.dtype))
    product = wide_product(states.flatten(0, 1), model.wide_output().bfloat16().T)
    return product.view(*states.shape[:2], -1)[..., : len(weight)]


class Reader:
    """Runs the decoder under any reads; what does not depend on them is computed once."""

    def __init__(self, model: Translator, batch: Batch, target: Target = "reference") -> None:
        self.model, self.batch = model, batch
        self.encoded = encoded(model, batch)
        self.sources = model.keys_values(self.encoded)
        self.target = model.embed(model.target_embedding, batch.target, batch.target_at.position)
        self.belief = self.logits(reads.full(batch.source_lengths)).log_softmax(-1) if target == "belief" else None

    @functools.cached_property
    def causal(self) -> Mask:
        return causal_mask(self.batch)

    def states(self, seen: Tensor) -> Tensor:
        """(rows, target, width) decoder states under these reads."""
        cross = cross_mask(self.batch, seen)
        return self.model.decode_embedded(self.target, self.sources, self.causal, cross)

    def logits(self, seen: Tensor) -> Tensor:
        """(rows, target, units) in full precision: bfloat16 would blur chances by several per cent."""
        return self.sharpen(self.states(seen))

    def sharpen(self, states: Tensor) -> Tensor:
        states = self.model.slim(states)
        with torch.autocast(states.device.type, enabled=False):
            return sharp_logits(self.model, states)

    def find(self, seen: Tensor) -> Found:
        return Found(*weigh(self.logits(seen), self.batch.labels, self.belief))


@dataclass(frozen=True)
class Table:
    """What is found at every place of an interval: (size, rows, target) chances and most probable tokens."""

    batch: Batch
    interval: Interval
    chances: Tensor
    bests: Tensor

    def look(self, seen: Tensor) -> Found:
        offset = (seen - self.interval.start(self.batch)).clamp(0, self.interval.size - 1)[None]
        return Found(self.chances.gather(0, offset)[0], self.bests.gather(0, offset)[0])


def fill(reader: Reader, interval: Interval) -> Table:
    """One decoder pass for each place."""
    found = [reader.find(interval.reads(reader.batch, offset)) for offset in range(interval.size)]
    chances, bests = torch.stack([one.chance for one in found]), torch.stack([one.best for one in found])
    return Table(reader.batch, interval, chances, bests)


def each_interval(settings: Search) -> list[Interval]:
    return [Interval(first, settings.size, settings.slope) for first, _ in settings.intervals]


def covering(settings: Search) -> Interval:
    """The one that has all others in it."""
    firsts = [first for first, _ in settings.intervals]
    return Interval(min(firsts), max(firsts) - min(firsts) + settings.size, settings.slope)


def search_in(look: Look, batch: Batch, interval: Interval, settings: Search) -> Tensor:
    """(rows, target) monotone reads in one interval, whatever it is that looks."""
    low, high = interval.reads(batch, 0), interval.reads(batch, interval.size - 1)
    go_left = CONDITIONS[settings.condition]
    found = bisect(low, high, interval.size, look, go_left, batch.labels, settings.tolerance)
    return monotone(found, batch)


@torch.no_grad()
def search(model: Translator, batch: Batch, settings: Search, first: int | Tensor) -> Tensor:
    """(rows, target) monotone reads by a table. `first`: where intervals begin, or (rows, target) each sentence's.

    The model must be in eval mode.
    """
    interval = Interval(first, settings.size, settings.slope)
    reader = Reader(model, batch, settings.target)
    return search_in(fill(reader, interval).look, batch, interval, settings)


@torch.no_grad()
def search_all(model: Translator, batch: Batch, settings: Search) -> Tensor:
    """(intervals, rows, target) reads in every interval; where these overlap they share decoder passes."""
    look = fill(Reader(model, batch, settings.target), covering(settings)).look
    return torch.stack([search_in(look, batch, interval, settings) for interval in each_interval(settings)])


@torch.no_grad()
def search_step_by_step(model: Translator, batch: Batch, settings: Search, first: int) -> Tensor:
    """One interval, with decoder passes at every bisection."""
    look = Reader(model, batch, settings.target).find
    return search_in(look, batch, Interval(first, settings.size, settings.slope), settings)


def monotone(found: Tensor, batch: Batch) -> Tensor:
    """Non-decreasing along each sentence. In a packed row, raising each above the last keeps them apart."""
    if not batch.packed:
        return reads.monotone(found)
    apart = batch.target_at.segment * (batch.source.shape[1] + 1)
    return reads.monotone(found + apart) - apart
