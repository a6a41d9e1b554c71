"""What a policy is. A Policy is shared and never changes; what it remembers of a batch is in its Decider."""

import abc
from dataclasses import dataclass

from torch import Tensor

from whilst.model import Cache


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

    @classmethod
    def of(cls, cache: Cache, read: Tensor, source: Tensor, last: Tensor, ahead: Tensor | None) -> "View":
        """What a cache holds, after so many reads."""
        return cls(read, cache.written, source, last, cache.encoded, cache.decoded, ahead, cache.stopped)


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
    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""


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

    @abc.abstractmethod
    def start(self, sentences: Tensor) -> Decider:
        """A decider for a new batch; `sentences` (rows) are their numbers in the corpus."""
