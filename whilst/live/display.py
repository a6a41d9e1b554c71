"""The output of a live session on a terminal. Imported only there: rich takes a tenth of the time of a start."""

from rich.console import Console
from rich.live import Live
from rich.text import Text

from whilst.core.action_rows import action_rows
from whilst.live.output import Output
from whilst.live.session import SentenceEnd, Summary, Word


class Display(Output):
    """Redraws the current sentence on a terminal as it grows, and ends it with its average lagging.

    The source stands above its translation; with `show_actions`, two rows show every READ and WRITE.
    """

    shows_typing = True

    def __init__(self, console: Console, show_actions: bool = False) -> None:
        self.console, self._show_actions = console, show_actions
        self._summary = Summary()
        self._typing = ""  # the unfinished word
        self._source: list[str] = []
        self._target: list[list[str]] = []  # the words written after each source word, before the next
        self._start = 0  # source words of the session before the first that is shown
        self._live: Live | None = None

    def _render(self, lag: str) -> Text:
        words = [word for column in self._target for word in column]
        typing = [self._typing] if self._typing else []
        source, target = [*self._source, *typing], [*self._target, *([] for _ in typing)]
        if self._show_actions:
            text = action_rows(source, target, self.console.width)
        else:
            text = Text(" ".join(source) + "\n", style="dim")
            text.append(" ".join(words) + "\n", style="not dim bold")
        status = lag or f"{len(self._source)} read, {len(words)} written"
        return text.append(status, style="not dim yellow" if lag else "dim")

    def _draw(self, lag: str = "") -> None:
        if self._live is None:
            # No refresh thread, which would draw in the middle of an update; long sentences stay visible.
            self._live = Live(console=self.console, auto_refresh=False, vertical_overflow="visible")
            self._live.start()
        self._live.update(self._render(lag), refresh=True)

    def typing(self, word: str) -> None:
        if word != self._typing:
            self._typing = word
            self._draw()

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
        typing, self._typing = self._typing, ""  # a word of the next sentence
        self._draw(self._lag(end))
        self.close()
        self.console.print()
        self._source, self._target, self._typing = following, [[] for _ in following], typing

    def _lag(self, end: SentenceEnd) -> str:
        """The average lagging of the sentence, and its mean over all sentences so far."""
        lag, mean = self._summary.add(end), self._summary.mean_lag
        if lag is None or mean is None:
            return ""
        return f"lag {lag:.1f} words" + (f", {mean:.1f} on average" if self._summary.lag_count > 1 else "")

    def close(self) -> None:
        """Leave what is drawn on the screen; the next drawing starts below it."""
        if self._live is not None:
            self._live.stop()
        self._live = None
