"""Subtitles from words with times: cues in order that never overlap, written as soon as they are known.

Times are whole milliseconds since the session began.
"""

import abc
import contextlib
import errno
import html
import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whilst.core import console
from whilst.core.errors import UserError
from whilst.live.displays import Sink
from whilst.live.session import SentenceEnd, Word

WIDTH, LINES = 42, 2  # what a screen and an eye take
LEAST = 1_000  # a cue shorter than this cannot be read
LINGER = 1_000  # how long a cue stays after its last word, if no other wants its place
SILENCE = 3_000  # a pause after which the next word is a new cue
MOST = 7_000  # as long a cue may grow


@dataclass(frozen=True)
class Cue:
    begin: int
    end: int
    lines: tuple[str, ...]


def wrap(words: list[str]) -> list[str]:
    return textwrap.wrap(" ".join(words), WIDTH, break_on_hyphens=False)


class Cues:
    """Collects words until no more fit, a sentence ends, or nothing was said for a while."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._begin = self._last = 0  # of the cue under way, and of its last word
        self._free = 0  # when the cue before it ends

    def add(self, word: str, at: int) -> list[Cue]:
        """The cues that a word shows to be complete."""
        cues = []
        at = max(at, self._last)
        for start in range(0, len(word), WIDTH):  # a word that is too long for a line is taken apart
            piece = word[start : start + WIDTH]
            late = at - self._last > SILENCE or at - self._begin > MOST
            if self._words and (late or len(wrap([*self._words, piece])) > LINES):
                cues.append(self._cut(at))
            if not self._words:
                self._begin = max(at, self._free)
            self._words.append(piece)
            self._last = at
        return cues

    def close(self) -> list[Cue]:
        """The cue under way, if there is one: its sentence is over."""
        return [self._cut(None)] if self._words else []

    def _cut(self, at: int | None) -> Cue:
        """Ends when the next one begins, but not so soon that it cannot be read, nor long after its last word."""
        late = max(self._begin, self._last) + LINGER
        end = late if at is None else max(self._begin + LEAST, min(at, late))
        cue = Cue(self._begin, end, tuple(wrap(self._words)))
        self._words, self._free = [], end
        return cue


def clock(ms: int, mark: str) -> str:
    """Such as 00:01:02,345."""
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"


class Subtitles(Sink, abc.ABC):
    """A file that is valid after every cue. It grows in place: who watches it wants every cue at once.

    If it cannot grow (a full disk), that is said and the talk goes on; at the end it is an error.
    """

    head = ""

    def __init__(self, path: Path, say: Callable[[str], None] = console.log) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._say = path, say
        self._file = path.open("wb", buffering=0)
        self._size = 0  # bytes, of whole cues
        self._wrong = ""  # why nothing more is written
        self._cues = Cues()
        self._count = 0
        self._put(self.head)

    @abc.abstractmethod
    def show(self, number: int, cue: Cue) -> str:
        """A cue with the empty line after it."""

    def _put(self, text: str) -> bool:
        if self._wrong:
            return False
        data = text.encode()
        try:
            if self._file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._wrong = error.strerror or str(error)
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)  # half a cue is worse than none
            self._say(f"{self._path}: {self._wrong}; the translation goes on without these subtitles")
            return False
        self._size += len(data)
        return True

    def _put_cues(self, cues: list[Cue]) -> None:
        for cue in cues:
            self._count += self._put(self.show(self._count + 1, cue))

    def wrote(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        self._put_cues(self._cues.add(word.text, round(1000 * arrived)))

    def ended(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        self._put_cues(self._cues.close())

    def close(self) -> None:
        self._put_cues(self._cues.close())
        self._file.close()
        if self._wrong:
            raise UserError(f"{self._path}: ends after {self._count} subtitles ({self._wrong}); free some space")


class Srt(Subtitles):
    def show(self, number: int, cue: Cue) -> str:
        text = "\n".join(cue.lines).replace("-->", "→")  # an arrow would look like a line of times
        return f"{number}\n{clock(cue.begin, ',')} --> {clock(cue.end, ',')}\n{text}\n\n"


class Vtt(Subtitles):
    head = "WEBVTT\n\n"

    def show(self, number: int, cue: Cue) -> str:  # noqa: ARG002
        text = html.escape("\n".join(cue.lines), quote=False)
        return f"{clock(cue.begin, '.')} --> {clock(cue.end, '.')}\n{text}\n\n"
