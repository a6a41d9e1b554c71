"""Expected alignment and expected attention of monotonic heads (MMA), over all stopping positions.

For every target token a head moves along the source from where it stopped for the token before, and stops at each
source token with the probability p_choose; at the last visible token it always stops. Runs on any device; on a GPU
monotonic_alignment_triton.py does the same with one kernel forward and one backward.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

ExpectedAttention = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # signature of `expected_attention`
SMALLEST = 1e-30  # probabilities below this count as it, so that they have a logarithm


def last_visible(visible: Tensor) -> Tensor:
    """(…, source) True at the last visible token."""
    return visible & ~F.pad(visible[..., 1:], (0, 1))


def skew(grid: Tensor) -> Tensor:
    """(…, target, source) -> (target + source - 1, …, target): the diagonals, the upper left first."""
    target, source = grid.shape[-2:]
    flat = F.pad(grid, (0, target)).flatten(-2)[..., : target * (target + source - 1)]
    return flat.reshape(*grid.shape[:-1], target + source - 1).movedim(-1, 0).contiguous()


def unskew(diagonals: Tensor, source: int) -> Tensor:
    """The inverse of `skew`."""
    target = diagonals.shape[-1]
    flat = F.pad(diagonals.movedim(0, -1).flatten(-2), (0, target))
    return flat.reshape(*diagonals.shape[1:], target + source)[..., :source]


class ExpectedAlignment(torch.autograd.Function):
    """Stop energies -> the probability that a head stops there.

    A head's way is a path through the grid of (target, source) pairs: right to the next source token with 1 - p, or
    down to the next target token with p. So the probability to visit a pair follows from its left and upper
    neighbour, and a diagonal from the one before, in I + J steps. Everything is a sum of products of probabilities:
    unlike the usual closed form it divides by nothing and cannot overflow.
    """

    @staticmethod
    def forward(ctx: Any, energy: Tensor, visible: Tensor) -> Tensor:
        stop, move_on = (skew(one) for one in p_choose(energy, visible))
        visit = torch.zeros_like(stop)
        visit[0, ..., 0] = 1
        for n in range(1, len(stop)):
            torch.mul(move_on[n - 1], visit[n - 1], out=visit[n])
            visit[n, ..., 1:].addcmul_(stop[n - 1, ..., :-1], visit[n - 1, ..., :-1])
        aligned = unskew(visit.mul_(stop), energy.shape[-1]).contiguous()
        ctx.save_for_backward(energy, visible, aligned)
        return aligned

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """From the lower right corner, with the gradients of stopping at a pair and of visiting it.

        visit = p * stop + (1 - p) * (visit of the right neighbour), and stop = grad + (visit of the lower
        neighbour).
        """
        energy, visible, aligned = ctx.saved_tensors
        stop, move_on = (skew(one) for one in p_choose(energy, visible))
        grad_stop, grad_visit = skew(grad), torch.empty_like(stop)
        grad_visit[-1] = grad_stop[-1] * stop[-1]
        for n in range(len(stop) - 2, -1, -1):
            grad_stop[n, ..., :-1].add_(grad_visit[n + 1, ..., 1:])
            torch.mul(grad_stop[n], stop[n], out=grad_visit[n])
            grad_visit[n].addcmul_(move_on[n], grad_visit[n + 1])
        change = aligned * unskew(grad_stop.sub_(grad_visit), energy.shape[-1])
        # At the last visible token, and behind it, p does not depend on the energy.
        return change.masked_fill(last_visible(visible) | ~visible, 0.0), None


def p_choose(energy: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """The probabilities to stop and to move on, both as sigmoids, so that neither is a rounded difference."""
    last = last_visible(visible)
    stop = energy.sigmoid().masked_fill(last, 1.0).masked_fill(~visible, 0.0)
    return stop, (-energy).sigmoid().masked_fill(last | ~visible, 0.0)


def expected_alignment(energy: Tensor, visible: Tensor) -> Tensor:
    """(rows, heads, target, source) stop energies -> the probability that a head stops there for that token.

    The energies may be bf16; the computation has at least 32 bits.
    """
    with torch.autocast(energy.device.type, enabled=False):
        energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
        aligned: Tensor = ExpectedAlignment.apply(energy, visible.expand_as(energy))  # type: ignore[no-untyped-call]
        return aligned


def infinite_lookback(energy: Tensor, aligned: Tensor, visible: Tensor) -> Tensor:
    """(rows, heads, target, source) the expected attention: softmax over all tokens up to where a head stops.

    Token j has the weight exp(u_j) times the sum over k >= j of aligned_k / (exp(u_1) + … + exp(u_k)); both sums
    are cumulative, in logarithms.
    """
    with torch.autocast(energy.device.type, enabled=False):
        energy = energy.to(aligned.dtype).masked_fill(~visible, -1e9)
        share = (aligned + SMALLEST).log() - energy.logcumsumexp(-1)
        return (energy + share.flip(-1).logcumsumexp(-1).flip(-1)).exp()


def expected_attention(stop: Tensor, attend: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Both energies -> (rows, heads, target, source) expected attention, (rows, heads, target) expected delays.

    A delay is the number of source tokens up to where a head stops, from 1.
    """
    aligned = expected_alignment(stop, visible)
    count = torch.arange(1, aligned.shape[-1] + 1, device=aligned.device, dtype=aligned.dtype)
    return infinite_lookback(attend, aligned, visible), (aligned * count).sum(-1)
