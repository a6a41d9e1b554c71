"""Monotonic multi-head attention with infinite lookback (MMA-IL, Ma et al. 2020).

For every target token each head moves along the source from where it stopped for the token before, stops at each
source token with a probability of its own (p_choose), and attends to everything up to there. Training uses the
expectation over all stopping positions (monotonic_alignment.py); live translation stops where p_choose reaches 0.5.
At the last visible token a head always stops.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.model.attention import Mask, init_projections, split_heads
from whilst.model.monotonic_alignment import ExpectedAttention, expected_attention

HARD_ENERGY = 1e4  # whose sigmoid is 1
INITIAL_BIAS = -2.0  # of the stop energy: heads read on at first, and learn to translate before they learn to stop


@dataclass
class MonotonicPass:
    """Options of a decoder pass over whole sentences, and the expected delays that it records."""

    delays: list[Tensor] = field(default_factory=list)  # of each layer, (rows, heads, target), counted from 1
    noise: float = 0.0  # deviation of the noise on stop energies in training, which pushes p_choose to 0 or 1
    hard: bool = False  # stop where p_choose reaches 0.5, as in live translation, instead of the expectation


@dataclass
class HeadPositions:
    """Where the heads of one layer stand in a batch of live translations: (rows, heads), from 0."""

    past: Tensor  # where they stopped for the last token written
    now: Tensor  # where they stop for the next one, or the last token read
    done: Tensor  # whether they stop there by themselves

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


def weights_from_soft_attention(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a translator with ordinary attention, for a model with monotonic heads.

    The heads attend as before, and the weights of their stop energies are the fresh ones of the model. Weights of
    monotonic heads are returned as they are.
    """
    made = dict(tensors)
    for name, own in model.state_dict().items():
        given = tensors.get(name, own)
        if ".cross.query." in name and len(own) == 2 * len(given):
            made[name] = torch.cat([given, own.chunk(2)[1]])
        elif ".cross.key_value." in name and 2 * len(own) == 3 * len(given):
            key, value = given.chunk(2)
            made[name] = torch.cat([key, own.chunk(3)[1], value])
        elif name.endswith(".cross.bias"):
            made[name] = given
    return made


def use_triton_kernels(model: nn.Module) -> None:
    """Compute the expected attention of a model on a GPU with Triton kernels, if they work there."""
    try:
        from whilst.model import monotonic_alignment_triton as kernels

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
    """Cross-attention like `attention.Heads`, whose heads have two energies: to stop and to attend."""

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
        """Both keys of a head side by side, so that a cache holds them as one: (…, 2 * size), (…, size)."""
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
        how: MonotonicPass | HeadPositions | None,
    ) -> Tensor:
        """With `HeadPositions` one step of live translation (one query a row), else the expectation."""
        if isinstance(mask, BlockMask):
            # The grid of a packed row would be all of its target tokens by all of its source tokens.
            raise UserError('train.layout: model.cross = "monotone" needs padded batches; write "auto"')
        keys, values = keys_values
        attend, stop = self.energies(states, keys)
        if isinstance(how, HeadPositions):
            weights = self.step(attend, stop, mask, how)
        else:
            if how is not None and how.hard:
                stop = torch.where(stop >= 0, HARD_ENERGY, -HARD_ENERGY)
            elif how is not None and self.training:
                stop = stop + how.noise * torch.randn_like(stop)
            weights, delays = self.expected_attention(stop, attend, mask)
            if how is not None:
                how.delays.append(delays)
        mixed: Tensor = self.out((weights.to(values.dtype) @ values).transpose(1, 2).flatten(2))
        return mixed

    def step(self, attend: Tensor, stop: Tensor, visible: Tensor, heads: HeadPositions) -> Tensor:
        """(rows, heads, 1, source) attention up to where each head stops, and update `heads`.

        That is the first token from its last position on with p_choose >= 0.5, else the last visible one.
        """
        position = torch.arange(stop.shape[-1], device=stop.device)
        stops = ((stop >= 0) & visible)[:, :, 0] & (position >= heads.past[..., None])
        last = visible.sum(-1)[:, :, 0] - 1
        heads.done = stops.any(-1)
        heads.now = torch.where(heads.done, stops.long().argmax(-1), last)
        return attend.masked_fill(position > heads.now[..., None, None], -torch.inf).softmax(-1)
