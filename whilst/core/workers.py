"""Work for other processes whilst this one, which has the GPU, goes on with the next."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
MOST = 4  # more than keep up with one GPU have nothing to do


def helpers() -> int:
    """How many other processes this machine has room for."""
    return min(MOST, (os.cpu_count() or 1) - 1)


def all_done(works: Iterable[Callable[[], T]], count: int) -> list[T]:
    """What each gives, in order; with a count by so many other processes, as soon as it is there to be done.

    Then what it is made of must be plain data. If making the next one fails, those before it are still done.
    """
    if not count:
        return [work() for work in works]
    # A fresh process: a copy of this one would hold half of a GPU's driver.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, fresh, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]
