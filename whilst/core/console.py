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
    """A bar on stderr with counts, time left and `figures`: shown after a second, and only on a terminal.

    Iterate over it, or use it as a context and call `update`.
    """

    DELAY = 1.0  # seconds until the bar is shown
    REFRESH = 0.1  # seconds between updates

    def __init__(self, items: Iterable[T], what: str, unit: str, total: int | None = None, start: int = 0) -> None:
        self.items, self.done, self.figures = items, start, ""
        self._progress = None
        if not sys.stderr.isatty():
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if total is None and isinstance(items, Sized) and items:
            total = len(items)
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
        self._next = time.monotonic() + self.DELAY

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
        if self._progress is None or (now := time.monotonic()) < self._next:
            return
        self._next = now + self.REFRESH
        self._progress.update(self._task, completed=self.done, figures=self.figures)
        self._progress.start()  # no effect after the first time
        self._progress.refresh()


progress_bar = ProgressBar
