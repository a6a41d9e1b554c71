"""Source words from a byte stream: plain text, or the growing hypotheses of a speech recogniser.

Any input is accepted: invalid UTF-8 becomes U+FFFD, and words and lines that are too long are cut.
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

BREAK = ""  # the end of a sentence in a sequence of words
DEFAULT_AGREEMENT = 2  # hypotheses in a row that must agree on a word
CHUNK = 1 << 16  # bytes
MAX_WORD = 1_000  # characters; a longer word is split into several
MAX_LINE = 100_000  # characters of a hypothesis; the rest is dropped
REPLACEMENT = "\ufffd"
MAX_EDITS = 32  # word edits between the final words and a later hypothesis
RESTART_WORDS = 4  # words: only a hypothesis of at least this length can be followed by one of another utterance


def read_chunks(file: BinaryIO, size: int = CHUNK) -> Generator[bytes, None, None]:
    """Yield the bytes of a file or pipe as soon as there are any, at most `size` at a time."""
    while chunk := file.read1(size):  # type: ignore[attr-defined]  # buffered files have read1
        yield chunk


class Reader(abc.ABC):
    """Turns chunks of input into source words, with BREAK where a sentence ends."""

    @abc.abstractmethod
    def read(self, chunk: bytes) -> Iterator[str]:
        """The words that become final with this chunk. An empty chunk ends the input."""

    @abc.abstractmethod
    def flush(self) -> list[str]:
        """The remaining words, which are final because no more input follows."""


class Parser(Reader):
    """Decodes UTF-8 and drops a byte order mark. Prints a note at the first invalid byte."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._line, self._is_valid = 1, True
        self._rest = ""  # the unfinished word or line at the end of the input so far

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
        """The words that become final with this text."""


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
    """Split a word into parts of at most MAX_WORD characters; an empty word is one part."""
    return [word[start : start + MAX_WORD] for start in range(0, max(1, len(word)), MAX_WORD)]


@dataclass(frozen=True)
class Hypothesis:
    """The words that a recogniser hears in the utterance so far."""

    text: str  # empty: as in the hypothesis before
    final: bool = False  # the utterance is over: its words do not change any more
    pause: bool = False  # the speaker pauses, which ends the sentence


UTTERANCE_END = Hypothesis("", final=True, pause=True)


def hypotheses_of(line: str, before: list[str]) -> list[Hypothesis]:
    """The hypotheses in a line of input; `before`: the words of the line before it.

    An empty line ends the utterance. So does a line of another utterance: much shorter, with no word in common.
    """
    words = line.split()
    if not words:
        return [UTTERANCE_END]
    shorter = len(before) >= RESTART_WORDS and 2 * len(words) <= len(before)
    if shorter and set(map(normalise, before)).isdisjoint(map(normalise, words)):
        return [UTTERANCE_END, Hypothesis(line)]
    return [Hypothesis(line)]


class Commitment:
    """Decides when words of growing hypotheses, whose last words may still change, are final.

    A word is final when `agreement` hypotheses in a row have it and all words before it, or at the utterance's end.
    """

    def __init__(self, agreement: int = DEFAULT_AGREEMENT, final: Sequence[str] = ()) -> None:
        """`final`: words of the first utterance that are final already; they are not returned again."""
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
        """Add a hypothesis; yields the words that become final, and BREAK where a sentence ends."""
        if words := hypothesis.text.split():
            yield from self.update(words)
        if hypothesis.final:
            yield from self.end_utterance()
        if hypothesis.pause:
            yield BREAK

    def update(self, hypothesis: list[str]) -> list[str]:
        """Add a hypothesis of the same utterance; returns the words that become final."""
        self._hypotheses.append(hypothesis)
        start = self._end_of_final(hypothesis)
        agreed = common_prefix(self._hypotheses) if len(self._hypotheses) == self._agreement else 0
        self.final += hypothesis[start:agreed]
        return hypothesis[start:agreed]

    def end_utterance(self) -> list[str]:
        """End the utterance; returns the words of its latest hypothesis that were not final yet."""
        words = self.open
        self._start_utterance()
        return words

    def _end_of_final(self, hypothesis: list[str]) -> int:
        """The index in the hypothesis after the final words, of which some may have changed."""
        old, new = list(map(normalise, self.final)), list(map(normalise, hypothesis))
        same = common_prefix([old, new])
        if same in (len(old), len(new)):  # a shorter hypothesis may grow again
            return len(old)
        return same + align_end(old[same:], new[same:])


class HypothesisParser(Parser):
    """Each line is the whole hypothesis so far. An empty line ends the utterance; so does a line of another one."""

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
    """The length of the prefix of `new` with the smallest edit distance from `old`; of equal ones closest to `old`.

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
