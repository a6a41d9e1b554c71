"""Diagonal: read K tokens, then keep the pace of the training data, whatever the sentence says.

It is what an adaptive policy must beat: no agent, but the right slope, which wait-k (one READ a WRITE) has not.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from whilst.errors import UserError
from whilst.policy.base import Decider, Policy, View


def pace_of(manifest: dict[str, Any]) -> tuple[int, int]:
    """J and I of a dataset's whole training text, end marks counted as search counts them."""
    train = manifest["splits"]["train"]
    source, target = (train[side]["units"] + train["pairs"] for side in ("source", "target"))
    return source, target


@dataclass(frozen=True)
class Diagonal(Policy, Decider):
    """g_i = K + (i - 1) J / I, rounded down. Remembers nothing, so it decides for every batch itself."""

    k: int
    pace: tuple[int, int]  # J and I, not their quotient: whole numbers round the same on every device

    @classmethod
    def parse(cls, argument: str, pace: tuple[int, int]) -> "Diagonal":
        if not argument.isdecimal() or int(argument) < 1:
            raise UserError(f"policy diagonal-{argument}: K must be a whole number from 1, as in diagonal-3")
        return cls(int(argument), pace)

    @property
    def name(self) -> str:
        return f"diagonal-{self.k}"

    def start(self, sentences: Tensor) -> Decider:  # noqa: ARG002
        return self

    def write(self, view: View) -> Tensor:
        source, target = self.pace
        return view.read >= view.written * source // target + self.k

    def part(self, rows: Tensor) -> Decider:  # noqa: ARG002
        return self
