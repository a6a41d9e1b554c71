"""Monotonic multi-head attention with infinite lookback (MMA, Ma et al. 2020): heads that read at their own pace.

For every target token each head walks on along the source from where it stopped for the token before, and stops at
each source token with a chance of its own; then it attends to all up to there. Training follows all walks at once,
weighted by their chances (`alignment`, `lookback`); live translation stops where the chance reaches a half. The
tokens that a mask leaves visible are all there are: at the last of them a head stops. Knows no policy and no loop.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from whilst.attention import Mask
from whilst.errors import UserError

NOISE = 1.0  # deviation of what is added to energies in training: only chances near 0 or 1 withstand it
BIAS = -2.0  # of a fresh head's energy: it reads on at first, and learns to translate before it learns to hurry
LEAST = 1e-30  # a chance below this is none; its logarithm must exist


@dataclass
class Delays:
    """Where the heads stop on average in a whole pass."""

    layers: list[Tensor] = field(default_factory=list)  # (rows, heads, target) expected reads, from 1


@dataclass
class Stops:
    """Where the heads of one layer stand in a batch of live translations: (rows, heads), from 0."""

    past: Tensor  # where they stopped for the last token written
    now: Tensor  # where they stop for the next one, or as far as has been read
    done: Tensor  # whether they stop there by themselves

    @classmethod
    def first(cls, rows: int, heads: int, device: torch.device) -> "Stops":
        """Before anything is written."""
        past = torch.zeros(rows, heads, dtype=torch.long, device=device)
        return cls(past, past.clone(), past.bool())

    def commit(self, rows: Tensor) -> None:
        self.past = torch.where(rows[:, None], self.now, self.past)

    def part(self, rows: Tensor) -> "Stops":
        return Stops(self.past[rows], self.now[rows], self.done[rows])

    def put(self, rows: Tensor, part: "Stops") -> None:
        self.past[rows], self.now[rows], self.done[rows] = part.past, part.now, part.done

    def select(self, rows: Tensor) -> None:
        self.past, self.now, self.done = self.past[rows], self.now[rows], self.done[rows]


def last_of(visible: Tensor) -> Tensor:
    """(…, source) True at the last visible token."""
    return visible & ~F.pad(visible[..., 1:], (0, 1))


def alignment(energy: Tensor, visible: Tensor) -> Tensor:
    """(rows, heads, target, source) energies of stopping -> the chance that a head stops there for that token.

    A head's way leads through the grid of (target, source) pairs: on to the next source token with the chance 1 - p
    of a pair, or down to the next target token with p. So it stops with p times the chance that it comes by. The
    energies may be bf16; from here on everything has at least 32 bits.
    """
    with torch.autocast(energy.device.type, enabled=False):
        energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
        last = last_of(visible)
        stop = energy.sigmoid().masked_fill(last, 1.0).masked_fill(~visible, 0.0)
        go_on = (-energy).sigmoid().masked_fill(last | ~visible, 0.0)
        # Where a head comes from, left or above, does not matter to where it goes.
        pairs = torch.stack([go_on, stop], -1)[..., None, :].expand(*stop.shape, 2, 2)
        return arrivals(pairs, 1).sum(-1) * stop


def arrivals(tiles: Tensor, side: int) -> Tensor:
    """(…, down, across, size, size) a grid of tiles -> (…, down, across, size) the chance that a walk from the
    upper left corner enters each of them, by each of its entrances.

    A tile is a rectangle and a matrix: the chance to leave by an exit after entering by an entrance. The first
    `side` entrances are on the left, the others above; exits are on the right and below. Two tiles side by
    side make one, so this halves the grid, across and down in turn, down to a single tile: no loop over positions,
    but as many rounds as the lengths have binary digits. Every number is a chance, a sum of products of chances:
    nothing is divided (the usual closed form does), so nothing can overflow, and logarithms are not needed.
    """
    down, across, size = tiles.shape[-4], tiles.shape[-3], tiles.shape[-1]
    above = size - side
    if across == 1:
        if down == 1:
            return F.pad(tiles.new_ones(*tiles.shape[:-2], 1), (0, size - 1))
        turned = tiles.roll((-side, -side), (-2, -1)).transpose(-4, -3)
        return arrivals(turned, above).transpose(-3, -2).roll(side, -1)
    if across % 2:
        tiles = F.pad(tiles, (0, 0, 0, 0, 0, 1))  # whoever enters this one never leaves
    left, right = tiles[..., 0::2, :, :], tiles[..., 1::2, :, :]
    # The two as one, turned (what was above is on its left) for the next round: it halves the other direction.
    if down == 1 and across == 2:
        entered = F.pad(left.new_ones(*left.shape[:-2], 1), (0, size + above - 1))
    else:
        from_left, to_right = left[..., :side], right[..., :side, :]
        through = from_left * to_right if side == 1 else from_left @ to_right
        upper = torch.cat([left[..., side:], through[..., side:], through[..., :side]], -1)
        lower = F.pad(right[..., side:, :].roll(-side, -1), (above, 0))
        both = torch.cat([upper[..., side:, :], lower, upper[..., :side, :]], -2)
        entered = arrivals(both.transpose(-4, -3), 2 * above).transpose(-3, -2)
    first, second, edge = torch.split(entered, [above, above, side], -1)
    into_left = torch.cat([edge, first], -1)
    passed = (into_left[..., None, :] @ left[..., :side]).squeeze(-2)
    into_right = torch.cat([passed, second], -1)
    return torch.stack([into_left, into_right], -2).flatten(-3, -2)[..., :across, :]


def lookback(energy: Tensor, aligned: Tensor, visible: Tensor) -> Tensor:
    """(rows, heads, target, source) the expected attention: softmax over all tokens up to where a head stops.

    Token j gets exp(u_j) times the sum, over the stops k from j on, of the chance of k / (exp(u_1) + … + exp(u_k));
    the sums are running ones, of logarithms.
    """
    with torch.autocast(energy.device.type, enabled=False):
        energy = energy.to(aligned.dtype).masked_fill(~visible, -1e9)
        share = (aligned + LEAST).log() - energy.logcumsumexp(-1)
        return (energy + share.flip(-1).logcumsumexp(-1).flip(-1)).exp()


def latency(
    delays: Delays, source_lengths: Tensor, target_lengths: Tensor, real: Tensor, average: float, variance: float
) -> Tensor:
    """The weighted latency of a batch, summed over its sentences. All (rows, target).

    `average` weighs the differentiable average lagging of all heads' mean delay, in which late heads weigh more
    (softmax of the delays): they are whom a token waits for. `variance` weighs how far heads are from each other.
    """
    reads = torch.cat(delays.layers, 1)  # (rows, layers * heads, target)
    late = (reads.softmax(1) * reads).sum(1)
    place = torch.arange(late.shape[1], device=late.device)
    # A token cannot lag less than the one before: that is what makes this average lagging differentiable.
    lag = (late - place * source_lengths / target_lengths).cummax(1).values
    apart = reads.var(1, correction=0)
    return ((average * lag + variance * apart) * real / target_lengths).sum()


class Monotone(nn.Module):
    """Cross-attention whose heads have two energies: one to stop, one to attend. Otherwise like attention.Heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, 2 * width)  # to attend, to stop
        self.key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.full((heads,), BIAS))
        for linear in (self.query, self.key_value, self.out):
            bound = (3 / width) ** 0.5  # as in Heads
            nn.init.uniform_(linear.weight, -bound, bound)
            nn.init.zeros_(linear.bias)

    def split(self, states: Tensor) -> Tensor:
        """(rows, tokens, width) -> (rows, heads, tokens, width / heads)."""
        return states.view(*states.shape[:-1], self.heads, -1).transpose(1, 2)

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Both keys of a head lie side by side, so that a cache holds them as one: (…, 2 * size), (…, size)."""
        attend, stop, value = map(self.split, self.key_value(states).chunk(3, dim=-1))
        return torch.cat([attend, stop], -1), value

    def energies(self, states: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, heads, queries, keys) to attend and to stop."""
        queries = map(self.split, self.query(states).chunk(2, dim=-1))
        attend, stop = (q @ k.transpose(2, 3) for q, k in zip(queries, keys.chunk(2, -1), strict=True))
        scale = (keys.shape[-1] // 2) ** -0.5
        return attend * scale, stop * scale + self.bias[:, None, None]

    def forward(
        self, states: Tensor, keys_values: tuple[Tensor, Tensor], mask: Mask, walk: Delays | Stops | None
    ) -> Tensor:
        """Live from where the heads stand (`Stops`, one query a row), else on average over all walks."""
        if isinstance(mask, BlockMask):
            # The grid of a packed row would be all its target tokens by all its source tokens.
            raise UserError('train.layout: model.cross = "monotone" needs padded batches; write "auto"')
        keys, values = keys_values
        attend, stop = self.energies(states, keys)
        if isinstance(walk, Stops):
            weights = self.step(attend, stop, mask, walk)
        else:
            if self.training:
                stop = stop + NOISE * torch.randn_like(stop)
            aligned = alignment(stop, mask)
            weights = lookback(attend, aligned, mask)
            if walk is not None:
                count = torch.arange(1, aligned.shape[-1] + 1, device=aligned.device, dtype=aligned.dtype)
                walk.layers.append((aligned * count).sum(-1))
        mixed: Tensor = self.out((weights.to(values.dtype) @ values).transpose(1, 2).flatten(2))
        return mixed

    def step(self, attend: Tensor, stop: Tensor, visible: Tensor, stops: Stops) -> Tensor:
        """(rows, heads, 1, source) attention up to where each head stops: the first token at which it rather stops
        than goes on, not before where it stands. Of those that never do, up to the last visible one."""
        place = torch.arange(stop.shape[-1], device=stop.device)
        halts = ((stop >= 0) & visible)[:, :, 0] & (place >= stops.past[..., None])
        last = visible.sum(-1)[:, :, 0] - 1
        stops.done = halts.any(-1)
        stops.now = torch.where(stops.done, halts.long().argmax(-1), last)
        return attend.masked_fill(place > stops.now[..., None, None], -torch.inf).softmax(-1)
