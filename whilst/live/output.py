"""Outputs of a live session: plain text, JSON lines, and a display for terminals.

Times are seconds since the session began.
"""

import abc
import json
import sys
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from whilst.core.action_rows import action_rows
from whilst.live.session import SentenceEnd, Word
from whilst.live.summary import Summary


def note(text: str) -> None:
    """Show a message to the user. A display that is on the screen is redrawn below it."""
    print(f"whilst: {text}", file=sys.stderr, flush=True)


class Output(abc.ABC):
    """Receives the events of a session in order."""

    def source_word(self, word: str, now: float) -> None:  # noqa: B027  (most outputs do not show the source)
        """A source word was read from the input."""

    @abc.abstractmethod
    def target_word(self, word: Word, arrived: float, now: float) -> None:
        """A word was written; `arrived` is the time of the source word that allowed it."""

    @abc.abstractmethod
    def sentence_end(self, end: SentenceEnd, now: float) -> None: ...

    def flush(self) -> None:  # noqa: B027
        """Nothing more follows until more source arrives."""

    def close(self) -> None:  # noqa: B027
        """The session is over."""


class PlainOutput(Output):
    """One sentence per line, each word as soon as it is written.

    `typed`: the source is typed at the same terminal, and each line of it is answered by a line.
    """

    def __init__(self, out: TextIO, typed: bool = False) -> None:
        self.out, self._typed = out, typed
        self._in_line = False

    def target_word(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        print(f" {word.text}" if self._in_line else word.text, end="", file=self.out, flush=True)
        self._in_line = True

    def sentence_end(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        print(file=self.out, flush=True)
        self._in_line = False

    def flush(self) -> None:
        if self._typed:
            self.close()

    def close(self) -> None:
        if self._in_line:
            print(file=self.out, flush=True)
        self._in_line = False


class JsonOutput(Output):
    """One object per line: words with their source position, and ends of sentences."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def _put(self, row: dict[str, str | int | float]) -> None:
        print(json.dumps(row, ensure_ascii=False), file=self.out, flush=True)

    def target_word(self, word: Word, arrived: float, now: float) -> None:
        times = {"arrived": round(arrived, 3), "time": round(now, 3)}
        self._put({"word": word.text, "sentence": word.sentence, "source": word.position, **times})

    def sentence_end(self, end: SentenceEnd, now: float) -> None:
        self._put({"end": end.sentence, "source": end.position, "words": end.length, "time": round(now, 3)})


class Display(Output):
    """On a terminal: redraws the current sentence as it grows, and ends it with its average lagging.

    The source stands above its translation; with `show_actions`, every READ and WRITE in two rows.
    """

    def __init__(self, console: Console, show_actions: bool = False) -> None:
        self.console, self._show_actions = console, show_actions
        self._summary = Summary()
        self._source: list[str] = []
        self._target: list[list[str]] = []  # the words written after each source word, before the next
        self._start = 0  # source words of the session before the first that is shown
        self._live: Live | None = None

    def _render(self, lag: str) -> Text:
        words = [word for below in self._target for word in below]
        if self._show_actions:
            text = action_rows(self._source, self._target, self.console.width)
        else:
            text = Text(" ".join(self._source) + "\n", style="dim")
            text.append(" ".join(words) + "\n", style="not dim bold")
        status = lag or f"{len(self._source)} read, {len(words)} written"
        return text.append(status, style="not dim yellow" if lag else "dim")

    def _draw(self, lag: str = "") -> None:
        if self._live is None:
            # Without a refresh thread, which would draw in the middle of an update; long sentences stay visible.
            self._live = Live(console=self.console, auto_refresh=False, vertical_overflow="visible")
            self._live.start()
        self._live.update(self._render(lag), refresh=True)

    def source_word(self, word: str, now: float) -> None:  # noqa: ARG002
        self._source.append(word)
        self._target.append([])
        self._draw()

    def target_word(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        column = word.position - 1 - self._start
        if column < 0:  # the last source word was split between two sentences
            self._source.insert(0, "…")
            self._target.insert(0, [])
            column, self._start = 0, self._start - 1
        self._target[column].append(word.text)
        self._summary.add(word)
        self._draw()

    def sentence_end(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        cut = max(0, end.position - self._start)
        following = self._source[cut:]  # a word beyond the length limit belongs to the next sentence
        del self._source[cut:], self._target[cut:]
        self._start = end.position
        self._draw(self._lag(end))
        self.close()
        self.console.print()
        self._source, self._target = following, [[] for _ in following]

    def _lag(self, end: SentenceEnd) -> str:
        """The average lagging of the sentence, and of all so far."""
        lag, mean = self._summary.add(end), self._summary.mean_lag
        if lag is None or mean is None:
            return ""
        return f"lag {lag:.1f} words" + (f", {mean:.1f} on average" if self._summary.lag_count > 1 else "")

    def close(self) -> None:
        """Leave what is drawn on the screen; the next drawing starts below it."""
        if self._live is not None:
            self._live.stop()
        self._live = None


def choose_output(as_json: bool, show_actions: bool, typed: bool, console: Console) -> Output:
    """`typed`: the source is typed at a terminal."""
    if as_json:
        return JsonOutput(sys.stdout)
    if show_actions or (console.is_terminal and not typed):
        return Display(console, show_actions)
    return PlainOutput(sys.stdout, typed)
