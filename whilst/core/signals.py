"""Temporary signal handlers, and a handler of Ctrl-C that also works during imports."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in signal.Signals.__members__
)  # Windows has no SIGHUP


@contextmanager
def handle_signals(numbers: tuple[int, ...], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Install a handler for these signals and restore the previous ones afterwards.

    A signal other than SIGINT that is ignored, such as SIGHUP under nohup, stays ignored.
    """
    handled = [n for n in numbers if n == signal.SIGINT or signal.getsignal(n) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in handled}
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
