"""Policies that only count: full, wait-K, and diagonal-K with the slope of the training data.

The diagonal is what an adaptive policy must beat: no agent, but the right slope, which wait-k lacks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec, fixed_reads
from whilst.policy.base import Futures, StatelessPolicy, View


@dataclass(frozen=True)
class Full(StatelessPolicy):
    """Always READ: decoding WRITEs once the source is finished."""

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("full")

    def write(self, view: View) -> Tensor:
        return torch.zeros_like(view.read, dtype=torch.bool)

    def reads(self, futures: Futures) -> Tensor:
        return torch.full_like(futures.now.read, 1 << 30)  # the whole source in one step


@dataclass(frozen=True)
class WaitK(StatelessPolicy):
    """g_i = k + i - 1."""

    k: int

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("wait", str(self.k))

    def write(self, view: View) -> Tensor:
        return view.read >= fixed_reads(view.written, self.k)


@dataclass(frozen=True)
class Diagonal(StatelessPolicy):
    """g_i = k + (i - 1) J / I, rounded down."""

    k: int
    length_ratio: tuple[int, int]  # J and I, not their quotient: integers round the same on every device

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("diagonal", str(self.k))

    def write(self, view: View) -> Tensor:
        return view.read >= fixed_reads(view.written, self.k, self.length_ratio)
