"""Several processes that do the same work: one that dies is replaced, and all are told to stop together."""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from whilst.errors import UserError

log = logging.getLogger("whilst.serve")


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


def supervise(work: Callable[..., None], arguments: tuple[Any, ...], count: int) -> None:
    """Until SIGINT or SIGTERM. A process that dies before it ever served would die again: that is an error."""
    context = multiprocessing.get_context("spawn")
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal stopping
        stopping = True
        os.write(wake, b"x")

    waker, wake = os.pipe()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def start() -> BaseProcess:
        process = context.Process(target=_child, args=(work, arguments))
        process.start()
        return process

    processes = [start() for _ in range(count)]
    try:
        while not stopping:
            connection.wait([*(process.sentinel for process in processes), waker])
            for place, process in enumerate(processes):
                if not stopping and process.exitcode is not None:
                    log.warning("worker %s ended with %s; another one begins", process.pid, process.exitcode)
                    if process.exitcode > 0:
                        raise UserError("a worker could not serve; its message is above")
                    processes[place] = start()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(waker)
        os.close(wake)
