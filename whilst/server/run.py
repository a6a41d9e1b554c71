"""The command `whilst serve`: the server in one process or several, until it is stopped."""

import contextlib
import logging
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.server.app import make_app
from whilst.server.metrics import Metrics
from whilst.server.processes import supervise
from whilst.server.protocol import Limits
from whilst.server.served import EngineOptions, Served, serve_model
from whilst.server.sessions import AccessControl, SessionManager
from whilst.server.websocket import ABORT

BACKLOG = 2048  # connections waiting to be accepted
USER_TIMEOUT = 60_000  # milliseconds without TCP acknowledgement until a connection is closed
PING = 20.0  # seconds between WebSocket pings, and to answer one


@dataclass(frozen=True)
class ServeOptions:
    model: str  # a folder or a name
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    access: AccessControl = field(default_factory=AccessControl)
    overrides: tuple[str, ...] = ()
    how: EngineOptions = field(default_factory=EngineOptions)

    def load(self) -> Served:
        return serve_model(self.model, self.overrides, self.how)

    def manager(self, served: Served | None = None) -> SessionManager:
        """`served`: the model, if it is loaded already."""
        return SessionManager(served or self.load(), self.limits, self.access, Metrics())


class Protocol(WebSocketsSansIOProtocol):
    """Offers the app to abort a connection: a closing handshake would wait for a client that does not read."""

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][ABORT] = {"abort": self.transport.abort}


class Server(uvicorn.Server):
    """Translates the words received so far before it closes connections. A signal to stop is no failure."""

    def __init__(self, manager: SessionManager) -> None:
        self.manager = manager
        limits = manager.limits
        config = uvicorn.Config(
            make_app(manager),
            log_config=None,
            access_log=False,
            ws=Protocol,
            # Above our own limit, which is answered with an error; beyond this one the connection is closed.
            ws_max_size=4 * limits.message_bytes + 1024,
            ws_per_message_deflate=False,  # its windows take more memory than a session's words
            ws_ping_interval=PING,
            ws_ping_timeout=PING,
            timeout_graceful_shutdown=int(limits.drain),
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self.manager.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with handle_signals(STOP_SIGNALS, self.handle_exit):
            yield


def run_worker(options: ServeOptions, bound: socket.socket) -> None:
    """One of several processes; it loads the model itself."""
    logging.basicConfig(level=logging.WARNING, format="whilst: %(message)s")
    Server(options.manager()).run([bound])


def bind(options: ServeOptions) -> list[socket.socket]:
    """A socket for each worker, all at one port (0: a free one).

    With one socket for all, the worker that was woken last would take most connections.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    sockets: list[socket.socket] = []
    try:
        # Without reuse_port, so that a port in use is an error.
        with socket.create_server((options.host, options.port), family=family) as probe:
            address = options.host, probe.getsockname()[1]
        for _ in range(options.workers):
            bound = socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=options.workers > 1)
            sockets.append(bound)
            if sys.platform == "linux":  # inherited by connections
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT)
    except (OSError, OverflowError, ValueError) as error:
        for bound in sockets:
            bound.close()
        raise UserError(f"--host {options.host} --port {options.port}: cannot be served at ({error})") from None
    return sockets


def print_summary(options: ServeOptions, served: Served, port: int) -> None:
    host = f"[{options.host}]" if ":" in options.host else options.host
    limits = options.limits
    workers = f"{options.workers} workers, each with " if options.workers > 1 else ""
    rows = {
        "address": f"http://{host}:{port}  (WebSocket /v1/stream, POST /v1/translate, /healthz, /metrics)",
        "model": f"{options.model}: {served.source} to {served.target}, {options.how.engine} {served.precision}",
        "latencies": ", ".join(f"{name} = {policy}" for name, policy in served.latencies.items()),
        "limits": f"{workers}{limits.sessions} sessions of {limits.words:,} words, messages of"
        f" {limits.message_bytes:,} bytes, {limits.idle:g} s without one",
        "token": "required" if options.access.token else "none: anyone who reaches the address can use it",
    }
    for name, value in rows.items():
        notes.print(f"{name:10}{value}", markup=False, highlight=False, soft_wrap=True)


def serve(options: ServeOptions) -> None:
    logging.basicConfig(level=logging.WARNING, format="whilst: %(message)s")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(bound)) for bound in bind(options)]
        served = options.load()
        print_summary(options, served, sockets[0].getsockname()[1])
        if options.workers == 1:
            Server(options.manager(served)).run(sockets)
            return
        del served
        supervise(run_worker, [(options, bound) for bound in sockets])
