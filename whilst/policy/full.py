"""Full-sentence: read everything, then write."""

from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.policy.base import Decider, Policy, Prospects, View


@dataclass(frozen=True)
class Full(Policy, Decider):
    """Never asks to WRITE; the loop makes it, once the source is finished."""

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("full")

    def start(self, sentences: Tensor) -> Decider:  # noqa: ARG002
        return self

    def write(self, view: View) -> Tensor:
        return torch.zeros_like(view.read, dtype=torch.bool)

    def reads(self, prospects: Prospects) -> Tensor:
        return torch.full_like(prospects.now.read, 1 << 30)  # whatever there is, in one step

    def part(self, rows: Tensor) -> Decider:  # noqa: ARG002
        return self
