"""Wait-k: read k tokens, then write and read in turn."""

from dataclasses import dataclass

from torch import Tensor

from whilst.model.names import tokens_of
from whilst.policy.base import Decider, Policy, View


@dataclass(frozen=True)
class WaitK(Policy, Decider):
    """Remembers nothing, so it decides for every batch itself."""

    k: int

    @classmethod
    def parse(cls, argument: str) -> "WaitK":
        return cls(tokens_of("wait", argument))

    @property
    def name(self) -> str:
        return f"wait-{self.k}"

    def start(self, sentences: Tensor) -> Decider:  # noqa: ARG002
        return self

    def write(self, view: View) -> Tensor:
        return view.read >= view.written + self.k

    def part(self, rows: Tensor) -> Decider:  # noqa: ARG002
        return self
