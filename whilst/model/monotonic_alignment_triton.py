"""`chances.follow` on a GPU: one kernel forward, one backward; a program of them has a head's whole sentence.

Without it the GPU starts a kernel for every diagonal of the grid. All running sums are scans along the source, in
32 bits and without division: what is scaled is scaled by chances and by exponentials of something negative.
Imports Triton, which only comes with PyTorch for GPUs: import it where it is used.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from whilst.model import monotonic_alignment as chances

SIZES = ["heads", "target", "source"]  # one program for all of them: compiling takes longer than it would save
NOTHING = tl.constexpr(-1e30)  # energy of what is not visible; the difference of two is still a number


@triton.jit
def onward(scale, value, scale_next, value_next):
    """Two steps of x <- scale * x + value as one."""
    return scale * scale_next, value * scale_next + value_next


@triton.jit
def weighted(peak, total, share, peak_next, total_next, share_next):
    """Two sums with weights exp(…) as one; each is stored divided by the exponential of its peak."""
    top = tl.maximum(peak, peak_next)
    here, there = tl.exp(peak - top), tl.exp(peak_next - top)
    return top, total * here + total_next * there, share * here + share_next * there


@triton.jit
def decide(energy, place, limit):
    """Chances of stopping and of going on."""
    stop = tl.where(place < limit - 1, tl.sigmoid(energy), tl.where(place == limit - 1, 1.0, 0.0))
    return stop, tl.where(place < limit - 1, tl.sigmoid(-energy), 0.0)


@triton.jit(do_not_specialize=SIZES)
def forward_kernel(stop, attend, limits, aligned, weights, delays, heads, target, source, block: tl.constexpr):
    program = tl.program_id(0)
    place = tl.arange(0, block)
    inside = place < source
    before = tl.where(place == 0, 1.0, 0.0)  # where the head stopped for the token before
    for i in range(target):
        row = (program * target + i) * source
        limit = tl.load(limits + (program // heads) * target + i)
        energy = tl.load(stop + row + place, mask=inside, other=0.0).to(tl.float32)
        to_left = tl.load(stop + row + place - 1, mask=inside & (place > 0), other=0.0).to(tl.float32)
        p, _ = decide(energy, place, limit)
        _, from_left = decide(to_left, place - 1, limit)
        _, come_by = tl.associative_scan((tl.where(place > 0, from_left, 0.0), before), 0, onward)
        before = p * come_by
        tl.store(aligned + row + place, before, mask=inside)
        tl.store(delays + program * target + i, tl.sum(before * (place + 1).to(tl.float32), 0))
        seen = place < limit
        look = tl.load(attend + row + place, mask=inside & seen, other=NOTHING).to(tl.float32)
        one = tl.where(seen, 1.0, 0.0)
        peak, total, _ = tl.associative_scan((look, one, one), 0, weighted)
        sums = peak + tl.log(total)
        level, left, _ = tl.associative_scan((-sums, before, before), 0, weighted, reverse=True)
        weight = tl.where(seen, tl.exp(look + level) * left, 0.0)
        tl.store(weights + row + place, weight.to(weights.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def backward_kernel(
    stop, attend, limits, aligned, to_weights, to_delays, to_stop, to_attend, heads, target, source,
    block: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    place = tl.arange(0, block)
    inside = place < source
    below = tl.zeros([block], tl.float32)  # what it is worth to come by there for the token after
    for step in range(target):
        i = target - 1 - step
        row = (program * target + i) * source
        limit = tl.load(limits + (program // heads) * target + i)
        seen = place < limit
        energy = tl.load(stop + row + place, mask=inside, other=0.0).to(tl.float32)
        look = tl.load(attend + row + place, mask=inside & seen, other=NOTHING).to(tl.float32)
        chance = tl.load(aligned + row + place, mask=inside, other=0.0)
        given = tl.load(to_weights + row + place, mask=inside & seen, other=0.0).to(tl.float32)
        one = tl.where(seen, 1.0, 0.0)
        peak, total, share = tl.associative_scan((look, one, given), 0, weighted)
        mean = share / total  # of what is given, by the attention of a head that stops there
        sums = peak + tl.log(total)
        level, left, moved = tl.associative_scan((-sums, chance, chance * mean), 0, weighted, reverse=True)
        change = tl.where(seen, tl.exp(look + level) * (given * left - moved), 0.0)
        tl.store(to_attend + row + place, change.to(to_attend.dtype.element_ty), mask=inside)
        late = tl.load(to_delays + program * target + i).to(tl.float32)
        worth = tl.where(seen, mean + late * (place + 1).to(tl.float32), 0.0) + below
        p, on = decide(energy, place, limit)
        _, below = tl.associative_scan((on, p * worth), 0, onward, reverse=True)
        # Whoever is at the last token, or hides behind it, has no choice.
        moves = tl.where(place < limit - 1, chance * (worth - below), 0.0)
        tl.store(to_stop + row + place, moves.to(to_stop.dtype.element_ty), mask=inside)


class Following(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stop: Tensor, attend: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        rows, heads, target, source = stop.shape
        aligned = torch.empty_like(stop, dtype=torch.float32)
        weights, delays = torch.empty_like(attend), aligned.new_empty(rows, heads, target)
        tensors = stop, attend, limits, aligned, weights, delays
        block = triton.next_power_of_2(source)
        forward_kernel[(rows * heads,)](*tensors, heads, target, source, block=block, num_warps=1)
        ctx.save_for_backward(stop, attend, limits, aligned)
        return weights, delays

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_weights: Tensor, to_delays: Tensor) -> tuple[Tensor, Tensor, None]:
        stop, attend, limits, aligned = ctx.saved_tensors
        rows, heads, target, source = stop.shape
        to_stop, to_attend = torch.empty_like(stop), torch.empty_like(attend)
        given = to_weights.contiguous(), to_delays.contiguous()
        tensors = stop, attend, limits, aligned, *given, to_stop, to_attend
        block = triton.next_power_of_2(source)
        backward_kernel[(rows * heads,)](*tensors, heads, target, source, block=block, num_warps=1)
        return to_stop, to_attend, None


def follow(stop: Tensor, attend: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """As chances.follow, for masks that hide nothing before what they show. Attention is of the energies' type."""
    rows, _, target, source = stop.shape
    limits = visible.expand(rows, 1, target, source).sum(-1, dtype=torch.int32).contiguous()
    found: tuple[Tensor, Tensor] = Following.apply(stop.contiguous(), attend.contiguous(), limits)
    return found


def agrees(device: torch.device) -> bool:
    """Whether the kernels do on this device what they should, gradients too."""
    shape = (3, 2, 5, 11)
    random = torch.Generator().manual_seed(1)
    energies = [torch.randn(*shape, generator=random).to(device).requires_grad_() for _ in range(2)]
    visible = (torch.arange(11) < torch.tensor([11, 6, 1])[:, None])[:, None, None].expand(3, 1, 5, 11).to(device)
    factors = [torch.randn(*size, generator=random).to(device) for size in (shape, shape[:-1])]
    found = []
    for one in (follow, chances.follow):
        results = one(energies[0], energies[1], visible)
        worth = sum((result * factor).sum() for result, factor in zip(results, factors, strict=True))
        assert isinstance(worth, Tensor)
        found.append([*results, *torch.autograd.grad(worth, energies)])
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(*found, strict=True))
