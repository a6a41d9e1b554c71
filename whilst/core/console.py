"""Terminal output: one console for results, one for messages, and progress bars."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from tqdm import tqdm

T = TypeVar("T")

console = Console(highlight=False)  # results, on stdout
# Messages, on stderr. Paths are printed literally: no line breaks, no markup.
notes = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


def progress_bar(
    items: Iterable[T] | None, what: str, unit: str, total: int | None = None, start: int = 0
) -> "tqdm[T]":
    """A bar with throughput and time left, silent unless stderr is a terminal. Iterate over it, or update it."""
    return tqdm(
        items,
        desc=what,
        unit=unit,
        total=total,
        initial=start,
        dynamic_ncols=True,
        unit_scale=total is not None and total >= 100_000,
        disable=not sys.stderr.isatty(),
        smoothing=0.05,
        delay=1,  # no bar for what takes less than a second
        leave=False,
    )


def log(line: str) -> None:
    """Print a message above any progress bar."""
    with tqdm.external_write_mode(file=sys.stderr):
        notes.print(line)
