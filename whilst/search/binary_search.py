"""Binary search for reads: the paper's Algorithm 1, for all target tokens of a batch in parallel.

The search compares p^g, the probability of the reference token after g source tokens. More generally p^g is
exp(-KL(q, p_g)), where p_g is the model's prediction and q a target distribution: with the reference as q that is
the paper's probability; with the prediction after the whole source (`search.target = "belief"`) it does not depend
on which of several good words the reference uses.

The interval of token i is [l_1 + s(i-1), r_1 + s(i-1)], rounded down and clamped to the sentence. Since all
intervals shift together, offset d of every interval is one path through the sentence, so one decoder pass for each
offset fills a table of everything that the search compares (`search`). Tests compare it with decoder
passes at every bisection.

The result is made non-decreasing, since the decoder attends to its own past and cannot unsee source.
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
from whilst.model.forward import causal_mask, cross_mask, encode_batch
from whilst.model.transformer import Translator

Target = Literal["reference", "belief"]


@dataclass(frozen=True)
class Interval:
    """The search interval [l_i, r_i]: `first` is l_1 of each target token's sentence, `size` is r_1 - l_1 + 1."""

    first: int | Tensor
    size: int
    slope: Literal["one", "ratio"] = "one"  # s: 1 in the paper's text, J / I ("ratio") in the authors' code

    def start(self, batch: Batch) -> Tensor:
        """(rows, target) l_i before clamping."""
        positions = batch.target_at.position
        if self.slope == "one":
            return positions + self.first
        return positions * batch.source_lengths // batch.target_lengths + self.first

    def reads(self, batch: Batch, offset: int) -> Tensor:
        """(rows, target) l_i + offset, clamped to the sentence."""
        return (self.start(batch) + offset).clamp(min=1).minimum(batch.source_lengths)


@dataclass(frozen=True)
class Prediction:
    """The model's prediction of each target token under some reads: (rows, target) each."""

    probability: Tensor  # p^g
    token: Tensor  # the most probable one


Predict = Callable[[Tensor], Prediction]  # (rows, target) reads -> prediction


@dataclass(frozen=True)
class Bounds:
    """l_i, m_i and r_i of every token: (rows, target) each."""

    left: Tensor
    mid: Tensor
    right: Tensor


def concavity(at: Bounds, predict: Predict, _: Tensor, tolerance: float) -> Tensor:
    """p^m >= (p^l + p^r) / 2: the left half gains at least as much as the right one, up to the tolerance."""
    mean = (predict(at.left).probability + predict(at.right).probability) / 2
    return predict(at.mid).probability + tolerance >= mean


def authors_condition(at: Bounds, predict: Predict, labels: Tensor, tolerance: float) -> Tensor:
    """Concavity, or p^l >= p^r; in an interval of two, whether both predict the same token."""
    left, right = predict(at.left), predict(at.right)
    gains_nothing = left.probability + tolerance >= right.probability
    go_left = concavity(at, predict, labels, tolerance) | gains_nothing
    return torch.where(at.right - at.left == 1, left.token == right.token, go_left)


def ground_truth(at: Bounds, predict: Predict, labels: Tensor, _: float) -> Tensor:
    """The paper's ablation: whether the reference token is the most probable one at m."""
    return predict(at.mid).token == labels


Condition = Callable[[Bounds, Predict, Tensor, float], Tensor]  # bounds, predict, labels, tolerance
# When to continue with [l, m].
CONDITIONS: dict[str, Condition] = {
    "concavity": concavity,
    "authors": authors_condition,  # the authors' code
    "ground-truth": ground_truth,
}


def binary_search(
    left: Tensor,
    right: Tensor,
    size: int,
    predict: Predict,
    condition: Condition,
    labels: Tensor,
    tolerance: float = 0.0,
) -> Tensor:
    """Algorithm 1: (rows, target) g_i in [l_i, r_i], intervals of at most `size`."""
    # In the authors' code the right half is [m, r] instead of [m + 1, r], except in an interval of two.
    keeps_mid = condition is authors_condition
    # While l < r: a fixed number of steps, which is always enough, needs no synchronisation.
    for _ in range((size - 1).bit_length() + keeps_mid):
        mid = (left + right) // 2
        bounds = Bounds(left, mid, right)
        go_left = condition(bounds, predict, labels, tolerance) | (left == right)
        right_half = torch.where(right - left == 1, right, mid) if keeps_mid else mid + 1
        left, right = torch.where(go_left, left, right_half), torch.where(go_left, mid, right)
    return left


def probability_and_argmax(logits: Tensor, labels: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor]:
    """(rows, target) p^g and the most probable tokens. `target`: log-probabilities of q, else q is the labels."""
    if target is None:
        label = logits.gather(-1, labels[..., None])[..., 0]
        return (label - logits.logsumexp(-1)).exp(), logits.argmax(-1)
    divergence = (target.exp() * (target - logits.log_softmax(-1))).sum(-1)
    return (-divergence).exp(), logits.argmax(-1)


def fp32_logits(model: Translator, states: Tensor) -> Tensor:
    """(rows, target, units) in the weights' own type, which is not that of the states under autocast."""
    weight = model.target_embedding.weight
    if states.dtype != torch.bfloat16:
        return model.many_logits(states.to(weight.dtype))
    left, right = states.flatten(0, 1), model.padded_output().bfloat16().T
    product = torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()
    return product.view(*states.shape[:2], -1)[..., : len(weight)]


class PathDecoder:
    """Runs the decoder on a batch along any path. The encoder states and the like are computed once."""

    def __init__(
        self, model: Translator, batch: Batch, target: Literal["reference", "belief"] = "reference"
    ) -> None:
        self.model, self.batch = model, batch
        self.encoded = encode_batch(model, batch)
        self.sources = model.keys_values(self.encoded)
        self.embedded = model.embed(model.target_embedding, batch.target, batch.target_at.position)
        self.target = self.logits(batch.source_lengths).log_softmax(-1) if target == "belief" else None

    @functools.cached_property
    def causal(self) -> Mask:
        return causal_mask(self.batch)

    def states(self, path: Tensor) -> Tensor:
        """(rows, target, width) decoder states under these reads."""
        cross = cross_mask(self.batch, path)
        return self.model.decode_embedded(self.embedded, self.sources, self.causal, cross)

    def logits(self, path: Tensor) -> Tensor:
        """(rows, target, units) in full precision: bfloat16 would change probabilities by several per cent."""
        return self.logits_of(self.states(path))

    def logits_of(self, states: Tensor) -> Tensor:
        states = self.model.to_bf16(states)
        with torch.autocast(states.device.type, enabled=False):
            return fp32_logits(self.model, states)

    def predict(self, path: Tensor) -> Prediction:
        return Prediction(*probability_and_argmax(self.logits(path), self.batch.labels, self.target))


@dataclass(frozen=True)
class PredictionTable:
    """The predictions at every offset of an interval: (size, rows, target) each."""

    batch: Batch
    interval: Interval
    probabilities: Tensor
    tokens: Tensor

    def predict(self, path: Tensor) -> Prediction:
        offset = (path - self.interval.start(self.batch)).clamp(0, self.interval.size - 1)[None]
        return Prediction(self.probabilities.gather(0, offset)[0], self.tokens.gather(0, offset)[0])


def fill_table(decoder: PathDecoder, interval: Interval) -> PredictionTable:
    """One decoder pass for each offset."""
    found = [decoder.predict(interval.reads(decoder.batch, offset)) for offset in range(interval.size)]
    probabilities = torch.stack([one.probability for one in found])
    return PredictionTable(decoder.batch, interval, probabilities, torch.stack([one.token for one in found]))


def intervals_of(settings: Search) -> list[Interval]:
    return [Interval(first, settings.size, settings.slope) for first, _ in settings.intervals]


def covering_interval(settings: Search) -> Interval:
    """The smallest interval that contains all of the settings."""
    firsts = [first for first, _ in settings.intervals]
    return Interval(min(firsts), max(firsts) - min(firsts) + settings.size, settings.slope)


def search_interval(predict: Predict, batch: Batch, interval: Interval, settings: Search) -> Tensor:
    """(rows, target) non-decreasing reads in one interval."""
    left, right = interval.reads(batch, 0), interval.reads(batch, interval.size - 1)
    condition = CONDITIONS[settings.condition]
    found = binary_search(left, right, interval.size, predict, condition, batch.labels, settings.tolerance)
    return monotone(found, batch)


@torch.no_grad()
def search(model: Translator, batch: Batch, settings: Search, first: int | Tensor) -> Tensor:
    """(rows, target) non-decreasing reads, with the model in eval mode. `first`: l_1, or (rows, target) of each."""
    interval = Interval(first, settings.size, settings.slope)
    decoder = PathDecoder(model, batch, settings.target)
    return search_interval(fill_table(decoder, interval).predict, batch, interval, settings)


@torch.no_grad()
def search_all(model: Translator, batch: Batch, settings: Search) -> Tensor:
    """(intervals, rows, target) reads in every interval. Overlapping intervals share decoder passes."""
    predict = fill_table(PathDecoder(model, batch, settings.target), covering_interval(settings)).predict
    return torch.stack([search_interval(predict, batch, one, settings) for one in intervals_of(settings)])


def monotone(found: Tensor, batch: Batch) -> Tensor:
    """Non-decreasing along each sentence; an offset for each segment keeps the sentences of a packed row apart."""
    offset = batch.target_at.segment * (batch.source.shape[1] + 1)
    return reads.monotone(found + offset) - offset
