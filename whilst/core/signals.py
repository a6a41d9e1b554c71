"""Temporary signal handlers, and a Ctrl-C that also works during imports."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = signal.SIGINT, signal.SIGTERM


@contextmanager
def handle_signals(numbers: tuple[int, ...], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Install a handler for these signals and restore the previous ones afterwards."""
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def interrupt_handler(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but exit at once while a module is being imported.

    Imports take seconds, and some modules catch or replace the exception while they are imported.
    """
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename == "<frozen importlib._bootstrap>":
            os._exit(128 + number)
        caller = caller.f_back
    signal.default_int_handler(number, frame)
