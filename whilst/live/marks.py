"""The terminal display of `whilst live --show`: READ and WRITE in two rows as they happen, a summary at the end."""

from statistics import median, quantiles

from rich import box
from rich.console import Console
from rich.table import Table

from whilst.core.action_rows import in_rows
from whilst.live.displays import Drawn, Lag
from whilst.live.session import SentenceEnd, Word


class Marks(Drawn):
    """A terminal that shows every READ and WRITE as it happens, and sums up at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._lag = Lag()
        self._words: list[str] = []
        self._written: list[list[str]] = []  # below each word
        self._delays: list[float] = []  # seconds from a source word to what it let be written
        self._read = self._sentences = 0
        self._gone = 0  # words that are not drawn any more

    def heard(self, word: str, now: float) -> None:  # noqa: ARG002
        self._words.append(word)
        self._written.append([])
        self._read += 1
        self._draw()

    def wrote(self, word: Word, arrived: float, now: float) -> None:
        place = word.position - 1 - self._gone
        if place < 0:  # the word before it was split, and its rest begins this sentence
            self._words.insert(0, "…")
            self._written.insert(0, [])
            place, self._gone = 0, self._gone - 1
        self._written[place].append(word.text)
        self._lag.delays.append(word.delay)
        self._delays.append(now - arrived)
        self._draw()

    def ended(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        # A word that did not fit into its sentence any more has been heard, and belongs to the next one.
        cut = max(0, end.position - self._gone)
        following = self._words[cut:]
        del self._words[cut:], self._written[cut:]
        self._gone = end.position
        self._sentences += 1
        self._draw(self._lag.end(end.length))
        self.leave()
        self.console.print()
        self._words, self._written = following, [[] for _ in following]

    def _draw(self, lag: str = "") -> None:
        text = in_rows(self._words, self._written, self.console.width)
        count = sum(map(len, self._written))
        text.append(lag or f"{len(self._words)} read, {count} written", style="dim" if not lag else "yellow")
        self.draw(text)

    def close(self) -> None:
        self.leave()
        if not self._delays:
            return
        table = Table(box=box.SIMPLE, show_header=False)
        table.add_column(style="dim")
        table.add_column(justify="right")
        table.add_row("sentences", f"{self._sentences:,}")
        table.add_row("words read, written", f"{self._read:,}, {len(self._delays):,}")
        table.add_row("average lagging (words)", f"{self._lag.mean:.1f}")
        late = quantiles(self._delays, n=20)[-1] if len(self._delays) > 1 else self._delays[0]
        spread = f"{1000 * median(self._delays):.0f} ms, {1000 * late:.0f} ms"
        table.add_row("written after its source word: median, 95 %", spread)
        self.console.print(table)
