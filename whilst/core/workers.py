"""Run jobs in worker processes while the main process uses the GPU."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
MAX_WORKERS = 4  # enough to keep up with one GPU


def worker_count() -> int:
    return min(MAX_WORKERS, (os.cpu_count() or 1) - 1)


def run_in_workers(jobs: Iterable[Callable[[], T]], workers: int) -> list[T]:
    """The results of all jobs, in order. With no workers they run here, else each starts as soon as it is yielded.

    Jobs and results must then be picklable. If `jobs` raises, those already submitted are still completed.
    """
    if not workers:
        return [job() for job in jobs]
    # Spawned, not forked: a fork would inherit part of the GPU driver's state.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]
