"""Metrics of several worker processes."""

import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from tests.helpers.runs import ENVIRONMENT
from whilst.server.metrics import FOLDER

COUNT = """
import os
from whilst.server.metrics import Metrics
metrics = Metrics()
for kind in ("stream", "stream", "translate"):
    metrics.count_session(kind)
metrics.count_session_end()
print(os.getpid())
print(metrics.render()[0].decode())
"""


def test_metrics_of_all_workers(tmp_path: Path) -> None:
    """Counters are sums over workers, gauges are those of the workers that live."""
    outputs = []
    for _ in range(2):
        process = [sys.executable, "-c", COUNT]
        done = subprocess.run(process, env=ENVIRONMENT | {FOLDER: str(tmp_path)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    (first, *_), (second, *lines) = outputs
    assert 'whilst_sessions_total{kind="stream"} 4.0' in lines
    assert 'whilst_sessions_total{kind="translate"} 2.0' in lines
    assert lines.count("# TYPE whilst_sessions_total counter") == 1
    assert {f'whilst_open_sessions{{process="{process}"}} 2.0' for process in (first, second)} <= set(lines)
    mark_process_dead(int(first), str(tmp_path))  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(tmp_path))  # type: ignore[no-untyped-call]
    assert f'process="{first}"' not in generate_latest(registry).decode()
