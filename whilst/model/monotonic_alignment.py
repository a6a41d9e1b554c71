"""Chances of walks: where a head stops for each token, and what it then attends to, on average over all its walks.

For every target token a head walks on along the source from where it stopped for the token before, and stops at
each source token with a chance of its own; at the last visible one it always does. Any device; on a GPU
`chances_triton` does the same in one kernel each way. Knows neither heads nor models.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Follow = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # such as `follow`
LEAST = 1e-30  # a chance below this is none; its logarithm must exist


def last_of(visible: Tensor) -> Tensor:
    """(…, source) True at the last visible token."""
    return visible & ~F.pad(visible[..., 1:], (0, 1))


def skew(grid: Tensor) -> Tensor:
    """(…, target, source) -> (target + source - 1, …, target): the diagonals, the upper left first."""
    target, source = grid.shape[-2:]
    flat = F.pad(grid, (0, target)).flatten(-2)[..., : target * (target + source - 1)]
    return flat.reshape(*grid.shape[:-1], target + source - 1).movedim(-1, 0).contiguous()


def unskew(diagonals: Tensor, source: int) -> Tensor:
    """The way back."""
    target = diagonals.shape[-1]
    flat = F.pad(diagonals.movedim(0, -1).flatten(-2), (0, target))
    return flat.reshape(*diagonals.shape[1:], target + source)[..., :source]


class Alignment(torch.autograd.Function):
    """Energies of stopping -> chances of stopping there.

    A walk leads through the grid of (target, source) pairs: on to the next source token with the chance 1 - p of a
    pair, or down to the next target token with p. So the chance to come by is a sum over two neighbours, and those
    of one diagonal follow from those of the one before: as many steps as both lengths together. Every number is a
    chance, a sum of products of chances: nothing is divided (the usual closed form does), nothing can overflow.
    """

    @staticmethod
    def forward(ctx: Any, energy: Tensor, visible: Tensor) -> Tensor:
        stop, go_on = (skew(one) for one in chances(energy, visible))
        come_by = torch.zeros_like(stop)
        come_by[0, ..., 0] = 1
        for n in range(1, len(stop)):
            torch.mul(go_on[n - 1], come_by[n - 1], out=come_by[n])
            come_by[n, ..., 1:].addcmul_(stop[n - 1, ..., :-1], come_by[n - 1, ..., :-1])
        aligned = unskew(come_by.mul_(stop), energy.shape[-1]).contiguous()
        ctx.save_for_backward(energy, visible, aligned)
        return aligned

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, None]:
        """From the lower right corner: what it is worth to come by is p times what it is worth to stop there (its
        own gradient, and to come by below) plus 1 - p times what it is worth to go on."""
        energy, visible, aligned = ctx.saved_tensors
        stop, go_on = (skew(one) for one in chances(energy, visible))
        to_stop, worth = skew(given), torch.empty_like(stop)
        worth[-1] = to_stop[-1] * stop[-1]
        for n in range(len(stop) - 2, -1, -1):
            to_stop[n, ..., :-1].add_(worth[n + 1, ..., 1:])
            torch.mul(to_stop[n], stop[n], out=worth[n])
            worth[n].addcmul_(go_on[n], worth[n + 1])
        change = aligned * unskew(to_stop.sub_(worth), energy.shape[-1])
        # Whoever is at the last token, or hides behind it, has no choice.
        return change.masked_fill(last_of(visible) | ~visible, 0.0), None


def chances(energy: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Of stopping and of going on: both are sigmoids, so neither is a difference."""
    last = last_of(visible)
    stop = energy.sigmoid().masked_fill(last, 1.0).masked_fill(~visible, 0.0)
    return stop, (-energy).sigmoid().masked_fill(last | ~visible, 0.0)


def alignment(energy: Tensor, visible: Tensor) -> Tensor:
    """(rows, heads, target, source) energies of stopping -> the chance that a head stops there for that token.

    The energies may be bf16; from here on everything has at least 32 bits.
    """
    with torch.autocast(energy.device.type, enabled=False):
        energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
        aligned: Tensor = Alignment.apply(energy, visible.expand_as(energy))  # type: ignore[no-untyped-call]
        return aligned


def lookback(energy: Tensor, aligned: Tensor, visible: Tensor) -> Tensor:
    """(rows, heads, target, source) the expected attention: softmax over all tokens up to where a head stops.

    Token j gets exp(u_j) times the sum, over the stops k from j on, of the chance of k / (exp(u_1) + … + exp(u_k));
    the sums are running ones, of logarithms.
    """
    with torch.autocast(energy.device.type, enabled=False):
        energy = energy.to(aligned.dtype).masked_fill(~visible, -1e9)
        share = (aligned + LEAST).log() - energy.logcumsumexp(-1)
        return (energy + share.flip(-1).logcumsumexp(-1).flip(-1)).exp()


def follow(stop: Tensor, attend: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Both energies -> (rows, heads, target, source) the expected attention, (rows, heads, target) the expected
    number of tokens that a head has walked past when it stops, from 1."""
    aligned = alignment(stop, visible)
    count = torch.arange(1, aligned.shape[-1] + 1, device=aligned.device, dtype=aligned.dtype)
    return lookback(attend, aligned, visible), (aligned * count).sum(-1)
