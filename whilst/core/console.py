"""Terminal output: one console for results, one for messages, and progress bars."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Generic, Self, TypeVar

from rich.console import Console

T = TypeVar("T")

console = Console(highlight=False)  # results, on stdout
# Messages, on stderr, above any progress bar. Paths are printed literally: no line breaks, no markup.
notes = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


class ProgressBar(Generic[T]):
    """Shows counts, time left and `figures` on stderr: as a bar on a terminal, otherwise as a line now and then.

    Iterate over it, or use it as a context manager and call `update`. `figures` is text such as the current loss.
    """

    DELAY = 1.0  # seconds until the bar is shown
    REFRESH = 0.1  # seconds between updates
    FIRST_LINE, NEXT_LINES = 10.0, 60.0  # seconds before the first line, and between lines

    def __init__(self, items: Iterable[T], what: str, unit: str, total: int | None = None, start: int = 0) -> None:
        if total is None and isinstance(items, Sized) and items:
            total = len(items)
        self.items, self.done, self.figures = items, start, ""
        self.what, self.unit, self.total, self.start = what, unit, total, start
        self._progress = None
        self._began = time.monotonic()
        self._next = self._began + self.FIRST_LINE
        if not sys.stderr.isatty():
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        counts = TextColumn("{task.completed:,.0f}" + ("/{task.total:,.0f} " if total else " ") + unit)
        figures = TextColumn("{task.fields[figures]}")
        # Output is not redirected: stdout may be a file.
        self._progress = Progress(
            *(TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn(), figures),
            console=notes,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task(what, total=total, completed=start, figures="")
        self._next = self._began + self.DELAY

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __iter__(self) -> Iterator[T]:
        with self:
            for item in self.items:
                yield item
                self.update()

    def update(self, count: int = 1) -> None:
        self.done += count
        if (now := time.monotonic()) < self._next:
            return
        if self._progress is None:
            self._next = now + self.NEXT_LINES
            if self.done != self.total:
                notes.print(self._line(now - self._began))
            return
        self._next = now + self.REFRESH
        self._progress.update(self._task, completed=self.done, figures=self.figures)
        self._progress.start()  # no effect after the first time
        self._progress.refresh()

    def _line(self, seconds: float) -> str:
        """A line such as "training: 120/800 steps, training loss 4.123, 3,021 tokens/s, 12 min left"."""
        counts, left = f"{self.done:,}", ""
        if self.total:
            counts += f"/{self.total:,}"
            left = f"{duration((self.total - self.done) * seconds / max(1, self.done - self.start))} left"
        return f"{self.what}: " + ", ".join(filter(None, (f"{counts} {self.unit}", self.figures, left)))


def duration(seconds: float) -> str:
    """Round seconds to the largest unit that gives at least 2: 90 s, 2 min, 119 min, 2 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


progress_bar = ProgressBar
