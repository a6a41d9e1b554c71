"""What the tests of the plain and of the steady loop share: what was written, and a policy that knows its rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.decoding.output import Output
from whilst.decoding.reference import recomputed_states
from whilst.model.transformer import Translator
from whilst.policy import Decider, Policy, View, make_policy


def written(outputs: Sequence[Output]) -> list[tuple[list[int], list[int]]]:
    """Units and reads; times differ."""
    return [(output.units, output.reads) for output in outputs]


@dataclass
class Own(Decider):
    """Wait-k with a k for each row."""

    k: Tensor

    def write(self, view: View) -> Tensor:
        return view.read >= view.written + self.k

    def subset(self, rows: Tensor) -> Decider:
        return Own(self.k[rows])

    def update(self, rows: Tensor, subset: Decider) -> None:
        assert isinstance(subset, Own)
        self.k[rows] = subset.k


class BySentence(Policy):
    """Its decider must be told which sentences it has, which of them are left, and which came into which row."""

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("by-sentence")

    def start(self, sentences: Tensor) -> Decider:
        return Own(sentences % 4 + 1)


def policy(name: str) -> Policy:
    """A policy that needs nothing but its name: `full`, `wait-3`, …"""
    return make_policy(PolicySpec.parse(name))


@torch.inference_mode()
def recomputed_logits(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> Tensor:
    """(units): the logits of the token after `target`, without caches."""
    return model.logits(recomputed_states(model, source, target, reads)[1])[0]
