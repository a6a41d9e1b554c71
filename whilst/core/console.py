"""What a person sees: one console for messages and tables, one kind of progress bar."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from tqdm import tqdm

T = TypeVar("T")

console = Console(highlight=False)  # results: stdout
# What is going on: stderr. Paths are printed as they are, never broken or taken for markup.
notes = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


def track(items: Iterable[T], what: str, unit: str, total: int | None = None, start: int = 0) -> Iterator[T]:
    """Iterate with a bar that shows throughput and time left; silent when stderr is no terminal."""
    yield from bar(items, what, unit, total, start)


def bar(items: Iterable[T] | None, what: str, unit: str, total: int | None = None, start: int = 0) -> "tqdm[T]":
    """The bar itself, for loops that set their own progress and figures."""
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
        delay=1,  # what is over in a moment needs no bar
        leave=False,  # and what is over needs none any more
    )


def say(line: str) -> None:
    """A note that goes above the bars, not through them."""
    with tqdm.external_write_mode(file=sys.stderr):
        notes.print(line)
