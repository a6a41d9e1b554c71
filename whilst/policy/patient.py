"""A policy that does not end a translation early: until the source is finished, WRITE of an end mark becomes READ.

A model that has read too little may write the end mark too early; the rest of the source would not be translated.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.data.vocabulary import EOS
from whilst.model.transformer import most_likely
from whilst.policy.base import Decider, Futures, Policy, View


@dataclass(frozen=True)
class Patient(Policy):
    policy: Policy
    logits: Callable[[Tensor], Tensor]  # (…, width) decoder states -> (…, units)
    needs_lookahead = True

    @property
    def spec(self) -> PolicySpec:
        return self.policy.spec

    @property
    def on_host(self) -> bool:
        return self.policy.on_host

    @property
    def batch_key(self) -> Hashable:
        return Patient, self.policy.batch_key

    def start(self, sentences: Tensor) -> Decider:
        return PatientDecider(self, self.policy.start(sentences))

    def ends(self, lookahead: Tensor, banned: Tensor | None = None) -> Tensor:
        """(…) whether these (…, width) decoder states would write an end mark."""
        return most_likely(self.logits(lookahead), banned) == EOS


class PatientDecider(Decider):
    def __init__(self, policy: Patient, inner: Decider) -> None:
        self.policy, self.inner = policy, inner

    def write(self, view: View) -> Tensor:
        assert view.lookahead is not None
        write = self.inner.write(view)
        rows = write.nonzero()[:, 0]  # other rows need no logits
        ends = torch.zeros_like(write)
        ends[rows] = self.policy.ends(view.lookahead[rows], None if view.banned is None else view.banned[rows])
        return write & ~ends

    def write_each(self, futures: Futures) -> Tensor:
        """Computes logits for all rows, since a CUDA graph cannot branch on decisions."""
        assert futures.lookahead is not None
        return self.inner.write_each(futures) & ~self.policy.ends(futures.lookahead)

    def commit(self, reached: Tensor) -> None:
        self.inner.commit(reached)

    def tensors(self) -> list[Tensor]:
        return self.inner.tensors()

    def set_tensors(self, tensors: list[Tensor]) -> None:
        self.inner.set_tensors(tensors)

    def subset(self, rows: Tensor) -> "PatientDecider":
        return PatientDecider(self.policy, self.inner.subset(rows))

    def update(self, rows: Tensor, subset: Decider) -> None:
        assert isinstance(subset, PatientDecider)
        self.inner.update(rows, subset.inner)
