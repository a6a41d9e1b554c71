"""Source words from a byte stream: plain text, or the growing hypotheses of a speech recogniser.

No input is an error: what is not UTF-8 becomes U+FFFD, and words and lines of any length are cut.
"""

import abc
import codecs
import itertools
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from whilst.core.errors import note
from whilst.data.sentences import normalise

BREAK = ""  # stands among the words where a sentence ends
DEFAULT_AGREEMENT = 2  # hypotheses in a row that must agree on a word
CHUNK = 1 << 16  # bytes
MAX_WORD = 1_000  # characters; the others are further words
MAX_LINE = 100_000  # characters of a hypothesis; the others are dropped
REPLACEMENT = "\ufffd"
MAX_EDITS = 32  # of words between final words and a later hypothesis
RESTART_WORDS = 4  # a hypothesis of at least this length is followed by another utterance if half of it is gone


def read_chunks(file: BinaryIO, size: int = CHUNK) -> Generator[bytes, None, None]:
    """The bytes of a file or pipe, up to `size` of them as soon as there are any."""
    while chunk := file.read1(size):  # type: ignore[attr-defined]  # which buffered files have
        yield chunk


class Reader(abc.ABC):
    """Chunks of input to source words; BREAK stands among them where a sentence ends."""

    @abc.abstractmethod
    def read(self, chunk: bytes) -> Iterator[str]:
        """The words that are final with this chunk. An empty chunk ends the input."""

    @abc.abstractmethod
    def flush(self) -> list[str]:
        """The words that become final as no more input follows."""


class Parser(Reader):
    """Reads UTF-8 text; a byte order mark is dropped. The user is told of the first invalid byte."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._line, self._is_valid = 1, True
        self._rest = ""  # of the input so far: an unfinished word or line

    def read(self, chunk: bytes) -> Iterator[str]:
        text = self._decoder.decode(chunk, not chunk)
        before, found, _ = text.partition(REPLACEMENT)
        if found and self._is_valid:
            line = self._line + before.count("\n")
            note(f"standard input:{line}: not valid UTF-8; such bytes become {REPLACEMENT}, here and later")
            self._is_valid = False
        self._line += text.count("\n")
        return self.feed(text)

    @abc.abstractmethod
    def feed(self, text: str) -> Iterator[str]:
        """The words that are final with this text."""


class PlainTextParser(Parser):
    """A word is final when white space follows. An empty line ends a sentence; with `by_lines` every line does."""

    def __init__(self, by_lines: bool = False) -> None:
        super().__init__()
        self._by_lines = by_lines
        self._line_has_words = False

    def feed(self, text: str) -> Iterator[str]:
        *lines, last = (self._rest + text).split("\n")
        words: list[str] = []
        for line in lines:
            found = line.split()
            words += found
            if self._by_lines or not (found or self._line_has_words):
                words.append(BREAK)
            self._line_has_words = False
        found = last.split()
        self._rest = found.pop() if found and not last[-1].isspace() else ""
        self._line_has_words = self._line_has_words or bool(found)
        for word in words + found:
            yield from cut(word)
        *long, self._rest = cut(self._rest)
        yield from long

    def flush(self) -> list[str]:
        words, self._rest = self._rest.split(), ""
        return words


def cut(word: str) -> list[str]:
    """In parts of at most MAX_WORD characters; at least one part."""
    return [word[start : start + MAX_WORD] for start in range(0, max(1, len(word)), MAX_WORD)]


@dataclass(frozen=True)
class Hypothesis:
    """What a recogniser makes of the utterance so far."""

    text: str  # empty: as before
    final: bool = False  # the utterance is over: this will not change any more
    pause: bool = False  # the speaker pauses now: the sentence is over


UTTERANCE_END = Hypothesis("", final=True, pause=True)


def hypotheses_of(line: str, before: list[str]) -> list[Hypothesis]:
    """Of a line that is a whole hypothesis; `before`: the words of the line before it.

    An empty line ends the utterance. So does one of another utterance: much shorter, with no word in common.
    """
    words = line.split()
    if not words:
        return [UTTERANCE_END]
    shorter = len(before) >= RESTART_WORDS and 2 * len(words) <= len(before)
    if shorter and set(map(normalise, before)).isdisjoint(map(normalise, words)):
        return [UTTERANCE_END, Hypothesis(line)]
    return [Hypothesis(line)]


class Commitment:
    """When the words of hypotheses, whose ends may still change, are final.

    A word is final when `agreement` hypotheses in a row have it and all words before it, or as the utterance ends.
    """

    def __init__(self, agreement: int = DEFAULT_AGREEMENT, final: Sequence[str] = ()) -> None:
        """`final`: words of the first utterance that were final before; they are not returned again."""
        self._agreement = agreement
        self._start_utterance(final)

    def _start_utterance(self, final: Sequence[str] = ()) -> None:
        self._hypotheses: deque[list[str]] = deque(maxlen=self._agreement)
        self.final = list(final)  # words of the utterance

    @property
    def latest(self) -> list[str]:
        """The latest hypothesis of the utterance."""
        return self._hypotheses[-1] if self._hypotheses else []

    @property
    def open(self) -> list[str]:
        """The words of the latest hypothesis that are not final."""
        return self.latest[self._end_of_final(self.latest) :]

    def add(self, hypothesis: Hypothesis) -> Iterator[str]:
        """The words that are final with another hypothesis; BREAK where a sentence ends."""
        if words := hypothesis.text.split():
            yield from self.update(words)
        if hypothesis.final:
            yield from self.end_utterance()
        if hypothesis.pause:
            yield BREAK

    def update(self, hypothesis: list[str]) -> list[str]:
        """The words that are final with another hypothesis of the utterance."""
        self._hypotheses.append(hypothesis)
        start = self._end_of_final(hypothesis)
        agreed = common_prefix(self._hypotheses) if len(self._hypotheses) == self._agreement else 0
        self.final += hypothesis[start:agreed]
        return hypothesis[start:agreed]

    def end_utterance(self) -> list[str]:
        """The other words of the latest hypothesis."""
        words = self.open
        self._start_utterance()
        return words

    def _end_of_final(self, hypothesis: list[str]) -> int:
        """The index in the hypothesis after the words that were final before, some of which may have changed."""
        old, new = list(map(normalise, self.final)), list(map(normalise, hypothesis))
        same = common_prefix([old, new])
        if same in (len(old), len(new)):  # a shorter one may grow again
            return len(old)
        return same + align_end(old[same:], new[same:])


class HypothesisParser(Parser):
    """Each line is the whole hypothesis so far. An utterance ends at an empty line, or before a line of another."""

    def __init__(self, agreement: int = DEFAULT_AGREEMENT) -> None:
        super().__init__()
        self._commitment = Commitment(agreement)

    def feed(self, text: str) -> Iterator[str]:
        *lines, self._rest = (self._rest + text).split("\n")
        self._rest = self._rest[:MAX_LINE]
        for line in lines:
            yield from self._parse(line[:MAX_LINE])

    def flush(self) -> list[str]:
        line, self._rest = self._rest, ""
        words = list(self._parse(line)) if line.strip() else []
        return words + self._commitment.end_utterance()

    def _parse(self, line: str) -> Iterator[str]:
        for hypothesis in hypotheses_of(line, self._commitment.latest):
            yield from self._commitment.add(hypothesis)


def common_prefix(lines: Sequence[Sequence[str]]) -> int:
    """The length of the longest common prefix."""
    columns = zip(*lines, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda words: len(set(words)) == 1, columns))


def align_end(old: Sequence[str], new: Sequence[str]) -> int:
    """The prefix length of `new` with the fewest edits from `old`; of equal ones the nearest to len(old).

    Banded edit distance, exact up to MAX_EDITS: k edits stay within k of the diagonal.
    """
    infinite = len(old) + len(new) + 1
    costs = {n: n for n in range(min(MAX_EDITS, len(new)) + 1)}  # edits from the words of `old` so far to new[:n]
    for count, word in enumerate(old, start=1):
        row: dict[int, int] = {}
        for n in range(max(0, count - MAX_EDITS), min(len(new), count + MAX_EDITS) + 1):
            substituted = costs.get(n - 1, infinite) + (n == 0 or word != new[n - 1])
            row[n] = min(substituted, costs.get(n, infinite) + 1, row.get(n - 1, infinite) + 1)
        costs = row
    return min(costs, key=lambda n: (costs[n], abs(n - len(old))), default=len(new))
