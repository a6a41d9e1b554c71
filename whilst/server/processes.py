"""Worker processes: a killed one is replaced, and all are stopped together.

uvicorn's supervisor does not fit: its workers share one socket, it kills a worker that does not answer within
seconds, as while a model is loaded, and its workers survive if it is killed itself.
"""

import logging
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from whilst.core.errors import UserError
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.server.metrics import FOLDER

log = logging.getLogger("whilst.serve")
POLL = 0.2  # seconds
RESTART_DELAY = 1.0  # seconds: workers that are killed at once must not take all of the CPU


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _run_child(work: Callable[..., None], arguments: tuple[Any, ...], ready: Semaphore) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent stops its children
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    work(*arguments, ready.release)


def supervise(
    work: Callable[..., None], arguments: tuple[Any, ...], count: int, on_ready: Callable[[], None]
) -> None:
    """Run `work` in `count` processes until SIGINT or SIGTERM; `on_ready` is called once all of them are ready.

    `work` is called with the arguments and a function that says so. A process that ends is replaced, unless it has
    failed by itself, as it would fail again.
    """
    context = multiprocessing.get_context("spawn")
    signals: list[int] = []
    ready, missing = context.Semaphore(0), count

    def start() -> BaseProcess:
        process = context.Process(target=_run_child, args=(work, arguments, ready))
        process.start()
        return process

    with (
        tempfile.TemporaryDirectory(prefix="whilst-") as counts,
        handle_signals(STOP_SIGNALS, lambda number, _: signals.append(number)),
    ):
        os.environ[FOLDER] = counts  # inherited
        processes = [start() for _ in range(count)]
        try:
            while not signals:
                time.sleep(POLL)
                while missing and ready.acquire(block=False):
                    missing -= 1
                    if not missing:
                        on_ready()
                for index, process in enumerate(processes):
                    if process.exitcode is None:
                        continue
                    if process.exitcode > 0:
                        raise UserError("a worker failed; its message is above")
                    assert process.pid is not None
                    mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
                    log.warning("worker %s ended with %s; another one begins", process.pid, process.exitcode)
                    time.sleep(RESTART_DELAY)
                    processes[index] = start()
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()
