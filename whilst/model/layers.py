"""The layers of the translator: attention and feed-forward parts, each with its residual connection and norm."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whilst.core.settings import Model
from whilst.model.attention import Heads, Mask, project
from whilst.model.cache import KeysValues, Slot
from whilst.model.monotonic_attention import HeadPositions, MonotonicHeads, MonotonicPass

LOTS = 1 << 16


class Dropout(nn.Dropout):
    """Where `lots` are given, a value is dropped if its lot is among the lowest.

    Lots are 16 bits drawn ahead for many values at once. What a compiler makes of nn.Dropout computes 128 random
    bits for each value, which should take a GPU longer than everything around it.
    """

    def forward(self, states: Tensor, lots: Tensor | None = None) -> Tensor:
        if lots is None:
            return super().forward(states)
        dropped = round(self.p * LOTS)
        return torch.where(lots >= dropped - LOTS // 2, states * (LOTS / (LOTS - dropped)), 0.0)


class FeedForward(nn.Sequential):
    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__(nn.Linear(width, inner), nn.ReLU(), Dropout(dropout), nn.Linear(inner, width))
        for linear in self:
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor, norm: nn.LayerNorm | None = None, lots: Tensor | None = None) -> Tensor:
        first, activation, dropout, last = self
        out: Tensor = last(dropout(activation(project(first, states, norm)), lots))
        return out


class Sublayer(nn.Module):
    """Residual connection, normalisation and dropout around one part of a layer."""

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width)
        self.dropout = Dropout(settings.dropout)
        self.pre = settings.norm == "pre"
        self.folds = False  # whether the part's first linear layer scales and shifts in training, see `project`

    def before(self, states: Tensor) -> tuple[Tensor, nn.LayerNorm | None]:
        """What goes into the part, and the norm that is still to scale and shift it."""
        if not self.pre:
            return states, None
        if self.folds and self.training:
            return F.layer_norm(states, states.shape[-1:], eps=self.norm.eps), self.norm
        return self.norm(states), None

    def after(self, states: Tensor, change: Tensor, lots: Tensor | None = None) -> Tensor:
        out: Tensor = states + self.dropout(change, lots)
        return out if self.pre else self.norm(out)


def look_back(
    attention: Heads, around: Sublayer, states: Tensor, mask: Mask, cache: Slot | None, lots: Tensor | None
) -> Tensor:
    """Self-attention of a layer; with a cache, to what came before this step too."""
    inputs, norm = around.before(states)
    keys_values = attention.keys_values(inputs, norm)
    if cache is not None:
        keys_values = cache.append(*keys_values)
    return around.after(states, attention(inputs, keys_values, mask, norm), lots)


def divide(lots: Tensor | None, sizes: Sequence[int]) -> Sequence[Tensor | None]:
    """The lots of a layer among its parts."""
    return [None] * len(sizes) if lots is None else lots.split_with_sizes(list(sizes), -1)


class EncoderLayer(nn.Module):
    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.attention = Heads(settings.width, settings.heads)
        self.attention_sublayer = Sublayer(settings)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward, settings.dropout)
        self.feed_forward_sublayer = Sublayer(settings)
        self.lots = settings.width, settings.feed_forward, settings.width  # what is dropped of a token

    def forward(self, states: Tensor, mask: Mask, cache: Slot | None = None, lots: Tensor | None = None) -> Tensor:
        back, inner, out = divide(lots, self.lots)
        states = look_back(self.attention, self.attention_sublayer, states, mask, cache, back)
        around = self.feed_forward_sublayer
        return around.after(states, self.feed_forward(*around.before(states), inner), out)


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
        self.lots = settings.width, settings.width, settings.feed_forward, settings.width

    def forward(
        self,
        states: Tensor,
        source: Tensor | KeysValues,
        mask: Mask,
        cross_mask: Mask,
        walk: MonotonicPass | None = None,
        lots: Tensor | None = None,
    ) -> Tensor:
        """`source`: encoder states, or the keys and values that are made of them."""
        source = self.cross.keys_values(source) if isinstance(source, Tensor) else source
        return self.step(states, source, mask, cross_mask, walk=walk, lots=lots)

    def step(
        self,
        states: Tensor,
        source: KeysValues,
        mask: Mask,
        cross_mask: Mask,
        cache: Slot | None = None,
        walk: MonotonicPass | HeadPositions | None = None,
        lots: Tensor | None = None,
    ) -> Tensor:
        """The layer when the source's keys and values are there already; `walk` is for monotone heads only."""
        back, across, inner, out = divide(lots, self.lots)
        states = look_back(self.attention, self.attention_sublayer, states, mask, cache, back)
        around = self.cross_sublayer
        inputs, norm = around.before(states)
        if isinstance(self.cross, MonotonicHeads):
            states = around.after(states, self.cross(inputs, source, cross_mask, walk), across)
        else:
            states = around.after(states, self.cross(inputs, source, cross_mask, norm), across)
        around = self.feed_forward_sublayer
        return around.after(states, self.feed_forward(*around.before(states), inner), out)
