"""What a policy is. A Policy is shared and never changes; what it remembers of a batch is in its Decider."""

import abc
from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from whilst.cache import Cache, numbers


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


class Decider(abc.ABC):
    """Decides for the rows of one batch."""

    @abc.abstractmethod
    def write(self, view: View) -> Tensor:
        """(rows) True for WRITE, False for READ. Ignored in rows whose source is finished: they WRITE."""

    def remembered(self) -> list[Tensor]:
        """What `write` changes of itself, so that a recording of it can be repeated."""
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
    def name(self) -> str:
        """What tells it apart in files and tables."""

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
