"""Wait-k: read k tokens, then write and read in turn."""

from dataclasses import dataclass

from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.policy.base import Decider, Policy, View


@dataclass(frozen=True)
class WaitK(Policy, Decider):
    """Remembers nothing, so it decides for every batch itself."""

    k: int

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("wait", str(self.k))

    def start(self, sentences: Tensor) -> Decider:  # noqa: ARG002
        return self

    def write(self, view: View) -> Tensor:
        return view.read >= view.written + self.k

    def part(self, rows: Tensor) -> Decider:  # noqa: ARG002
        return self
