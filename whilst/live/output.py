"""Outputs of a live session: plain text, JSON lines and subtitles; display.py is for terminals.

Times are seconds since the session began; those of subtitles are whole milliseconds.
"""

import abc
import contextlib
import errno
import html
import json
import os
import textwrap
from dataclasses import dataclass
from pathlib import Path

from whilst.core.errors import UserError, note
from whilst.live.session import SentenceEnd, Word

LINE_WIDTH, MAX_LINES = 42, 2  # usual limits of subtitles
MIN_DURATION = 1_000  # of a cue
LINGER = 1_000  # how long a cue stays after its last word, unless the next one begins
MAX_PAUSE = 3_000  # between words of one cue
MAX_DURATION = 7_000  # from a cue's first word to its last


class Output(abc.ABC):
    """Receives the events of a session in order."""

    shows_typing = False  # whether `typing` does anything

    def typing(self, word: str) -> None:  # noqa: B027
        """Show a word that is being typed; it is not part of the source yet."""

    def source_word(self, word: str, now: float) -> None:  # noqa: B027  (most outputs do not show the source)
        """A source word was read from the input."""

    @abc.abstractmethod
    def target_word(self, word: Word, arrived: float, now: float) -> None:
        """A word was written; `arrived` is the time of the source word after which it could be written."""

    @abc.abstractmethod
    def sentence_end(self, end: SentenceEnd, now: float) -> None: ...

    def flush(self) -> None:  # noqa: B027
        """Called when nothing follows until more source arrives."""

    def close(self) -> None:  # noqa: B027
        """Called at the end of the session."""


class PlainOutput(Output):
    """One sentence per line, each word as soon as it is written.

    `typed`: the source is typed at the same terminal; each typed line is followed by a line of translation.
    """

    def __init__(self, typed: bool = False) -> None:
        self._typed = typed
        self._in_line = False

    def target_word(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        print(f" {word.text}" if self._in_line else word.text, end="", flush=True)
        self._in_line = True

    def sentence_end(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        print(flush=True)
        self._in_line = False

    def flush(self) -> None:
        if self._typed:
            self.close()

    def close(self) -> None:
        if self._in_line:
            print(flush=True)
        self._in_line = False


class JsonOutput(Output):
    """One object per line: words with their source position, and ends of sentences."""

    def _put(self, row: dict[str, str | int | float]) -> None:
        print(json.dumps(row, ensure_ascii=False), flush=True)

    def target_word(self, word: Word, arrived: float, now: float) -> None:
        times = {"arrived": round(arrived, 3), "time": round(now, 3)}
        self._put({"word": word.text, "sentence": word.sentence, "source": word.position, **times})

    def sentence_end(self, end: SentenceEnd, now: float) -> None:
        self._put({"end": end.sentence, "source": end.position, "words": end.length, "time": round(now, 3)})


@dataclass(frozen=True)
class Cue:
    begin: int
    end: int
    lines: tuple[str, ...]


def wrap(words: list[str]) -> list[str]:
    return textwrap.wrap(" ".join(words), LINE_WIDTH, break_on_hyphens=False)


class CueBuilder:
    def __init__(self) -> None:
        self._words: list[str] = []
        self._begin = self._last = 0  # times of the current cue and of its last word
        self._previous_end = 0

    def add(self, word: str, time: int) -> list[Cue]:
        """Add a word; returns the cues that are complete because the word does not fit into them."""
        cues = []
        time = max(time, self._last)
        for start in range(0, len(word), LINE_WIDTH):  # a word longer than a line is split
            piece = word[start : start + LINE_WIDTH]
            late = time - self._last > MAX_PAUSE or time - self._begin > MAX_DURATION
            if self._words and (late or len(wrap([*self._words, piece])) > MAX_LINES):
                cues.append(self._cut(time))
            if not self._words:
                self._begin = max(time, self._previous_end)
            self._words.append(piece)
            self._last = time
        return cues

    def flush(self) -> list[Cue]:
        """End the current cue, as its sentence is over; returns it if it has words."""
        return [self._cut(None)] if self._words else []

    def _cut(self, next_begin: int | None) -> Cue:
        latest = max(self._begin, self._last) + LINGER
        end = latest if next_begin is None else max(self._begin + MIN_DURATION, min(next_begin, latest))
        cue = Cue(self._begin, end, tuple(wrap(self._words)))
        self._words, self._previous_end = [], end
        return cue


def format_time(ms: int, separator: str) -> str:
    """Such as 00:01:02,345."""
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{separator}{ms % 1000:03}"


def format_cue(form: str, number: int, cue: Cue) -> str:
    """A cue with the empty line after it; `form`: srt or vtt."""
    text = "\n".join(cue.lines)
    if form == "srt":
        times = f"{format_time(cue.begin, ',')} --> {format_time(cue.end, ',')}"
        return f"{number}\n{times}\n{text.replace('-->', '→')}\n\n"  # "-->" marks a line of times
    return f"{format_time(cue.begin, '.')} --> {format_time(cue.end, '.')}\n{html.escape(text, quote=False)}\n\n"


class SubtitleFile(Output):
    """A subtitle file that is valid after every cue. Cues are appended in place, so that players can follow it.

    If writing fails (full disk), a note is printed and the session goes on; `close` raises a `UserError`.
    """

    def __init__(self, path: Path, form: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._form = path, form
        self._file = path.open("wb", buffering=0)
        self._size = self._count = 0  # bytes and number of complete cues
        self._error = ""
        self._cues = CueBuilder()
        if form == "vtt":
            self._append("WEBVTT\n\n")

    def _append(self, text: str) -> bool:
        if self._error:
            return False
        data = text.encode()
        try:
            if self._file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._error = error.strerror or str(error)
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)  # remove the incomplete cue
            note(f"{self._path}: {self._error}; the translation goes on without these subtitles")
            return False
        self._size += len(data)
        return True

    def _append_cues(self, cues: list[Cue]) -> None:
        for cue in cues:
            self._count += self._append(format_cue(self._form, self._count + 1, cue))

    def target_word(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        self._append_cues(self._cues.add(word.text, round(1000 * arrived)))

    def sentence_end(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        self._append_cues(self._cues.flush())

    def close(self) -> None:
        self._append_cues(self._cues.flush())
        self._file.close()
        if self._error:
            raise UserError(f"{self._path}: ends after {self._count} subtitles ({self._error}); free some space")
