"""Binary search for reads: the paper's Algorithm 1, for all target tokens of a batch in parallel.

The search compares p^g, the probability of the reference token after g source tokens. More generally p^g is
exp(-KL(q, p_g)), where p_g is the model's prediction and q is a target distribution. With the reference as q, p^g
is the paper's probability. With the prediction after the whole source as q (`search.target = "belief"`), p^g does
not depend on which of several good words the reference uses.

The interval of token i is [l_1 + s(i-1), r_1 + s(i-1)], rounded down and clamped to the sentence. Since all
intervals shift together, offset d of every interval is one path through the sentence. So one decoder pass for each
offset fills a table of all probabilities that the search compares. Tests compare the results with a search that
runs the decoder at every bisection.

The reads are made non-decreasing: source that an earlier token has seen stays visible through self-attention.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from whilst.core.settings import Search
from whilst.data.batches import Batch
from whilst.model.attention import Mask, causal_mask, cross_mask
from whilst.model.transformer import Translator, encode_batch


@dataclass(frozen=True)
class Interval:
    """The search interval [l_i, r_i]: `first` is l_1 of each target token's sentence, `size` is r_1 - l_1 + 1."""

    first: int | Tensor
    size: int
    slope: Literal["one", "ratio"] = "one"  # s: 1 in the paper's text, J / I ("ratio") in the authors' code

    def start(self, batch: Batch) -> Tensor:
        """(rows, target) l_i before clamping. `packed_search` computes the same on the host."""
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
    token: Tensor  # the most probable token


Predict = Callable[[Tensor], Prediction]  # (rows, target) reads -> prediction


def goes_left(
    left: Tensor, mid: Tensor, right: Tensor, predict: Predict, labels: Tensor, settings: Search
) -> Tensor:
    """Whether to continue with [l, m], under `search.condition`. All tensors are (rows, target)."""
    if settings.condition == "ground-truth":  # the paper's ablation
        return predict(mid).token == labels
    at_left, at_right = predict(left), predict(right)
    mean = (at_left.probability + at_right.probability) / 2
    concave = predict(mid).probability + settings.tolerance >= mean
    if settings.condition == "concavity":  # the left half gains at least as much as the right one
        return concave
    gains_nothing = at_left.probability + settings.tolerance >= at_right.probability
    return torch.where(right - left == 1, at_left.token == at_right.token, concave | gains_nothing)


def binary_search(left: Tensor, right: Tensor, predict: Predict, labels: Tensor, settings: Search) -> Tensor:
    """Algorithm 1: (rows, target) g_i in [l_i, r_i]."""
    # In the authors' code the right half is [m, r] instead of [m + 1, r], except in an interval of two.
    keeps_mid = settings.condition == "authors"
    # Algorithm 1 loops while l < r. A fixed number of steps that is always enough needs no synchronisation.
    for _ in range((settings.size - 1).bit_length() + keeps_mid):
        mid = (left + right) // 2
        go_left = goes_left(left, mid, right, predict, labels, settings) | (left == right)
        right_half = torch.where(right - left == 1, right, mid) if keeps_mid else mid + 1
        left, right = torch.where(go_left, left, right_half), torch.where(go_left, mid, right)
    return left


def probability_and_argmax(logits: Tensor, labels: Tensor, belief: Tensor | None) -> tuple[Tensor, Tensor]:
    """(rows, target) p^g and the most probable tokens. `belief`: log-probabilities of q; None: q is the labels."""
    if belief is None:
        label = logits.gather(-1, labels[..., None])[..., 0]
        return (label - logits.logsumexp(-1)).exp(), logits.argmax(-1)
    divergence = (belief.exp() * (belief - logits.log_softmax(-1))).sum(-1)
    return (-divergence).exp(), logits.argmax(-1)


def fp32_logits(model: Translator, states: Tensor) -> Tensor:
    """(rows, target, units) logits that are not rounded to bfloat16, also under autocast."""
    weight = model.target_embedding.weight
    if states.dtype != torch.bfloat16:
        return model.many_logits(states.to(weight.dtype))
    left, right = states.flatten(0, 1), model.padded_output().bfloat16().T
    product = torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()
    return product.view(*states.shape[:2], -1)[..., : len(weight)]


class PathDecoder:
    """Runs the decoder on a batch along any path. What does not depend on the path is computed once."""

    def __init__(
        self, model: Translator, batch: Batch, target: Literal["reference", "belief"] = "reference"
    ) -> None:
        self.model, self.batch = model, batch
        self.encoded = encode_batch(model, batch)
        self.sources = model.keys_values(self.encoded)
        self.embedded = model.embed(model.target_embedding, batch.target, batch.target_at.position)
        self.belief = self.logits(batch.source_lengths).log_softmax(-1) if target == "belief" else None

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
        return Prediction(*probability_and_argmax(self.logits(path), self.batch.labels, self.belief))


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

    def search_all(self, settings: Search) -> Tensor:
        """(intervals, rows, target) non-decreasing reads in every interval of the settings."""
        firsts = [first for first, _ in settings.intervals]
        return torch.stack([search_interval(self.predict, self.batch, settings, first) for first in firsts])


@torch.no_grad()
def fill_table(model: Translator, batch: Batch, interval: Interval, settings: Search) -> PredictionTable:
    """One decoder pass for each offset. The model must be in eval mode."""
    decoder = PathDecoder(model, batch, settings.target)
    predictions = [decoder.predict(interval.reads(batch, offset)) for offset in range(interval.size)]
    probabilities = torch.stack([prediction.probability for prediction in predictions])
    tokens = torch.stack([prediction.token for prediction in predictions])
    return PredictionTable(batch, interval, probabilities, tokens)


def covering_interval(settings: Search) -> Interval:
    """The smallest interval that contains all intervals of the settings."""
    firsts = [first for first, _ in settings.intervals]
    return Interval(min(firsts), max(firsts) - min(firsts) + settings.size, settings.slope)


def search_interval(predict: Predict, batch: Batch, settings: Search, first: int | Tensor) -> Tensor:
    """(rows, target) non-decreasing reads in the interval that begins at `first`."""
    interval = Interval(first, settings.size, settings.slope)
    left, right = interval.reads(batch, 0), interval.reads(batch, interval.size - 1)
    return monotone(binary_search(left, right, predict, batch.labels, settings), batch)


def search(model: Translator, batch: Batch, settings: Search, first: int | Tensor) -> Tensor:
    """(rows, target) non-decreasing reads. `first`: l_1, or (rows, target) l_1. The model must be in eval mode."""
    table = fill_table(model, batch, Interval(first, settings.size, settings.slope), settings)
    return search_interval(table.predict, batch, settings, first)


def monotone(reads: Tensor, batch: Batch) -> Tensor:
    """The smallest reads that do not decrease along a sentence and are nowhere below `reads`."""
    # An offset for each segment keeps the sentences of a packed row apart.
    offset = batch.target_at.segment * (batch.source.shape[1] + 1)
    return (reads + offset).cummax(-1).values - offset
