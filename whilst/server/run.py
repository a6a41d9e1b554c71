"""`whilst serve`: from options to a server that runs until it is told to stop, in one process or several."""

import contextlib
import logging
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.server.app import make_app
from whilst.server.meter import Meter
from whilst.server.processes import supervise
from whilst.server.protocol import Limits
from whilst.server.served import How, Served, serve_model
from whilst.server.socket import ABORT
from whilst.server.talk import Door, Hub

BACKLOG = 2048  # connections that wait to be taken
UNTAKEN = 60_000  # milliseconds until a connection ends whose other side takes nothing
PING = 20.0  # seconds between two pings, and for the answer: who has gone without a word is noticed


@dataclass(frozen=True)
class Options:
    model: str  # its name, or a folder
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    door: Door = field(default_factory=Door)
    overrides: tuple[str, ...] = ()
    how: How = field(default_factory=How)

    def load(self) -> Served:
        return serve_model(self.model, self.overrides, self.how)


class Protocol(WebSocketsSansIOProtocol):
    """Lets the app cut off a client that does not read: closing politely would wait for it for ever."""

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][ABORT] = {"cut": self.transport.abort}


class Server(uvicorn.Server):
    """Finishes what was fed before it closes connections; to be told to stop is no failure."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        limits = hub.limits
        config = uvicorn.Config(
            make_app(hub),
            log_config=None,
            access_log=False,
            ws=Protocol,
            # Beyond our own limit, so that we can say what is wrong; beyond this the connection is closed at once.
            ws_max_size=4 * limits.message_bytes + 1024,
            ws_per_message_deflate=False,  # a session's windows would take more memory than its words
            ws_ping_interval=PING,
            ws_ping_timeout=PING,
            timeout_graceful_shutdown=int(limits.grace),
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self.hub.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with handle_signals(STOP_SIGNALS, self.handle_exit):
            yield


def work(options: Options, served: Served, bound: socket.socket, counts: Path | None) -> None:
    """Serve in this process."""
    Server(Hub(served, options.limits, options.door, Meter(counts))).run([bound])


def work_apart(options: Options, bound: socket.socket, counts: Path) -> None:
    """Serve in one of several processes, which loads the model for itself."""
    logging.basicConfig(level=logging.WARNING, format="whilst: %(message)s")
    work(options, options.load(), bound, counts)


def bind(options: Options) -> list[socket.socket]:
    """A socket for each worker, all at one port (0 chooses a free one).

    Workers that waited at one socket would not share alike: who woke up first last time does so again.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    found: list[socket.socket] = []
    try:
        port = options.port
        with socket.create_server((options.host, port), family=family) as alone:  # nobody else is there
            port = alone.getsockname()[1]
        for _ in range(options.workers):
            several = options.workers > 1
            found.append(socket.create_server((options.host, port), family=family, reuse_port=several))
            found[-1].listen(BACKLOG)
            if sys.platform == "linux":  # connections inherit it: what nobody takes is not kept for ever
                found[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN)
    except (OSError, OverflowError, ValueError) as error:
        for bound in found:
            bound.close()
        raise UserError(f"--host {options.host} --port {options.port}: cannot be served at ({error})") from None
    return found


def announce(options: Options, served: Served, port: int) -> None:
    host = f"[{options.host}]" if ":" in options.host else options.host
    limits = options.limits
    latencies = ", ".join(f"{name} = {policy}" for name, policy in served.latencies.items())
    workers = f"{options.workers} workers, each with " if options.workers > 1 else ""
    rows = {
        "address": f"http://{host}:{port}  (WebSocket /v1/stream, POST /v1/translate, /healthz, /metrics)",
        "model": f"{options.model}: {served.source} to {served.target}, {options.how.engine} {served.precision}",
        "latencies": latencies,
        "limits": f"{workers}{limits.sessions} sessions of {limits.words:,} words, messages of"
        f" {limits.message_bytes:,} bytes, {limits.idle:g} s without one",
        "token": "wanted" if options.door.token else "none: whoever reaches the address can use it",
    }
    for name, value in rows.items():
        notes.print(f"{name:10}{value}", markup=False, highlight=False, soft_wrap=True)


def serve(options: Options) -> None:
    logging.basicConfig(level=logging.WARNING, format="whilst: %(message)s")
    with contextlib.ExitStack() as left:
        sockets = [left.enter_context(contextlib.closing(bound)) for bound in bind(options)]
        served = options.load()
        announce(options, served, sockets[0].getsockname()[1])
        if options.workers == 1:
            work(options, served, sockets[0], None)
            return
        del served
        counts = Path(left.enter_context(tempfile.TemporaryDirectory(prefix="whilst-")))
        supervise(work_apart, [(options, bound, counts) for bound in sockets])
