"""A server in a thread of the tests' own process, on a real port, and clients that talk to it."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.live.test_session import make_text
from whilst.live.eager import Eager
from whilst.live.session import Event, Session, TextPipeline, Word
from whilst.model.transformer import Translator
from whilst.policy import policy
from whilst.server.metrics import Metrics
from whilst.server.pool import Batched
from whilst.server.protocol import Limits
from whilst.server.run import Server
from whilst.server.served import Served
from whilst.server.sessions import AccessControl, SessionManager

LATENCIES = {"low": "wait-1", "medium": "wait-2", "high": "wait-5"}


def make_served(model: Translator, text: TextPipeline | None = None) -> Served:
    text = text or make_text(longest=20)

    def pool(places: int) -> Batched:
        return Batched(model, policy, places, text.max_units, text.max_target_units(text.max_units))

    return Served("src-tgt", "src", "tgt", text, LATENCIES, policy, pool, "fp32")


def alone(model: Translator, talk: list[str], name: str = "wait-2") -> list[Event]:
    """What a session says by itself."""
    text = make_text(longest=20)
    session = Session(Eager(model, policy(name), text.max_units, text.max_target_units(text.max_units)), text)
    return [event for word in talk for event in session.feed(word)] + session.finish()


def texts(events: list[Event]) -> list[tuple[str, int, int]]:
    return [(event.text, event.sentence, event.position) for event in events if isinstance(event, Word)]


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it takes too long: {what}"
        time.sleep(0.005)


class Threaded(Server):
    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()  # which are the main thread's


class Site:
    """A running server."""

    def __init__(self, served: Served, limits: Limits, access: AccessControl) -> None:
        self.manager = SessionManager(served, limits, access, Metrics())
        self.server = Threaded(self.manager)
        self.bound = socket.socket()
        # Small, so that a client that does not read is noticed after little.
        self.bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.bound.bind(("127.0.0.1", 0))
        self.bound.listen(128)
        self.port: int = self.bound.getsockname()[1]
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.bound])))
        self.thread.start()
        until(lambda: self.server.started, "starting")

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        self.bound.close()
        assert not self.thread.is_alive()

    def is_empty(self) -> bool:
        """Nobody is there, and the worker has all its places again."""
        worker = self.manager.worker
        return (
            not self.manager.sessions and len(worker._free) == self.manager.limits.sessions and not worker._active
        )

    def connect(self, **options: Any) -> "Client":
        return Client(f"ws://127.0.0.1:{self.port}/v1/stream", options)


@contextlib.contextmanager
def site(served: Served, limits: Limits | None = None, access: AccessControl | None = None) -> Iterator[Site]:
    running = Site(served, limits or Limits(sessions=8), access or AccessControl())
    try:
        yield running
    finally:
        running.stop()


class Client:
    """Checks the numbers of all that it gets."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._left = contextlib.ExitStack()
        self.socket: ClientConnection = self._left.enter_context(connect(url, compression=None, **options))
        self.sent = self.got = 0
        self.time = 0.0
        self.words: list[tuple[str, int, int]] = []

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._left.close()

    def send(self, message: dict[str, Any]) -> None:
        self.socket.send(json.dumps(message))

    def start(self, **fields: str) -> dict[str, Any]:
        self.send({"type": "start", **fields})
        return self.receive()

    def say(self, text: str) -> None:
        self.sent += 1
        self.send({"type": "words", "seq": self.sent, "text": text})

    def finish(self) -> None:
        self.sent += 1
        self.send({"type": "finish", "seq": self.sent})

    def receive(self, timeout: float = 30) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout))
        self.got += 1
        assert message["seq"] == self.got
        assert message["time"] >= self.time
        self.time = message["time"]
        for word in message.get("words", []) if message["type"] == "commit" else []:
            self.words.append((word["text"], word["sentence"], word["source"]))
        return message

    def receive_until(self, kind: str) -> dict[str, Any]:
        while (message := self.receive())["type"] != kind:
            assert message["type"] != "error", message
        return message

    def receive_done(self, seq: int) -> dict[str, Any]:
        """The commit with which this message of ours is done: words may come before, of a slow machine."""
        while (message := self.receive_until("commit"))["ack"] < seq:
            pass
        assert message["ack"] == seq
        return message

    def closed(self) -> int:
        """What the server closed with; nothing may come before that."""
        with pytest.raises(ConnectionClosed) as closed:
            self.socket.recv(30)
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code
