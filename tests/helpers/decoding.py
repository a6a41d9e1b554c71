"""What the tests of the plain and of the steady loop share: what was written, and a policy that knows its rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.decoding.loop import Output
from whilst.policy import Decider, Policy, View


def written(outputs: Sequence[Output]) -> list[tuple[list[int], list[int]]]:
    """Units and reads; times differ."""
    return [(output.units, output.reads) for output in outputs]


@dataclass
class Own(Decider):
    """Wait-k with a k for each row."""

    k: Tensor

    def write(self, view: View) -> Tensor:
        return view.read >= view.written + self.k

    def part(self, rows: Tensor) -> Decider:
        return Own(self.k[rows])

    def put(self, rows: Tensor, part: Decider) -> None:
        assert isinstance(part, Own)
        self.k[rows] = part.k


class BySentence(Policy):
    """Its decider must be told which sentences it has, which of them are left, and which came into which row."""

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("by-sentence")

    def start(self, sentences: Tensor) -> Decider:
        return Own(sentences % 4 + 1)
