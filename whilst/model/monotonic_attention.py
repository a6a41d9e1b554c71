"""Monotonic multi-head attention with infinite lookback (MMA-IL, Ma et al. 2020).

For every target token, each head moves along the source from where it stopped for the previous token. It stops at
each source token with a probability (p_choose), always at the last visible one, and attends to all tokens up to
there. Training uses the expectation over all stopping positions; live translation stops where p_choose reaches 0.5.
On a GPU monotonic_triton.py computes the expectation with one kernel forward and one backward.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from whilst.core.console import notes
from whilst.model.attention import Mask, init_projections, split_heads

ExpectedAttention = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # signature of `expected_attention`
SMALLEST = 1e-30  # added to probabilities, so that zero has a logarithm
HARD_ENERGY = 1e4  # an energy whose sigmoid is 1
INITIAL_BIAS = -2.0  # of the stop energy: heads read on at first, and learn to translate before they learn to stop


@dataclass
class MonotonicPass:
    """Options of a decoder pass over whole sentences, and the expected delays that it records."""

    delays: list[Tensor] = field(default_factory=list)  # of each layer, (rows, heads, target), counted from 1
    noise: float = 0.0  # standard deviation of noise on stop energies in training, which pushes p_choose to 0 or 1
    hard: bool = False  # stop where p_choose reaches 0.5, as in live translation, instead of the expectation


@dataclass
class HeadPositions:
    """Source positions (from 0) of the heads of one layer in a batch of live translations: (rows, heads) each."""

    past: Tensor  # where the heads stopped for the last token written
    now: Tensor  # where they stop for the next token, at the latest at the last source token read
    done: Tensor  # whether they stop there by themselves, because p_choose reaches 0.5

    @classmethod
    def initial(cls, rows: int, heads: int, device: torch.device) -> "HeadPositions":
        past = torch.zeros(rows, heads, dtype=torch.long, device=device)
        return cls(past, past.clone(), past.bool())

    def commit(self, rows: Tensor) -> None:
        self.past = torch.where(rows[:, None], self.now, self.past)

    def part(self, rows: Tensor) -> "HeadPositions":
        return HeadPositions(self.past[rows], self.now[rows], self.done[rows])

    def put(self, rows: Tensor, part: "HeadPositions") -> None:
        self.past[rows], self.now[rows], self.done[rows] = part.past, part.now, part.done


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
    """Stop energies -> the probability that a head stops at each pair of target and source token.

    A head follows a path through the grid of (target, source) pairs: right to the next source token with
    probability 1 - p, or down to the next target token with probability p. So the probability of visiting a pair
    follows from its left and upper neighbours, and each diagonal from the previous one, in I + J steps. All results
    are sums of products of probabilities: unlike the usual closed form, they need no division and cannot overflow.
    """

    @staticmethod
    def forward(ctx: Any, energy: Tensor, visible: Tensor) -> Tensor:
        stop, move_on = (skew(probability) for probability in p_choose(energy, visible))
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
        """Compute the gradients of stopping at each pair and of visiting it, from the lower right corner.

        grad_visit = p * grad_stop + (1 - p) * (grad_visit of the right neighbour), and
        grad_stop = grad + (grad_visit of the lower neighbour).
        """
        energy, visible, aligned = ctx.saved_tensors
        stop, move_on = (skew(probability) for probability in p_choose(energy, visible))
        grad_stop, grad_visit = skew(grad), torch.empty_like(stop)
        grad_visit[-1] = grad_stop[-1] * stop[-1]
        for n in range(len(stop) - 2, -1, -1):
            grad_stop[n, ..., :-1].add_(grad_visit[n + 1, ..., 1:])
            torch.mul(grad_stop[n], stop[n], out=grad_visit[n])
            grad_visit[n].addcmul_(move_on[n], grad_visit[n + 1])
        change = aligned * unskew(grad_stop.sub_(grad_visit), energy.shape[-1])
        # At and after the last visible token, p does not depend on the energy.
        return change.masked_fill(last_visible(visible) | ~visible, 0.0), None


def p_choose(energy: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """The probabilities to stop and to move on, both as sigmoids, so that neither is a rounded difference."""
    last = last_visible(visible)
    stop = energy.sigmoid().masked_fill(last, 1.0).masked_fill(~visible, 0.0)
    return stop, (-energy).sigmoid().masked_fill(last | ~visible, 0.0)


def expected_alignment(energy: Tensor, visible: Tensor) -> Tensor:
    """(rows, heads, target, source) stop energies -> the probability that a head stops at each pair of tokens.

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
    """Both energies -> expected attention (rows, heads, target, source), and expected delays (rows, heads, target).

    A delay is the number of source tokens up to where a head stops, from 1.
    """
    aligned = expected_alignment(stop, visible)
    count = torch.arange(1, aligned.shape[-1] + 1, device=aligned.device, dtype=aligned.dtype)
    return infinite_lookback(attend, aligned, visible), (aligned * count).sum(-1)


def weights_from_soft_attention(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert the weights of a translator with ordinary attention for `model`, which has monotonic heads.

    The heads attend as before. The weights of their stop energies are those of `model`, newly initialised. Weights
    of monotonic heads are returned as they are.
    """
    converted = dict(tensors)
    for name, initial in model.state_dict().items():
        given = tensors.get(name, initial)
        if ".cross.query." in name and len(initial) == 2 * len(given):
            converted[name] = torch.cat([given, initial.chunk(2)[1]])
        elif ".cross.key_value." in name and 2 * len(initial) == 3 * len(given):
            key, value = given.chunk(2)
            converted[name] = torch.cat([key, initial.chunk(3)[1], value])
        elif name.endswith(".cross.bias"):
            converted[name] = given
    return converted


def use_triton_kernels(model: nn.Module) -> None:
    """Compute the expected attention of a model on a GPU with Triton kernels, if they work there."""
    try:
        from whilst.model import monotonic_triton as kernels

        reason = "" if kernels.agree(next(model.parameters()).device) else "their results differ from PyTorch's"
    except Exception as error:  # a compiler may raise anything, and the kernels are optional
        reason = str(error).partition("\n")[0]
    if reason:
        notes.print(f"the kernels of monotonic heads are not used, which is slower: {reason}")
        return
    for module in model.modules():
        if isinstance(module, MonotonicHeads):
            module.expected_attention = kernels.expected_attention


class MonotonicHeads(nn.Module):
    """Cross-attention like `attention.Heads`, but each head has two energies: to stop and to attend."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.expected_attention: ExpectedAttention = expected_attention
        self.query = nn.Linear(width, 2 * width)  # to attend, to stop
        self.key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.full((heads,), INITIAL_BIAS))
        init_projections(width, self.query, self.key_value, self.out)

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """(…, 2 * size) keys and (…, size) values. The two keys of a head are concatenated, for a single cache."""
        parts = self.key_value(states).chunk(3, dim=-1)
        attend, stop, value = (split_heads(part, self.heads) for part in parts)
        return torch.cat([attend, stop], -1), value

    def energies(self, states: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, heads, queries, keys) energies to attend and to stop."""
        queries = (split_heads(part, self.heads) for part in self.query(states).chunk(2, dim=-1))
        attend, stop = (q @ k.transpose(2, 3) for q, k in zip(queries, keys.chunk(2, -1), strict=True))
        scale = (keys.shape[-1] // 2) ** -0.5
        return attend * scale, stop * scale + self.bias[:, None, None]

    def forward(
        self,
        states: Tensor,
        keys_values: tuple[Tensor, Tensor],
        mask: Mask,
        monotonic: MonotonicPass | HeadPositions | None,
    ) -> Tensor:
        """With `HeadPositions`, one step of live translation (one query per row); else the expectation."""
        # Never packed: the grid of a packed row would be all of its target tokens by all of its source tokens.
        assert isinstance(mask, Tensor)
        keys, values = keys_values
        attend, stop = self.energies(states, keys)
        if isinstance(monotonic, HeadPositions):
            weights = self.step(attend, stop, mask, monotonic)
        else:
            if monotonic is not None and monotonic.hard:
                stop = torch.where(stop >= 0, HARD_ENERGY, -HARD_ENERGY)
            elif monotonic is not None and self.training:
                stop = stop + monotonic.noise * torch.randn_like(stop)
            weights, delays = self.expected_attention(stop, attend, mask)
            if monotonic is not None:
                monotonic.delays.append(delays)
        mixed: Tensor = self.out((weights.to(values.dtype) @ values).transpose(1, 2).flatten(2))
        return mixed

    def step(self, attend: Tensor, stop: Tensor, visible: Tensor, heads: HeadPositions) -> Tensor:
        """Update `heads`, and return the attention (rows, heads, 1, source) up to where each head stops.

        A head stops at the first token from its last position on with p_choose >= 0.5, or else at the last visible
        token.
        """
        position = torch.arange(stop.shape[-1], device=stop.device)
        stops = ((stop >= 0) & visible)[:, :, 0] & (position >= heads.past[..., None])
        last = visible.sum(-1)[:, :, 0] - 1
        heads.done = stops.any(-1)
        heads.now = torch.where(heads.done, stops.long().argmax(-1), last)
        return attend.masked_fill(position > heads.now[..., None, None], -torch.inf).softmax(-1)
