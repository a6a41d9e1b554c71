"""What a policy is. A Policy is shared and never changes; what it remembers of a batch is in its Decider."""

import abc
from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.model.cache import Cache, numbers


@dataclass(frozen=True)
class View:
    """Where each translation of a batch stands. Beyond `read`, the source is not to be looked at."""

    read: Tensor  # (rows) source tokens read
    written: Tensor  # (rows) target tokens written
    source: Tensor  # (rows, source) tokens
    last: Tensor  # (rows) last token written, bos before the first
    encoded: Tensor  # (rows, source, width) encoder states
    decoded: Tensor  # (rows, width) decoder state that wrote the last token, zeros before the first
    ahead: Tensor | None = None  # (rows, width) decoder state that would write the next one now, if asked for
    stopped: Tensor | None = None  # (rows) whether all heads have stopped for it, where heads are monotone
    rows: Tensor | None = None  # (rows) which rows of `source` and `encoded` these are, if not all

    @classmethod
    def of(cls, cache: Cache, read: Tensor, source: Tensor, last: Tensor, ahead: Tensor | None) -> "View":
        """What a cache holds, after so many reads."""
        states = cache.encoded, cache.decoded, ahead, cache.stopped
        return cls(read, cache.written, source, last, *states, cache.rows)

    def heard(self) -> tuple[Tensor, Tensor]:
        """(rows) the last source token read, (rows, width) its encoder state."""
        rows, place = numbers(self.rows, self.read), (self.read - 1).clamp(min=0)
        return self.source[rows, place], self.encoded[rows, place]


@dataclass(frozen=True)
class Prospects:
    """Where they would stand after 0, 1, … more READs."""

    now: View
    read: Tensor  # (rows, prospects) source tokens read then; no more than there are
    ahead: Tensor | None = None  # (rows, prospects, width) decoder states that would write the next token then

    def after(self, count: int) -> View:
        ahead = None if self.ahead is None else self.ahead[:, count]
        return replace(self.now, read=self.read[:, count], ahead=ahead)

    def heard(self) -> tuple[Tensor, Tensor]:
        """(rows, prospects) the last source token read, (rows, prospects, width) its encoder state."""
        rows, place = numbers(self.now.rows, self.read)[:, None], self.read - 1
        return self.now.source[rows, place], self.now.encoded[rows, place]


def first(write: Tensor) -> Tensor:
    """(rows, prospects) -> (rows) the first at which to WRITE; where there is none, how many there are."""
    return (~write).long().cumprod(1).sum(1)


class Decider(abc.ABC):
    """Decides for the rows of one batch: one decision at a time, or several; not now one way, now the other."""

    @abc.abstractmethod
    def write(self, view: View) -> Tensor:
        """(rows) True for WRITE, False for READ. Ignored in rows whose source is finished: they WRITE."""

    def wants(self, prospects: Prospects) -> Tensor:
        """(rows, prospects) whether to WRITE then; `settle` says how far it was really asked.

        This one is for those who remember nothing.
        """
        return torch.stack([self.write(prospects.after(n)) for n in range(prospects.read.shape[1])], 1)

    def settle(self, asked: Tensor) -> None:  # noqa: B027  (nothing to do for those who remember nothing)
        """Remember what `wants` made of the prospects up to this one (rows)."""

    def reads(self, prospects: Prospects) -> Tensor:
        """(rows) how many more READs before the next WRITE; all of the prospects' if that is not among them.

        Who does not look ahead may know of more. In rows whose source ends before, nothing depends on the answer.
        """
        found = first(self.wants(prospects))
        self.settle(found.clamp(max=prospects.read.shape[1] - 1))
        return found

    def remembered(self) -> list[Tensor]:
        """What deciding changes of itself, so that a recording of it can be repeated."""
        return []

    def remember(self, tensors: list[Tensor]) -> None:  # noqa: B027  (nothing to do for those who remember nothing)
        """Go on from this."""

    @abc.abstractmethod
    def part(self, rows: Tensor) -> "Decider":
        """One for these rows, in this order, with what was remembered of them."""

    def put(self, rows: Tensor, part: "Decider") -> None:  # noqa: B027
        """Remember of these rows what another one does, which may have just been started."""


class Policy(abc.ABC):
    """A way to translate."""

    @property
    @abc.abstractmethod
    def spec(self) -> PolicySpec:
        """Its identity in files and tables."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def looks_ahead(self) -> bool:
        """Whether it wants to see what would be written now: a decoder step for every READ too."""
        return False

    @property
    def knows_sentences(self) -> bool:
        """Whether it depends on which sentence of the corpus it is."""
        return False

    @property
    def kin(self) -> Hashable:
        """Policies that have this in common can decide for rows of one batch: one's decider may `put` another's."""
        return self

    @abc.abstractmethod
    def start(self, sentences: Tensor) -> Decider:
        """A decider for a new batch; `sentences` (rows) are their numbers in the corpus."""
