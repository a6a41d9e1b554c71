"""Where the words of a live translation go: plain text, JSON lines, a terminal. Knows nothing of models.

Times are seconds since the session began.
"""

import abc
import json
import sys
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from whilst.evaluation.metrics import average_lagging
from whilst.live.session import SentenceEnd, Word


class Sink(abc.ABC):
    """Takes what happens in a session, in order."""

    def heard(self, word: str, now: float) -> None:  # noqa: B027  (most take no interest in the source)
        """A source word was fed."""

    @abc.abstractmethod
    def wrote(self, word: Word, arrived: float, now: float) -> None:
        """A word was written; `arrived` is when the source word came that made it possible."""

    @abc.abstractmethod
    def ended(self, end: SentenceEnd, now: float) -> None:
        """A sentence has been translated."""

    def paused(self) -> None:  # noqa: B027
        """Nothing more can be done until more source comes."""

    @abc.abstractmethod
    def close(self) -> None:
        """Nothing more will come."""


class Plain(Sink):
    """A sentence a line, each word as it is ready."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self._begun = False

    def _put(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()

    def wrote(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        self._put(f" {word.text}" if self._begun else word.text)
        self._begun = True

    def ended(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        self._put("\n")
        self._begun = False

    def close(self) -> None:
        if self._begun:
            self._put("\n")


class JsonLines(Sink):
    """An object a line: words with the source words read until then, and the ends of sentences."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def _put(self, row: dict[str, str | int | float]) -> None:
        self.out.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.out.flush()

    def wrote(self, word: Word, arrived: float, now: float) -> None:
        times = {"arrived": round(arrived, 3), "time": round(now, 3)}
        self._put({"word": word.text, "sentence": word.sentence, "source": word.position, **times})

    def ended(self, end: SentenceEnd, now: float) -> None:
        self._put({"end": end.sentence, "source": end.position, "words": end.length, "time": round(now, 3)})

    def close(self) -> None:
        pass


class Lag:
    """How far the translation runs behind, in source words."""

    def __init__(self) -> None:
        self.delays: list[int] = []  # of this sentence
        self._sum, self._sentences = 0.0, 0

    def end(self, length: int) -> str:
        """A sentence's average lagging, and that of all so far."""
        if not self.delays or not length:
            return ""
        lag = average_lagging(self.delays, length, len(self.delays))
        self.delays = []
        self._sum, self._sentences = self._sum + lag, self._sentences + 1
        return f"lag {lag:.1f} words" + (f", {self.mean:.1f} on average" if self._sentences > 1 else "")

    @property
    def mean(self) -> float:
        """Of the sentences that have ended."""
        return self._sum / max(1, self._sentences)


class Drawn(Sink):
    """A terminal on which a sentence is drawn anew as it grows."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None  # what is drawn of a sentence under way

    def draw(self, text: Text) -> None:
        if self._live is None:
            # Drawn when something happens, never by a thread of its own; wrapped lines must all be seen.
            self._live = Live(console=self.console, auto_refresh=False, vertical_overflow="visible")
            self._live.start()
        self._live.update(text, refresh=True)

    def note(self, text: str) -> None:
        """Above what is drawn."""
        self.console.print(text, style="yellow", markup=False)

    def leave(self) -> None:
        """What is drawn stays as it is."""
        if self._live is not None:
            self._live.stop()
        self._live = None

    def close(self) -> None:
        self.leave()


class Screen(Drawn):
    """A terminal that the source does not come from: source and translation, one above the other."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._lag = Lag()
        self._source: list[str] = []
        self._target: list[str] = []

    def _draw(self, lag: str) -> None:
        text = Text(" ".join(self._source), style="dim")
        text.append("\n" + " ".join(self._target), style="not dim bold")
        text.append(f"  {lag}" if lag else "", style="not bold cyan")
        self.draw(text)

    def _running(self) -> str:
        return f"{max(0, len(self._source) - len(self._target))} behind"

    def heard(self, word: str, now: float) -> None:  # noqa: ARG002
        self._source.append(word)
        self._draw(self._running())

    def wrote(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        self._target.append(word.text)
        self._lag.delays.append(word.delay)
        self._draw(self._running())

    def ended(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        # A word that did not fit into its sentence any more has been heard, and belongs to the next one.
        following = self._source[end.length :]
        del self._source[end.length :]
        self._draw(self._lag.end(end.length))
        self.leave()
        self.console.print()
        self._source, self._target = following, []


class Typed(Sink):
    """A terminal on which the source is typed: it stands there already, and each line is answered by another."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._lag = Lag()
        self._text = Text()

    def wrote(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        self._lag.delays.append(word.delay)
        self._text.append(word.text + " ", style="bold")

    def ended(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        self._text.append(" " + self._lag.end(end.length), style="cyan")
        self.paused()

    def paused(self) -> None:
        if self._text:
            self.console.print(self._text, soft_wrap=True)
        self._text = Text()

    def close(self) -> None:
        self.paused()


def pick(as_json: bool, stdin_is_terminal: bool, console: Console) -> Sink:
    """What suits where the words go and where they come from."""
    if as_json:
        return JsonLines(sys.stdout)
    if not console.is_terminal:
        return Plain(sys.stdout)
    return Typed(console) if stdin_is_terminal else Screen(console)


def teller(sink: Sink) -> Callable[[str], None]:
    """Notes go to stderr, but not through what is drawn on the same screen."""

    def say(text: str) -> None:
        if isinstance(sink, Drawn) and sys.stderr.isatty():
            sink.note(text)
        else:
            print(f"whilst: {text}", file=sys.stderr, flush=True)

    return say
