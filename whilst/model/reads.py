"""Operations on reads g: how many source tokens are visible when each target token is written.

`reads` is an integer tensor with one entry for each target token. It is non-decreasing along a sentence and lies in
[1, J], where J counts eos. Positions and lengths are tensors that broadcast, of shape (batch, target) or packed
(1, tokens).
"""

from enum import IntEnum

import torch
from torch import Tensor


class Action(IntEnum):
    READ = 0
    WRITE = 1


def wait_k(k: int | Tensor, positions: Tensor, source_lengths: Tensor) -> Tensor:
    """g_i = min(k + i - 1, J) with i counted from 1; `positions` count from 0."""
    return torch.minimum(positions + k, source_lengths)


def draw_k(longest: Tensor, random: Tensor) -> Tensor:
    """k uniform in [1, longest], from `random` uniform in [0, 1)."""
    return (random * longest).long().clamp(max=longest - 1) + 1
