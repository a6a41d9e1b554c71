"""`monotonic_attention.expected_attention` as Triton kernels: one forward, one backward, a program for each head.

PyTorch alone would launch kernels for every diagonal of the grid. All cumulative sums are scans along the source in
32 bits, without division: scales are probabilities and exponentials of negative numbers. Triton only comes with
PyTorch for GPUs, so import this module inside the function that uses it.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from whilst.model import monotonic_attention

SIZES = ["heads", "target", "source"]  # not specialised: compiling for each would take longer than it saves
INVISIBLE = tl.constexpr(-1e30)  # energy of hidden tokens; finite, so that no difference is NaN


@triton.jit
def affine(scale, value, scale_next, value_next):
    """Composition of two steps x <- scale * x + value."""
    return scale * scale_next, value * scale_next + value_next


@triton.jit
def weighted(peak, total, share, peak_next, total_next, share_next):
    """Add two weighted sums, twice: total and share. Both are stored divided by their largest weight, exp(peak)."""
    top = tl.maximum(peak, peak_next)
    here, there = tl.exp(peak - top), tl.exp(peak_next - top)
    return top, total * here + total_next * there, share * here + share_next * there


@triton.jit
def p_choose(energy, column, limit):
    """The probabilities to stop and to move on."""
    stop = tl.where(column < limit - 1, tl.sigmoid(energy), tl.where(column == limit - 1, 1.0, 0.0))
    return stop, tl.where(column < limit - 1, tl.sigmoid(-energy), 0.0)


@triton.jit(do_not_specialize=SIZES)
def forward_kernel(stop, attend, limits, aligned, weights, delays, heads, target, source, block: tl.constexpr):
    program = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < source
    before = tl.where(column == 0, 1.0, 0.0)  # probability that the head stopped there for the last target token
    for i in range(target):
        row = (program * target + i) * source
        limit = tl.load(limits + (program // heads) * target + i)
        energy = tl.load(stop + row + column, mask=inside, other=0.0).to(tl.float32)
        left_energy = tl.load(stop + row + column - 1, mask=inside & (column > 0), other=0.0).to(tl.float32)
        p, _ = p_choose(energy, column, limit)
        _, left_move_on = p_choose(left_energy, column - 1, limit)
        _, visit = tl.associative_scan((tl.where(column > 0, left_move_on, 0.0), before), 0, affine)
        before = p * visit
        tl.store(aligned + row + column, before, mask=inside)
        tl.store(delays + program * target + i, tl.sum(before * (column + 1).to(tl.float32), 0))
        seen = column < limit
        attend_energy = tl.load(attend + row + column, mask=inside & seen, other=INVISIBLE).to(tl.float32)
        ones = tl.where(seen, 1.0, 0.0)
        peak, total, _ = tl.associative_scan((attend_energy, ones, ones), 0, weighted)
        sums = peak + tl.log(total)
        level, left, _ = tl.associative_scan((-sums, before, before), 0, weighted, reverse=True)
        weight = tl.where(seen, tl.exp(attend_energy + level) * left, 0.0)
        tl.store(weights + row + column, weight.to(weights.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def backward_kernel(
    stop, attend, limits, aligned, grad_weights, grad_delays, grad_stop, grad_attend, heads, target, source,
    block: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < source
    grad_below = tl.zeros([block], tl.float32)  # gradient of visiting the pair below, with the next target token
    for step in range(target):
        i = target - 1 - step
        row = (program * target + i) * source
        limit = tl.load(limits + (program // heads) * target + i)
        seen = column < limit
        energy = tl.load(stop + row + column, mask=inside, other=0.0).to(tl.float32)
        attend_energy = tl.load(attend + row + column, mask=inside & seen, other=INVISIBLE).to(tl.float32)
        stopped = tl.load(aligned + row + column, mask=inside, other=0.0)
        grad_weight = tl.load(grad_weights + row + column, mask=inside & seen, other=0.0).to(tl.float32)
        ones = tl.where(seen, 1.0, 0.0)
        peak, total, share = tl.associative_scan((attend_energy, ones, grad_weight), 0, weighted)
        mean = share / total  # gradient, averaged with the attention of a head that stops there
        sums = peak + tl.log(total)
        level, left, moved = tl.associative_scan((-sums, stopped, stopped * mean), 0, weighted, reverse=True)
        change = tl.where(seen, tl.exp(attend_energy + level) * (grad_weight * left - moved), 0.0)
        tl.store(grad_attend + row + column, change.to(grad_attend.dtype.element_ty), mask=inside)
        grad_delay = tl.load(grad_delays + program * target + i).to(tl.float32)
        grad = tl.where(seen, mean + grad_delay * (column + 1).to(tl.float32), 0.0) + grad_below
        p, move_on = p_choose(energy, column, limit)
        _, grad_below = tl.associative_scan((move_on, p * grad), 0, affine, reverse=True)
        # At and after the last visible token, p does not depend on the energy.
        change_stop = tl.where(column < limit - 1, stopped * (grad - grad_below), 0.0)
        tl.store(grad_stop + row + column, change_stop.to(grad_stop.dtype.element_ty), mask=inside)


class Kernels(torch.autograd.Function):
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
    def backward(ctx: Any, grad_weights: Tensor, grad_delays: Tensor) -> tuple[Tensor, Tensor, None]:
        stop, attend, limits, aligned = ctx.saved_tensors
        rows, heads, target, source = stop.shape
        grad_stop, grad_attend = torch.empty_like(stop), torch.empty_like(attend)
        grads = grad_weights.contiguous(), grad_delays.contiguous()
        tensors = stop, attend, limits, aligned, *grads, grad_stop, grad_attend
        block = triton.next_power_of_2(source)
        backward_kernel[(rows * heads,)](*tensors, heads, target, source, block=block, num_warps=1)
        return grad_stop, grad_attend, None


def expected_attention(stop: Tensor, attend: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Expected attention (in the dtype of the energies) and delays; masks must show the first tokens of a row."""
    rows, _, target, source = stop.shape
    limits = visible.expand(rows, 1, target, source).sum(-1, dtype=torch.int32).contiguous()
    expected: tuple[Tensor, Tensor] = Kernels.apply(stop.contiguous(), attend.contiguous(), limits)
    return expected


def agree(device: torch.device) -> bool:
    """Whether results and gradients of the kernels on this device match those of PyTorch."""
    shape = (3, 2, 5, 11)
    random = torch.Generator().manual_seed(1)
    energies = [torch.randn(*shape, generator=random).to(device).requires_grad_() for _ in range(2)]
    visible = (torch.arange(11) < torch.tensor([11, 6, 1])[:, None])[:, None, None].expand(3, 1, 5, 11).to(device)
    factors = [torch.randn(*size, generator=random).to(device) for size in (shape, shape[:-1])]
    compared = []
    for implementation in (expected_attention, monotonic_attention.expected_attention):
        results = implementation(energies[0], energies[1], visible)
        loss = sum((result * factor).sum() for result, factor in zip(results, factors, strict=True))
        assert isinstance(loss, Tensor)
        compared.append([*results, *torch.autograd.grad(loss, energies)])
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(*compared, strict=True))
