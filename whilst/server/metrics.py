"""Prometheus metrics. Methods may be called from any thread.

With several workers, PROMETHEUS_MULTIPROC_DIR must be set before this module is imported (run.py): counters
are then sums over all workers, and gauges have one value for each worker.
"""

import math
import os
import struct
import time
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # environment variable of prometheus_client
MEMORY_EVERY = 1.0  # seconds between readings of the process's memory, each of which opens a file
SECONDS = 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0  # buckets of the histogram
disable_created_metrics()  # type: ignore[no-untyped-call]


def resident_bytes(process: int | str = "self") -> int:
    """The memory of a process; 0 where the system does not say."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, labelnames=["process"], multiprocess_mode="livesum", registry=self._registry)
        process = str(os.getpid())
        self._open = gauge("whilst_open_sessions", "Open sessions.").labels(process)
        self.watchers = gauge("whilst_open_watchers", "Watchers of published sessions.").labels(process)
        self._memory = gauge("whilst_resident_bytes", "Memory of the process.").labels(process)
        self._sessions = counter("whilst_sessions_total", "Sessions opened.", ["kind"])
        self._words = counter("whilst_source_words_total", "Source words translated.")
        self.audio_seconds = counter("whilst_audio_seconds_total", "Seconds of audio recognised.")
        self._errors = counter("whilst_errors_total", "Errors sent to clients.", ["code"])
        self._steps = counter("whilst_steps_total", "Calls of the model.", ["step"])
        self._rows = counter("whilst_step_rows_total", "Sessions in these calls (per call: batch size).", ["step"])
        self._seconds = counter("whilst_step_seconds_total", "Time of these calls.", ["step"])
        description = "From a client message's arrival until its words were read."
        self._latency = Histogram("whilst_message_seconds", description, buckets=SECONDS, registry=self._registry)
        self._measured = -math.inf  # time of the last measurement of the memory
        self._measure_memory()

    def _measure_memory(self) -> None:
        if (now := time.monotonic()) >= self._measured + MEMORY_EVERY:
            self._measured = now
            self._memory.set(resident_bytes())

    def count_session(self, kind: str) -> None:
        self._open.inc()
        self._sessions.labels(kind).inc()
        self._measure_memory()

    def count_session_end(self) -> None:
        self._open.dec()

    def count_error(self, code: str) -> None:
        self._errors.labels(code).inc()

    def count_step(self, step: str, rows: int, seconds: float) -> None:
        """One call of the model for `rows` sessions."""
        self._steps.labels(step).inc()
        self._rows.labels(step).inc(rows)
        self._seconds.labels(step).inc(seconds)

    def count_message(self, words: int, seconds: float) -> None:
        self._words.inc(words)
        self._latency.observe(seconds)
        self._measure_memory()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type, for the Accept header of the request."""
        encode, content_type = choose_encoder(accept)
        if FOLDER not in os.environ:
            return encode(self._registry), content_type
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        while True:
            try:
                return encode(registry), content_type
            except struct.error:  # the file of a worker that is just starting is still empty
                time.sleep(0.01)
