"""The layers of the translator: attention and feed-forward parts, each with its residual connection and norm."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whilst.core.settings import Model
from whilst.model.attention import Heads, Mask, project, split_heads
from whilst.model.cache import KeysValues, LayerCache
from whilst.model.monotonic_attention import HeadPositions, MonotonicHeads, MonotonicPass

RANGE = 1 << 16  # values of a 16-bit random number


class Dropout(nn.Dropout):
    """Dropout from 16-bit random numbers: drop where the number is among the lowest p * 2^16.

    nn.Dropout computes more random bits for each value. Compiled layers on a GPU get predrawn numbers (`random`),
    because nn.Dropout in them costs more than the operations around it. On a CPU the numbers are drawn here.
    """

    def forward(self, states: Tensor, random: Tensor | None = None) -> Tensor:
        dropped = round(self.p * RANGE)
        if random is not None:
            return torch.where(random >= dropped - RANGE // 2, states * (RANGE / (RANGE - dropped)), 0.0)
        drawn_here = states.device.type == "cpu" and not torch.compiler.is_compiling()
        if not (drawn_here and self.training and 0 < dropped < RANGE):
            return super().forward(states)
        kept = draw_random(states.shape, states.device) >= dropped - RANGE // 2
        return states * (RANGE / (RANGE - dropped)) * kept


def draw_random(shape: Sequence[int], device: torch.device) -> Tensor:
    """Random 16-bit numbers, four in each 64-bit number drawn."""
    count = math.prod(shape)
    words = torch.empty(-(-count // 4), dtype=torch.int64, device=device).random_(-(1 << 63), None)
    return words.view(torch.int16)[:count].view(*shape)


class FeedForward(nn.Sequential):
    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__(nn.Linear(width, inner), nn.ReLU(), Dropout(dropout), nn.Linear(inner, width))
        for linear in self:
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor, norm: nn.LayerNorm | None = None, random: Tensor | None = None) -> Tensor:
        first, activation, dropout, last = self
        out: Tensor = last(dropout(activation(project(first, states, norm)), random))
        return out


class Sublayer(nn.Module):
    """Residual connection, normalisation and dropout around one part of a layer."""

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width)
        self.dropout = Dropout(settings.dropout)
        self.pre = settings.norm == "pre"
        self.fold_norm = False  # in training the next linear layer applies the norm's gain and bias, see `project`

    def before(self, states: Tensor) -> tuple[Tensor, nn.LayerNorm | None]:
        """The input of the sublayer, and the norm whose gain and bias are still to be applied, or None."""
        if not self.pre:
            return states, None
        if self.fold_norm and self.training:
            return F.layer_norm(states, states.shape[-1:], eps=self.norm.eps), self.norm
        return self.norm(states), None

    def after(self, states: Tensor, change: Tensor, random: Tensor | None = None) -> Tensor:
        out: Tensor = states + self.dropout(change, random)
        return out if self.pre else self.norm(out)


def self_attend(
    heads: Heads, sublayer: Sublayer, states: Tensor, mask: Mask, cache: LayerCache | None, random: Tensor | None
) -> Tensor:
    """The self-attention of a layer; with a cache it also attends to earlier steps."""
    inputs, norm = sublayer.before(states)
    keys_values = heads.keys_values(inputs, norm)
    if cache is not None:
        keys_values = cache.append(*keys_values)
    return sublayer.after(states, heads(inputs, keys_values, mask, norm), random)


def split_random(random: Tensor | None, sizes: Sequence[int]) -> Sequence[Tensor | None]:
    """Split the random numbers of a layer between its dropouts."""
    return [None] * len(sizes) if random is None else random.split_with_sizes(list(sizes), -1)


class EncoderLayer(nn.Module):
    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.attention = Heads(settings.width, settings.heads)
        self.attention_sublayer = Sublayer(settings)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward, settings.dropout)
        self.feed_forward_sublayer = Sublayer(settings)
        self.dropout_sizes = settings.width, settings.feed_forward, settings.width  # values per token

    def forward(
        self, states: Tensor, mask: Mask, cache: LayerCache | None = None, random: Tensor | None = None
    ) -> Tensor:
        for_self, for_inner, for_output = split_random(random, self.dropout_sizes)
        states = self_attend(self.attention, self.attention_sublayer, states, mask, cache, for_self)
        sublayer = self.feed_forward_sublayer
        return sublayer.after(states, self.feed_forward(*sublayer.before(states), for_inner), for_output)


class DecoderLayer(nn.Module):
    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.attention = Heads(settings.width, settings.heads)
        self.attention_sublayer = Sublayer(settings)
        kind = MonotonicHeads if settings.cross == "monotone" else Heads
        self.cross = kind(settings.width, settings.heads)
        self.cross_sublayer = Sublayer(settings)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward, settings.dropout)
        self.feed_forward_sublayer = Sublayer(settings)
        self.dropout_sizes = settings.width, settings.width, settings.feed_forward, settings.width

    def forward(
        self,
        states: Tensor,
        source: Tensor | KeysValues,
        mask: Mask,
        cross_mask: Mask,
        monotonic: MonotonicPass | HeadPositions | None = None,
        random: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """`source`: encoder states, or their keys and values. `monotonic`: only for `MonotonicHeads`."""
        source = self.cross.keys_values(source) if isinstance(source, Tensor) else source
        for_self, for_cross, for_inner, for_output = split_random(random, self.dropout_sizes)
        states = self_attend(self.attention, self.attention_sublayer, states, mask, cache, for_self)
        sublayer = self.cross_sublayer
        inputs, norm = sublayer.before(states)
        if isinstance(self.cross, MonotonicHeads):
            states = sublayer.after(states, self.cross(inputs, source, cross_mask, monotonic), for_cross)
        else:
            states = sublayer.after(states, self.cross(inputs, source, cross_mask, norm), for_cross)
        sublayer = self.feed_forward_sublayer
        return sublayer.after(states, self.feed_forward(*sublayer.before(states), for_inner), for_output)

    def cross_weights(self, states: Tensor, encoded: Tensor, mask: Mask, cross_mask: Tensor) -> Tensor:
        """(rows, target, source) cross-attention, the mean over its heads. `cross_mask` is boolean."""
        assert isinstance(self.cross, Heads)
        states = self_attend(self.attention, self.attention_sublayer, states, mask, None, None)
        inputs, _ = self.cross_sublayer.before(states)
        query = split_heads(self.cross.query(inputs), self.cross.heads)
        keys, _ = self.cross.keys_values(encoded)
        energies: Tensor = query @ keys.transpose(-1, -2) / query.shape[-1] ** 0.5
        return energies.masked_fill(~cross_mask, -torch.inf).softmax(-1).mean(1)
