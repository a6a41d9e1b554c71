"""Outputs of a live session: plain text, JSON lines, and three terminal displays.

Times are seconds since the session began.
"""

import abc
import json
import sys
from statistics import median, quantiles
from typing import TextIO

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from whilst.core.action_rows import action_rows
from whilst.live.session import SentenceEnd, Word
from whilst.live.summary import Summary


class Output(abc.ABC):
    """Receives the events of a session in order."""

    def source_word(self, word: str, now: float) -> None:  # noqa: B027  (most outputs do not show the source)
        """A source word was read from the input."""

    @abc.abstractmethod
    def target_word(self, word: Word, arrived: float, now: float) -> None:
        """A word was written; `arrived` is the time of the source word that allowed it."""

    @abc.abstractmethod
    def sentence_end(self, end: SentenceEnd, now: float) -> None: ...

    def note(self, text: str) -> None:
        """A message for the user."""
        print(f"whilst: {text}", file=sys.stderr, flush=True)

    def flush(self) -> None:  # noqa: B027
        """Nothing more follows until more source arrives."""

    def close(self) -> None:  # noqa: B027
        """The session is over."""


class PlainOutput(Output):
    """One sentence per line, each word as soon as it is written."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self._in_sentence = False

    def target_word(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        print(f" {word.text}" if self._in_sentence else word.text, end="", file=self.out, flush=True)
        self._in_sentence = True

    def sentence_end(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        print(file=self.out, flush=True)
        self._in_sentence = False

    def close(self) -> None:
        if self._in_sentence:
            print(file=self.out, flush=True)


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
    """An output on a terminal that shows the lag of each sentence."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._summary = Summary()

    def _lag(self, end: SentenceEnd) -> str:
        """The average lagging of the sentence, and of all so far."""
        lag, mean = self._summary.add(end), self._summary.mean_lag
        if lag is None or mean is None:
            return ""
        return f"lag {lag:.1f} words" + (f", {mean:.1f} on average" if self._summary.lag_count > 1 else "")


class InteractiveDisplay(Display):
    """For source typed at the same terminal: each line is answered by a line."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._text = Text()

    def target_word(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        self._summary.add(word)
        self._text.append(word.text + " ", style="bold")

    def sentence_end(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        self._text.append(" " + self._lag(end), style="cyan")
        self.flush()

    def flush(self) -> None:
        if self._text:
            self.console.print(self._text, soft_wrap=True)
        self._text = Text()

    close = flush


class RedrawnDisplay(Display):
    """Redraws the current sentence as it grows."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._source: list[str] = []
        self._target: list[list[str]] = []  # the words written after each source word, before the next
        self._start = 0  # source words of the session before the first that is shown
        self._live: Live | None = None

    @abc.abstractmethod
    def _render(self, lag: str | None) -> Text:
        """The current sentence, with its lag at its end."""

    def _draw(self, lag: str | None = None) -> None:
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
        self._freeze()
        self.console.print()
        self._source, self._target = following, [[] for _ in following]

    def note(self, text: str) -> None:
        """Above the current sentence if stderr is the same terminal."""
        if sys.stderr.isatty():
            self.console.print(text, style="yellow", markup=False)
        else:
            super().note(text)

    def _freeze(self) -> None:
        """Leave what is drawn on the screen; the next drawing starts below it."""
        if self._live is not None:
            self._live.stop()
        self._live = None

    close = _freeze


class TextDisplay(RedrawnDisplay):
    """The source above its translation."""

    def _render(self, lag: str | None) -> Text:
        target = [word for words in self._target for word in words]
        behind = f"{max(0, len(self._source) - len(target))} behind" if lag is None else lag
        text = Text(" ".join(self._source), style="dim")
        text.append("\n" + " ".join(target), style="not dim bold")
        return text.append(f"  {behind}" if behind else "", style="not bold cyan")


class ActionDisplay(RedrawnDisplay):
    """`--show`: every READ and WRITE in two rows, and a table at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._read = 0
        self._delays: list[float] = []  # seconds from the source word that allowed a word to that word

    def source_word(self, word: str, now: float) -> None:
        self._read += 1
        super().source_word(word, now)

    def target_word(self, word: Word, arrived: float, now: float) -> None:
        self._delays.append(now - arrived)
        super().target_word(word, arrived, now)

    def _render(self, lag: str | None) -> Text:
        text = action_rows(self._source, self._target, self.console.width)
        count = sum(map(len, self._target))
        return text.append(lag or f"{len(self._source)} read, {count} written", style="yellow" if lag else "dim")

    def close(self) -> None:
        super().close()
        if not self._delays:
            return
        late = quantiles(self._delays, n=20)[-1] if len(self._delays) > 1 else self._delays[0]
        delays = f"{1000 * median(self._delays):.0f} ms, {1000 * late:.0f} ms"
        rows = {
            "sentences": f"{self._summary.sentences:,}",
            "words read, written": f"{self._read:,}, {self._summary.words:,}",
            "average lagging (words)": f"{self._summary.mean_lag or 0.0:.1f}",
            "written after its source word: median, 95 %": delays,
        }
        table = Table(Column(style="dim"), Column(justify="right"), box=box.SIMPLE, show_header=False)
        for row in rows.items():
            table.add_row(*row)
        self.console.print(table)


def choose_output(as_json: bool, show_actions: bool, typed: bool, console: Console) -> Output:
    """`typed`: the source is typed at a terminal."""
    if show_actions:
        return ActionDisplay(console)
    if as_json:
        return JsonOutput(sys.stdout)
    if not console.is_terminal:
        return PlainOutput(sys.stdout)
    return InteractiveDisplay(console) if typed else TextDisplay(console)
