"""Monotonic multi-head attention with infinite lookback (MMA, Ma et al. 2020): heads that read at their own pace.

For every target token each head walks on along the source from where it stopped for the token before, and stops at
each source token with a chance of its own; then it attends to all up to there. Training follows all walks at once,
weighted by their chances (chances.py); live translation stops where the chance reaches a half. The tokens that a
mask leaves visible are all there are: at the last of them a head stops. Knows no policy and no loop.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.model.attention import Mask
from whilst.model.monotonic_alignment import Follow, follow

SURE = 1e4  # energy of a head that stops for sure
BIAS = -2.0  # of a fresh head's energy: it reads on at first, and learns to translate before it learns to hurry


@dataclass
class Delays:
    """Where the heads stop on average in a whole pass."""

    layers: list[Tensor] = field(default_factory=list)  # (rows, heads, target) expected reads, from 1
    noise: float = 0.0  # deviation of what is added to energies in training: only chances near 0 or 1 withstand it
    live: bool = False  # whether heads make one walk, as in live translation, in place of all at once


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


def latency(delays: Delays, source_lengths: Tensor, target_lengths: Tensor, real: Tensor, weight: float) -> Tensor:
    """`weight` times the differentiable average lagging of a batch, summed over its sentences. All (rows, target).

    The delay of a token is the mean over all heads, weighted by the softmax of their delays: late heads weigh more.
    """
    reads = torch.cat(delays.layers, 1)  # (rows, layers * heads, target)
    late = (reads.softmax(1) * reads).sum(1)
    place = torch.arange(late.shape[1], device=late.device)
    # A token cannot lag less than the one before: that is what makes this average lagging differentiable.
    lag = (late - place * source_lengths / target_lengths).cummax(1).values
    return (weight * lag * real / target_lengths).sum()


def from_soft(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a translator without monotone heads, for a model that has them: its heads attend as they did,
    and have to learn where to stop. Weights of monotone heads stay as they are."""
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


def hasten(model: nn.Module) -> None:
    """Let the heads of a model on a GPU follow their walks in kernels of their own, if these work there."""
    try:
        from whilst.model.monotonic_alignment_triton import agrees
        from whilst.model.monotonic_alignment_triton import follow as fast

        device = next(model.parameters()).device
        reason = "" if agrees(device) else "they do not agree with the plain way"
    except Exception as error:  # whatever a compiler may say: there is another way
        reason = str(error).partition("\n")[0]
    if reason:
        notes.print(f"the kernels of monotone heads are left out, which is slower: {reason}")
        return
    for module in model.modules():
        if isinstance(module, Monotone):
            module.follow = fast


class Monotone(nn.Module):
    """Cross-attention whose heads have two energies: one to stop, one to attend. Otherwise like attention.Heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.follow: Follow = follow  # or a faster one
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
            if walk is not None and walk.live:
                stop = torch.where(stop >= 0, SURE, -SURE)
            elif walk is not None and self.training:
                stop = stop + walk.noise * torch.randn_like(stop)
            weights, delays = self.follow(stop, attend, mask)
            if walk is not None:
                walk.layers.append(delays)
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
