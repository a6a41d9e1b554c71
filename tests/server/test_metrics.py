"""Metrics of several worker processes; memory does not grow with the number of sessions."""

import asyncio
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from tests.helpers.runs import ENVIRONMENT
from tests.helpers.serving import make_served
from whilst.model.transformer import Translator
from whilst.server.app import make_app
from whilst.server.audience import LocalAudience
from whilst.server.metrics import FOLDER, Metrics, resident_bytes
from whilst.server.protocol import Limits
from whilst.server.sessions import AccessControl, SessionManager

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


class Sockets:
    """A client at the level of ASGI, without sockets."""

    def __init__(self, frames: list[str]) -> None:
        self.events: list[dict[str, Any]] = [{"type": "websocket.connect"}]
        self.events += [{"type": "websocket.receive", "text": frame} for frame in frames]
        self.sent: list[dict[str, Any]] = []
        self.ready = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self.events:
            return self.events.pop(0)
        await self.ready.wait()
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if message["type"] == "websocket.send":
            self.ready.set()


@pytest.mark.slow
def test_ten_thousand_sessions_leave_nothing_behind(model: Translator) -> None:
    """Whichever state the client leaves them in."""
    start = '{"type":"start"}'
    word, end = '{"type":"words","seq":1,"text":"abc"}', '{"type":"finish","seq":2}'
    scripts = [[start], [start, word], [start, word, end], ["invalid"], [start, end]]
    scope = {"type": "websocket", "path": "/v1/stream", "headers": [], "query_string": b"", "subprotocols": []}

    async def visit(app: Any, number: int) -> None:
        client = Sockets(scripts[number % len(scripts)] if number % 10 == 0 else scripts[number % 2 * 3])
        await app(dict(scope), client.receive, client.send)
        assert json.loads(client.sent[1]["text"])["type"] in ("ready", "error")

    def count() -> tuple[int, int]:
        gc.collect()
        return len(gc.get_objects()), resident_bytes()

    async def stable_count() -> tuple[int, int]:
        """Two counts that agree: the worker's thread may still hold its last round."""
        last, now = None, count()
        while last is None or last[0] != now[0]:
            await asyncio.sleep(0.05)
            last, now = now, count()
        return now

    async def main() -> list[tuple[int, int]]:
        manager = SessionManager(
            [make_served(model)], Limits(sessions=16), AccessControl(), Metrics(), LocalAudience()
        )
        app = make_app(manager)
        counts = []
        async with app.router.lifespan_context(app):
            for thousand in range(10):
                for begin in range(0, 1000, 10):
                    await asyncio.gather(*(visit(app, 1000 * thousand + begin + n) for n in range(10)))
                while len(manager.workers["src-tgt"]._free) < 16:
                    await asyncio.sleep(0.01)
                assert not manager.sessions
                assert not manager.handshakes
                counts.append(await stable_count())
        return counts

    counts = asyncio.run(main())
    assert counts[-1][0] <= counts[1][0] + 100, "no object remains"
    assert counts[-1][1] <= counts[1][1] + (8 << 20), "no memory remains"
