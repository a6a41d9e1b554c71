"""Words from a stream of bytes, as soon as they are certain: plain text, or the growing lines of a recogniser.

An empty string among the words says that the sentence ends there. Knows nothing of translation.
"""

import abc
import codecs
import itertools
from collections import deque
from collections.abc import Callable, Sequence

from whilst.core.errors import UserError

BREAK = ""  # the sentence ends here
KEEP = 2  # lines that must agree on a word of a hypothesis
LONGEST_WORD = 1_000  # characters: more is no text, and would have to be kept
LONGEST_LINE = 100_000  # characters of a recogniser's line
RESTART = 4  # words of a hypothesis, from which on one of half the length and nothing in common is a new one

_EDGES = ".,;:!?…\"'“”‘’«»()[]"  # noqa: RUF001


class Fault:
    """What is wrong with the input is said after what came before it has been used: at the next call."""

    def __init__(self) -> None:
        self._message = ""

    def found(self, message: str) -> None:
        self._message = message

    def check(self) -> None:
        message, self._message = self._message, ""
        if message:
            raise UserError(message)


class Decoder:
    """Bytes to characters, however they are cut."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = 1
        self._fault = Fault()
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def __call__(self, chunk: bytes, last: bool = False) -> str:
        self._fault.check()
        try:
            text = self._decoder.decode(chunk, last)
        except UnicodeDecodeError as error:
            text = error.object[: error.start].decode("utf-8-sig")
            found = f"byte 0x{error.object[error.start]:02x}"
            place = f"{self.name}:{self.line + text.count(chr(10))}"
            self._fault.found(f"{place}: not valid UTF-8 ({found}); convert it, for example with iconv -t UTF-8")
            if last:
                self._fault.check()
        self.line += text.count("\n")
        return text


class Parser(abc.ABC):
    @abc.abstractmethod
    def take(self, text: str) -> list[str]:
        """The words that more text makes certain."""

    @abc.abstractmethod
    def rest(self) -> list[str]:
        """The words that are certain because nothing more comes."""


class Words(Parser):
    """A word is whole when white space follows. An empty line ends a sentence; `by_lines`: every line does."""

    def __init__(self, by_lines: bool = False) -> None:
        self.by_lines = by_lines
        self._fault = Fault()
        self._rest = ""  # a word that may go on
        self._begun = False  # whether the line has had words

    def take(self, text: str) -> list[str]:
        self._fault.check()
        *lines, last = (self._rest + text).split("\n")
        words: list[str] = []
        for line in lines:
            found = line.split()
            words += found
            if self.by_lines or not (found or self._begun):
                words.append(BREAK)
            self._begun = False
        found = last.split()
        self._rest = found.pop() if found and not last[-1].isspace() else ""
        self._begun = self._begun or bool(found)
        words += found
        if any(len(word) > LONGEST_WORD for word in (*words, self._rest)):
            self._fault.found(f"standard input: a word of more than {LONGEST_WORD} characters; is it text?")
            words = list(itertools.takewhile(lambda word: len(word) <= LONGEST_WORD, words))
            self._rest = ""
        return words

    def rest(self) -> list[str]:
        words, self._rest = self._rest.split(), ""
        return words


class Hypotheses(Parser):
    """Lines that repeat what was heard and add to it, and may change at their end.

    A word counts when `keep` lines in a row have had it, and all before it. An empty line, or a line that begins
    anew, makes the line before it final. What was handed out cannot be taken back; `say` is told if it changes.
    """

    def __init__(self, say: Callable[[str], None], keep: int = KEEP) -> None:
        if keep < 1:
            raise UserError(f"--keep {keep}: must be at least 1")
        self.say, self.keep = say, keep
        self._fault = Fault()
        self._text = ""  # of a line that may go on
        self._begin()

    def _begin(self) -> None:
        self._lines: deque[list[str]] = deque(maxlen=self.keep)
        self._fed: list[str] = []  # handed out since the last empty line
        self._said: set[int] = set()  # of these, those whose change was told

    def take(self, text: str) -> list[str]:
        self._fault.check()
        *lines, self._text = (self._text + text).split("\n")
        if any(len(line) > LONGEST_LINE for line in (*lines, self._text)):
            self._fault.found(f"standard input: a line of more than {LONGEST_LINE} characters; is it text?")
            lines = list(itertools.takewhile(lambda line: len(line) <= LONGEST_LINE, lines))
            self._text = ""
        return [word for line in lines for word in self._line(line.split())]

    def rest(self) -> list[str]:
        words = self._line(self._text.split()) if self._text.strip() else []
        self._text = ""
        return words + self._final()

    def _line(self, line: list[str]) -> list[str]:
        if not line:
            return [*self._final(), BREAK]
        words: list[str] = []
        if self._lines and begins_anew(self._lines[-1], line):
            words = [*self._final(), BREAK]
        self._lines.append(line)
        place = self._place(line)
        stable = agreement(self._lines) if len(self._lines) == self.keep else 0
        return words + self._hand_out(line[place:stable])

    def _final(self) -> list[str]:
        line = self._lines[-1] if self._lines else []
        words = line[self._place(line) :]
        self._begin()
        return words

    def _hand_out(self, words: list[str]) -> list[str]:
        self._fed += words
        return words

    def _place(self, line: list[str]) -> int:
        """Where in the line the words end that were handed out. Those that have changed are told once."""
        same = agreement([list(map(plain, self._fed)), list(map(plain, line))])
        if same in (len(self._fed), len(line)):  # a line that is too short may become longer again
            return len(self._fed)
        old, new = self._fed[same:], line[same:]
        end, cost = best_end(old, new)
        changed = [n for n, (a, b) in enumerate(zip(old, new, strict=False)) if plain(a) != plain(b)]
        if end == len(old) and cost == len(changed):  # word for word: go on from the new ones
            for n in changed:
                self._tell(same + n, new[n])
                self._fed[same + n] = new[n]
        else:
            self._tell(same, new[0])
        return same + end

    def _tell(self, place: int, now: str) -> None:
        if place not in self._said:
            self._said.add(place)
            self.say(f"heard {self._fed[place]!r}, which is now {now!r}: it was translated already")


def plain(word: str) -> str:
    """Case and punctuation change as a sentence grows; that makes no other word of it."""
    return word.strip(_EDGES).casefold() or word


def agreement(lines: Sequence[Sequence[str]]) -> int:
    """How many first words all lines share."""
    count = 0
    for words in zip(*lines, strict=False):
        if len(set(words)) > 1:
            break
        count += 1
    return count


def begins_anew(before: list[str], line: list[str]) -> bool:
    """Whether a line without an empty one before it is another utterance, not a correction."""
    short = len(before) >= RESTART and 2 * len(line) <= len(before)
    return short and set(map(plain, before)).isdisjoint(map(plain, line))


def best_end(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many of the new words stand for all the old ones with the fewest changes, and how many those are.

    Of equally good ends the one nearest to as many words as before. A few changes of a long line are found without
    holding all its words against each other: whoever makes so many is never further aside than that.
    """
    left, right = list(map(plain, old)), list(map(plain, new))
    most = 4
    while True:
        costs = _last_costs(left, right, most)
        end = min(costs, key=lambda n: (costs[n], abs(n - len(old))), default=0)
        if costs and costs[end] <= most:
            return end, costs[end]
        most *= 4


def _last_costs(old: Sequence[str], new: Sequence[str], most: int) -> dict[int, int]:
    """The changes between all old words and the first n new ones, by n; right where they are `most` at most."""
    far = len(old) + len(new) + 1
    costs = {n: n for n in range(min(most, len(new)) + 1)}
    for count, word in enumerate(old, start=1):
        row: dict[int, int] = {}
        for n in range(max(0, count - most), min(len(new), count + most) + 1):
            change = costs.get(n - 1, far) + (n == 0 or word != new[n - 1])
            row[n] = min(change, costs.get(n, far) + 1, row.get(n - 1, far) + 1)
        costs = row
    return costs
