"""Another policy, but for the end mark: before the whole source has been read, WRITE of it becomes READ.

A model that has seen too little may say that all has been said. What comes after that would never be translated.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.data.vocabulary import EOS
from whilst.model.transformer import likeliest
from whilst.policy.base import Decider, Policy, Prospects, View


@dataclass(frozen=True)
class Patient(Policy):
    policy: Policy
    logits: Callable[[Tensor], Tensor]  # of decoder states

    @property
    def spec(self) -> PolicySpec:
        return self.policy.spec

    @property
    def looks_ahead(self) -> bool:
        return True

    @property
    def knows_sentences(self) -> bool:
        return self.policy.knows_sentences

    @property
    def kin(self) -> Hashable:
        return Patient, self.policy.kin

    def start(self, sentences: Tensor) -> Decider:
        return Waiting(self, self.policy.start(sentences))

    def ends(self, ahead: Tensor) -> Tensor:
        """(…) whether an end mark would be written from these (…, width) states."""
        return likeliest(self.logits(ahead)) == EOS


class Waiting(Decider):
    def __init__(self, policy: Patient, inner: Decider) -> None:
        self.policy, self.inner = policy, inner

    def write(self, view: View) -> Tensor:
        assert view.ahead is not None
        wanted = self.inner.write(view)
        rows = wanted.nonzero()[:, 0]  # the others need no logits
        early = torch.zeros_like(wanted)
        early[rows] = self.policy.ends(view.ahead[rows])
        return wanted & ~early

    def wants(self, prospects: Prospects) -> Tensor:
        """All at once: a recorded step cannot ask which rows need it."""
        assert prospects.ahead is not None
        return self.inner.wants(prospects) & ~self.policy.ends(prospects.ahead)

    def settle(self, asked: Tensor) -> None:
        self.inner.settle(asked)

    def remembered(self) -> list[Tensor]:
        return self.inner.remembered()

    def remember(self, tensors: list[Tensor]) -> None:
        self.inner.remember(tensors)

    def part(self, rows: Tensor) -> Decider:
        return Waiting(self.policy, self.inner.part(rows))

    def put(self, rows: Tensor, part: Decider) -> None:
        assert isinstance(part, Waiting)
        self.inner.put(rows, part.inner)
