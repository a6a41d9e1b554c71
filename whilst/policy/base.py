"""The interface of policies: READ or WRITE for each row of a batch.

A Policy is immutable and shared by batches. The state of a batch is in the Decider that the policy starts.
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

    A policy must not use source tokens beyond `read`, except the next one to find out whether the last word read is
    complete.
    """

    read: Tensor  # (rows) source tokens read
    written: Tensor  # (rows) target tokens written
    source: Tensor  # (rows, source) tokens
    last: Tensor  # (rows) last token written, bos before the first
    encoded: Tensor  # (rows, source, width) encoder states
    decoded: Tensor  # (rows, width) decoder state that wrote the last token, zeros before the first
    lookahead: Tensor | None = None  # (rows, width) decoder state that would write the next token now
    stopped: Tensor | None = None  # (rows) whether all monotonic heads have stopped for the next token
    banned: Tensor | None = None  # (rows, any number) tokens that must not be written next, padded with PAD
    rows: Tensor | None = None  # (rows) indices into `source` and `encoded`, if these have more rows


@dataclass(frozen=True)
class Futures:
    """The same rows after 0, 1, … more READs, for recorded steps that decide about several READs at once."""

    now: View
    read: Tensor  # (rows, futures) source tokens read in each future, at most the source's length
    lookahead: Tensor | None = None  # (rows, futures, width) decoder states that would write the next token

    def after(self, count: int) -> View:
        """The view after `count` more READs."""
        lookahead = None if self.lookahead is None else self.lookahead[:, count]
        return replace(self.now, read=self.read[:, count], lookahead=lookahead)


class Decider(abc.ABC):
    """Decides for the rows of one batch. A caller uses `write`, after every action, or `reads`, but not both."""

    @abc.abstractmethod
    def write(self, view: View) -> Tensor:
        """(rows) True for WRITE, False for READ. Ignored for rows whose source is finished, which WRITE."""

    def write_each(self, futures: Futures) -> Tensor:
        """(rows, futures) the decision in each future. Afterwards `commit` says which future was reached.

        This default implementation is for deciders without state.
        """
        return torch.stack([self.write(futures.after(n)) for n in range(futures.read.shape[1])], 1)

    def commit(self, reached: Tensor) -> None:  # noqa: B027  (no state)
        """Update the state to the future (rows) that was reached after `write_each`."""

    def reads_until_write(self, futures: Futures) -> Tensor:
        """(rows) number of READs before the next WRITE; the number of futures if none of them WRITEs.

        Policies without lookahead may return larger numbers. Unused for rows whose source ends before.
        """
        first = (~self.write_each(futures)).long().cumprod(1).sum(1)
        self.commit(first.clamp(max=futures.read.shape[1] - 1))
        return first

    def tensors(self) -> list[Tensor]:
        """The state: (rows, …) each. CUDA graphs save and restore the state; `subset` and `update` select rows."""
        return []

    def set_tensors(self, tensors: list[Tensor]) -> None:  # noqa: B027  (no state)
        """Replace the state by these tensors, in the order of `tensors`."""

    def subset(self, rows: Tensor) -> Self:
        """A decider for these rows, in this order, with a copy of their state."""
        part = copy.copy(self)
        part.set_tensors([tensor[rows] for tensor in self.tensors()])
        return part

    def update(self, rows: Tensor, subset: "Decider") -> None:
        """Replace the state of these rows by that of another decider, which may be a fresh one."""
        for tensor, new in zip(self.tensors(), subset.tensors(), strict=True):
            tensor[rows] = new


class Policy(abc.ABC):
    @property
    @abc.abstractmethod
    def spec(self) -> PolicySpec:
        """The policy's identity in files and tables."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def needs_lookahead(self) -> bool:
        """Whether decisions use the lookahead state, which costs a decoder step for every READ."""
        return False

    @property
    def on_host(self) -> bool:
        """Whether decisions are made on the host (CPU), so that steps cannot be recorded as CUDA graphs."""
        return False

    @property
    def batch_key(self) -> Hashable:
        """Rows of policies with equal keys can share a decider (see `Decider.update`)."""
        return self

    @abc.abstractmethod
    def start(self, sentences: Tensor) -> Decider:
        """A decider for a new batch; `sentences` (rows) are their indices in the corpus."""


class StatelessPolicy(Policy, Decider):
    """A policy that is its own decider, for any batch."""

    def start(self, sentences: Tensor) -> Decider:  # noqa: ARG002
        return self
