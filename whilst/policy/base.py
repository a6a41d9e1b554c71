"""The interface of policies: READ or WRITE for each row of a batch.

A Policy is shared and immutable. What it remembers of a batch is in the Decider that it starts.
"""

import abc
import copy
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec


@dataclass(frozen=True)
class View:
    """The state of each translation of a batch.

    A policy must not use source tokens beyond `read`, except the next one to see whether the last word is whole.
    """

    read: Tensor  # (rows) source tokens read
    written: Tensor  # (rows) target tokens written
    source: Tensor  # (rows, source) tokens
    last: Tensor  # (rows) last token written, bos before the first
    encoded: Tensor  # (rows, source, width) encoder states
    decoded: Tensor  # (rows, width) decoder state that wrote the last token, zeros before the first
    lookahead: Tensor | None = None  # (rows, width) decoder state that would write the next token now
    stopped: Tensor | None = None  # (rows) whether all monotone heads have stopped for the next token
    banned: Tensor | None = None  # (rows, any number) tokens that must not be written next, filled up with pad
    rows: Tensor | None = None  # (rows) indices into `source` and `encoded`, if not all rows


@dataclass(frozen=True)
class Futures:
    """The same rows after 0, 1, … more READs, for recorded steps that decide about several READs at once."""

    now: View
    read: Tensor  # (rows, futures) source tokens read then, at most the source's length
    lookahead: Tensor | None = None  # (rows, futures, width) decoder states that would write the next token then

    def after(self, count: int) -> View:
        lookahead = None if self.lookahead is None else self.lookahead[:, count]
        return replace(self.now, read=self.read[:, count], lookahead=lookahead)


class Decider(abc.ABC):
    """Decides for the rows of one batch: either with `write` after every action, or with `reads`; never both."""

    @abc.abstractmethod
    def write(self, view: View) -> Tensor:
        """(rows) True for WRITE, False for READ. Ignored in rows whose source is finished: they WRITE."""

    def write_each(self, futures: Futures) -> Tensor:
        """(rows, futures) the decision in each future; `commit` tells which one was reached.

        This default is for deciders without state.
        """
        return torch.stack([self.write(futures.after(n)) for n in range(futures.read.shape[1])], 1)

    def commit(self, reached: Tensor) -> None:  # noqa: B027  (no state)
        """Update the state to the future (rows) that was reached after `write_each`."""

    def reads(self, futures: Futures) -> Tensor:
        """(rows) READs before the next WRITE; the number of futures if no future WRITEs.

        May be more for policies without lookahead. Unused in rows whose source ends before.
        """
        first = (~self.write_each(futures)).long().cumprod(1).sum(1)
        self.commit(first.clamp(max=futures.read.shape[1] - 1))
        return first

    def tensors(self) -> list[Tensor]:
        """The state: (rows, …) each. CUDA graphs save and restore it, `subset` and `update` select its rows."""
        return []

    def set_tensors(self, tensors: list[Tensor]) -> None:  # noqa: B027  (no state)
        """The inverse of `tensors`."""

    def subset(self, rows: Tensor) -> Self:
        """A decider for these rows, in this order, with a copy of their state."""
        part = copy.copy(self)
        part.set_tensors([tensor[rows] for tensor in self.tensors()])
        return part

    def update(self, rows: Tensor, subset: "Decider") -> None:
        """Take over the state of these rows from another decider, which may be a fresh one."""
        for mine, new in zip(self.tensors(), subset.tensors(), strict=True):
            mine[rows] = new


class Policy(abc.ABC):
    @property
    @abc.abstractmethod
    def spec(self) -> PolicySpec:
        """Its identity in files and tables."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def needs_lookahead(self) -> bool:
        """Whether it decides by what would be written now, which costs a decoder step for every READ too."""
        return False

    @property
    def on_host(self) -> bool:
        """Whether it decides outside of the device, so that a GPU cannot record its steps."""
        return False

    @property
    def batch_key(self) -> Hashable:
        """Rows under policies of equal key can share a decider, by `Decider.update`."""
        return self

    @abc.abstractmethod
    def start(self, sentences: Tensor) -> Decider:
        """A decider for a new batch; `sentences` (rows) are their indices in the corpus."""


class StatelessPolicy(Policy, Decider):
    """A policy that is its own decider, for any batch."""

    def start(self, sentences: Tensor) -> Decider:  # noqa: ARG002
        return self
