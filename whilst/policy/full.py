"""Full-sentence: read everything, then write."""

from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
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
