"""Diagonal: read K tokens, then keep the pace of the training data, whatever the sentence says.

It is what an adaptive policy must beat: no agent, but the right slope, which wait-k (one READ a WRITE) has not.
"""

from dataclasses import dataclass

from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.policy.base import Decider, Policy, View


@dataclass(frozen=True)
class Diagonal(Policy, Decider):
    """g_i = K + (i - 1) J / I, rounded down. Remembers nothing, so it decides for every batch itself."""

    k: int
    pace: tuple[int, int]  # J and I, not their quotient: whole numbers round the same on every device

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("diagonal", str(self.k))

    def start(self, sentences: Tensor) -> Decider:  # noqa: ARG002
        return self

    def write(self, view: View) -> Tensor:
        source, target = self.pace
        return view.read >= view.written * source // target + self.k

    def part(self, rows: Tensor) -> Decider:  # noqa: ARG002
        return self
