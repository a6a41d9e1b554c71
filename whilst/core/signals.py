"""Signals that are handled in another way for a while."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP = signal.SIGINT, signal.SIGTERM


@contextmanager
def handled(numbers: tuple[int, ...], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C as Python has it, but for modules that are being imported, which takes seconds: some of them swallow
    the exception, and the command goes on; others make it another. Nothing has begun then, so it ends at once."""
    above = frame
    while above is not None:
        if above.f_code.co_filename == "<frozen importlib._bootstrap>":
            os._exit(128 + number)
        above = above.f_back
    signal.default_int_handler(number, frame)
