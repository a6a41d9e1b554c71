"""The command `whilst serve`: the server in one process or several, until it is stopped.

With several processes, a killed worker is replaced, and all are stopped together. uvicorn's supervisor is not used:
its workers share one socket, it kills a worker that does not answer within seconds, for example while a model is
loaded, and its workers survive when it is killed itself.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.server.app import make_app
from whilst.server.audience import LocalAudience, RemoteAudience, run_hub
from whilst.server.metrics import FOLDER, Metrics
from whilst.server.protocol import Limits
from whilst.server.served import EngineOptions, Served, serve_model
from whilst.server.sessions import AccessControl, SessionManager
from whilst.server.speech import speech_missing
from whilst.server.websocket import ABORT

HEADER_TIMEOUT = 10.0  # seconds for the first request of a connection to arrive
USER_TIMEOUT = 60_000  # milliseconds without TCP acknowledgement until a connection is closed
PING = 20.0  # seconds between WebSocket pings, and to answer one
POLL = 0.2  # seconds between checks of the workers
RESTART_DELAY = 1.0  # seconds until a worker is replaced: workers that keep ending must not take all CPU time
log = logging.getLogger("whilst.serve")


@dataclass(frozen=True)
class ServeOptions:
    models: tuple[str, ...]  # folders or names; the first is the default
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    access: AccessControl = field(default_factory=AccessControl)
    overrides: tuple[str, ...] = ()
    engine_options: EngineOptions = field(default_factory=EngineOptions)
    policy_files: tuple[Path, ...] = ()  # Python files with policies
    recogniser: str = ""  # a program that recognises speech, instead of moonshine-voice

    def load(self) -> list[Served]:
        if self.policy_files:
            from whilst.policy.registry import register_files

            register_files(self.policy_files)
        served = [serve_model(model, self.overrides, self.engine_options) for model in self.models]
        names = [loaded.name for loaded in served]
        for index, (model, name) in enumerate(zip(self.models, names, strict=True)):
            if name in names[:index]:
                other = self.models[names.index(name)]
                raise UserError(f"--model {model}: {other} translates {name} already; serve one of them")
        return served

    def manager(self, served: Sequence[Served] = (), hub: str = "") -> SessionManager:
        """`served`: the models, if they are loaded already. `hub`: the hub's socket, if another process has it."""
        audience = RemoteAudience(hub) if hub else LocalAudience()
        models = served or self.load()
        return SessionManager(models, self.limits, self.access, Metrics(), audience, self.recogniser)


class Protocol(WebSocketsSansIOProtocol):
    """Lets the app abort a connection: a closing handshake would wait for a client that does not read."""

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][ABORT] = {"abort": self.transport.abort}


class HttpProtocol(H11Protocol):
    """Closes a connection on which no request arrives."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEADER_TIMEOUT, self._close_without_request)

    def _close_without_request(self) -> None:
        upgraded = self.transport.get_protocol() is not self
        if self.cycle is None and not upgraded:
            self.transport.abort()


class Server(uvicorn.Server):
    """Translates the words received so far before it closes connections. A stop signal is not an error."""

    def __init__(self, manager: SessionManager, on_ready: Callable[[], None] = lambda: None) -> None:
        """`on_ready` is called once the server accepts connections."""
        self.manager, self._on_ready = manager, on_ready
        limits = manager.limits
        config = uvicorn.Config(
            make_app(manager),
            log_config=None,
            access_log=False,
            http=HttpProtocol,
            h11_max_incomplete_event_size=2 * limits.header_bytes,  # higher than our own limit, which has a message
            ws=Protocol,
            # Higher than our own limit, which is reported as an error; above this one the connection is closed.
            ws_max_size=4 * limits.message_bytes + 1024,
            ws_per_message_deflate=False,  # its buffers take more memory than the words of a session
            ws_ping_interval=PING,
            ws_ping_timeout=PING,
            timeout_graceful_shutdown=int(limits.drain),
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self.manager.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with handle_signals(STOP_SIGNALS, self.handle_exit):
            yield


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def run_worker(options: ServeOptions, port: int, hub: str, ready: Semaphore) -> None:
    """One of several worker processes; it loads the models itself.

    Each worker has its own socket: connections to a killed worker are refused, and new ones go to the others. With
    one socket for all, the worker that was woken last would take most connections.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent stops its children
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.WARNING, format="whilst: %(message)s")
    manager = options.manager(hub=hub)
    with open_socket(options.host, port, shared=True) as bound:
        Server(manager, ready.release).run([bound])


def supervise(options: ServeOptions, port: int, on_ready: Callable[[], None]) -> None:
    """Run the workers until SIGINT or SIGTERM; `on_ready` is called once all of them are ready.

    A worker that ends is replaced. If it ends with an error of its own, all are stopped: the next would fail again.
    """
    context = multiprocessing.get_context("spawn")
    signals: list[int] = []
    ready, missing = context.Semaphore(0), options.workers

    def start() -> BaseProcess:
        process = context.Process(target=run_worker, args=(options, port, hub, ready))
        process.start()
        return process

    with (
        tempfile.TemporaryDirectory(prefix="whilst-") as folder,
        run_hub(hub := f"{folder}/hub"),
        handle_signals(STOP_SIGNALS, lambda number, _: signals.append(number)),
    ):
        os.environ[FOLDER] = folder  # inherited
        processes = [start() for _ in range(options.workers)]
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
                    log.warning("worker %s ended with %s; a new one starts", process.pid, process.exitcode)
                    time.sleep(RESTART_DELAY)
                    processes[index] = start()
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()


def open_socket(host: str, port: int, shared: bool) -> socket.socket:
    """A bound socket that does not listen yet. `shared`: other sockets may have the same port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if sys.platform == "linux":  # inherited by connections
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT)
    bound.bind((host, port))
    return bound


def reserve_port(options: ServeOptions) -> socket.socket:
    """Bind the port before models are loaded, so that a port in use is reported at once."""
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        # Only listening tells whether a port is in use: several sockets may be bound to it.
        with socket.create_server((options.host, options.port), family=family) as probe:
            port = probe.getsockname()[1]
        return open_socket(options.host, port, shared=options.workers > 1)
    except (OSError, OverflowError, ValueError) as error:
        address = f"--host {options.host} --port {options.port}"
        raise UserError(f"{address}: cannot be served at ({error})") from None


def summarise(options: ServeOptions, served: Sequence[Served], port: int) -> list[str]:
    """The lines that tell the user what is served, and where."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    limits = options.limits
    workers = f"{options.workers} workers, each with " if options.workers > 1 else ""
    rows = [("address", f"http://{host}:{port}  (WebSocket /v1/stream, POST /v1/translate, /readyz, /metrics)")]
    for argument, loaded in zip(options.models, served, strict=True):
        languages = " to ".join(loaded.model.languages)
        latencies = ", ".join(f"{name} = {policy}" for name, policy in loaded.model.latencies.items())
        rows += [("model", f"{argument}: {languages}, {loaded.engine}"), ("latencies", latencies)]
    missing = [speech_missing(options.recogniser, limits, loaded.model.languages[0]) for loaded in served]
    rows += [
        (
            "limits",
            f"{workers}{limits.sessions} sessions of {limits.words:,} words, messages of"
            f" {limits.message_bytes:,} bytes, {limits.idle:g} s without one; {limits.watchers:,} watchers",
        ),
        ("speech", missing[0] if all(missing) else f"{workers}{limits.speakers} speakers at a time"),
        ("token", "required" if options.access.token else "none: anyone who reaches the address can use it"),
    ]
    return [f"{name:10}{value}" for name, value in rows]


def print_summary(lines: Sequence[str]) -> None:
    for line in lines:
        notes.print(line, markup=False, highlight=False, soft_wrap=True)


def default_workers(device: str) -> int:
    """One per core, at most 4. One on a GPU, and where the system does not spread connections over processes."""
    if device != "cpu" or sys.platform != "linux":
        return 1
    return min(4, len(os.sched_getaffinity(0)))


def allow_connections() -> None:
    """Raise the limit of open files, often 1,024, to what the system allows: each connection takes one."""
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS reports "infinity" and allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))


def serve(options: ServeOptions) -> None:
    allow_connections()  # inherited by the workers
    logging.basicConfig(level=logging.WARNING, format="whilst: %(message)s")
    with reserve_port(options) as bound:
        port = bound.getsockname()[1]
        served = options.load()
        on_ready = partial(print_summary, summarise(options, served, port))
        if options.workers == 1:
            Server(options.manager(served), on_ready).run([bound])
        else:
            del served  # only the workers need the models
            supervise(options, port, on_ready)
