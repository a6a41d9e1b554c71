"""Several processes that do the same work: one that dies is replaced, and all are told to stop together."""

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

from whilst.core.errors import UserError
from whilst.core.signals import STOP_SIGNALS, handle_signals

log = logging.getLogger("whilst.serve")
QUICK = 5.0  # seconds: who lived no longer than this is replaced after as long


def _follow() -> None:
    """End when the parent has gone, however it went."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _child(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    # Ctrl-C reaches everyone on the terminal; it is the parent who passes it on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()
    work(*arguments)


@contextlib.contextmanager
def told_to_stop() -> Iterator[int]:
    """A descriptor that can be read from when someone has told us to stop."""
    waker, wake = os.pipe()
    try:
        with handle_signals(STOP_SIGNALS, lambda *_: os.write(wake, b"x")):
            yield waker
    finally:
        os.close(waker)
        os.close(wake)


def supervise(work: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """A process for each of the arguments, until SIGINT or SIGTERM.

    One that was killed is replaced; one that gives up by itself would give up again.
    """
    context = multiprocessing.get_context("spawn")

    began = [0.0] * len(arguments)

    def start(place: int) -> BaseProcess:
        process = context.Process(target=_child, args=(work, arguments[place]))
        process.start()
        began[place] = time.monotonic()
        return process

    with told_to_stop() as waker:
        processes = [start(place) for place in range(len(arguments))]
        try:
            while waker not in connection.wait([*(process.sentinel for process in processes), waker]):
                for place, process in enumerate(processes):
                    if process.exitcode is None:
                        continue
                    if process.exitcode > 0:
                        raise UserError("a worker could not go on; it says why above")
                    log.warning("worker %s ended with %s; another one begins", process.pid, process.exitcode)
                    if time.monotonic() - began[place] < QUICK:  # what kills them at once must not keep us busy
                        connection.wait([waker], QUICK)
                    processes[place] = start(place)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()
