"""Servers for tests: in a thread of the tests' own process, at a real port, and WebSocket clients for them."""

import asyncio
import contextlib
import dataclasses
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.conftest import make_model
from tests.helpers.decoding import policy
from tests.helpers.runs import short_recipe
from tests.live.test_session import LETTERS, make_text
from whilst.core.policy_spec import PolicySpec, not_calibrated
from whilst.core.settings import Data, Evaluate, Recipe
from whilst.data.dataset import Dataset
from whilst.live.loading import Model
from whilst.live.session import Event, Session, TextPipeline, Word
from whilst.live.torch_backend import TorchBackend
from whilst.model.checkpoint import save_tensors, write_run
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.server.audience import LocalAudience
from whilst.server.metrics import Metrics
from whilst.server.protocol import Limits
from whilst.server.run import Server
from whilst.server.served import Served
from whilst.server.sessions import AccessControl, SessionManager
from whilst.server.torch_pool import BatchPool

LATENCIES = {"low": "wait-1", "medium": "wait-2", "high": "wait-5"}
WordAt = tuple[str, int, int]  # text, sentence, source position


def write_run_without_agent(folder: Path, dataset: Dataset, data: Data) -> Path:
    """An untrained run with short translations that depend on the source."""
    evaluate = Evaluate(max_ratio=1.0, max_extra=3, unknown="keep")  # every unit is a word, and can be counted
    recipe = dataclasses.replace(short_recipe(data, folder), evaluate=evaluate)
    write_run(folder, recipe, dataset.source, dataset.target)
    model = make_model(recipe.model, (len(dataset.source), len(dataset.target)), seed=8).float()
    save_tensors(folder / "model.safetensors", model.state_dict(), {})
    return folder


def make_served(translator: Translator, text: TextPipeline | None = None) -> Served:
    text = text or make_text(longest=20)

    def pool(places: int) -> BatchPool:
        return BatchPool(translator, policy, places, *text.longest)

    def find(spec: PolicySpec) -> Policy:
        return policy(str(spec))

    def backend(spec: PolicySpec, text: TextPipeline) -> TorchBackend:
        return TorchBackend(translator, find(spec), *text.longest)

    recipe = Recipe(data=Data(source="src", target="tgt"))
    specs = [PolicySpec.parse(name) for name in LATENCIES.values()]
    return Served(Model(text, recipe, specs[1], specs, not_calibrated, "PyTorch", "", find, backend), pool, "fp32")


def words_of(events: list[Event]) -> list[WordAt]:
    return [(event.text, event.sentence, event.position) for event in events if isinstance(event, Word)]


def translate_alone(model: Translator, words: list[str], name: str = "wait-2") -> list[WordAt]:
    """The reference: a session without a server."""
    text = make_text(longest=20)
    session = Session(TorchBackend(model, policy(name), *text.longest), text)
    return words_of([event for word in words for event in session.feed(word)] + session.finish())


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"timeout: {what}"
        time.sleep(0.005)


def make_words(seed: int, count: int = 40) -> list[str]:
    random = Random(seed)
    return ["".join(random.choices(LETTERS, k=random.randint(1, 4))) for _ in range(count)]


class ThreadServer(Server):
    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()  # only the main thread may


class LocalServer:
    """It keeps its port when it is started again."""

    def __init__(self, served: Sequence[Served], limits: Limits, access: AccessControl, recogniser: str) -> None:
        self._settings, self._recogniser = (served, limits, access), recogniser
        self.port = 0
        self.start()

    def start(self) -> None:
        self.manager = SessionManager(*self._settings, Metrics(), LocalAudience(), self._recogniser)
        self.uvicorn = ThreadServer(self.manager)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Small, so that a client that does not read is noticed soon.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self._socket.bind(("127.0.0.1", self.port))
        self._socket.listen(128)
        self.port = self._socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        wait_until(lambda: self.uvicorn.started, "start")

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.uvicorn.serve([self._socket])

    def stop(self) -> None:
        self.uvicorn.should_exit = True
        self._thread.join(60)
        self._socket.close()
        assert not self._thread.is_alive()

    def kill(self) -> None:
        """Connections are reset, as when a process is killed."""

        def reset() -> None:
            for server in self.uvicorn.servers:
                server.close()
            for connection in self.uvicorn.server_state.connections:
                connection.transport.abort()

        self._loop.call_soon_threadsafe(reset)
        self.stop()

    def is_idle(self) -> bool:
        """No session is open, and the worker has all its slots again."""
        workers = self.manager.workers.values()
        free = all(len(worker._free) == self.manager.limits.sessions for worker in workers)
        free = free and not self.manager.speech.streams
        return not self.manager.sessions and free and not any(worker._active for worker in workers)

    def connect(self, path: str = "/v1/stream", **options: Any) -> "Client":
        return Client(f"ws://127.0.0.1:{self.port}{path}", options)


@contextlib.contextmanager
def local_server(
    served: Served | list[Served],
    limits: Limits | None = None,
    access: AccessControl | None = None,
    recogniser: str = "",
) -> Iterator[LocalServer]:
    models = [served] if isinstance(served, Served) else served
    server = LocalServer(models, limits or Limits(sessions=8), access or AccessControl(), recogniser)
    try:
        yield server
    finally:
        server.stop()


class Client:
    """Checks `seq` and `time` of all messages."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._stack = contextlib.ExitStack()
        self.socket: ClientConnection = self._stack.enter_context(connect(url, compression=None, **options))
        self.sent = self.received = 0
        self.time = 0.0
        self.words: list[WordAt] = []

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def send(self, message: dict[str, Any]) -> None:
        self.socket.send(json.dumps(message))

    def start(self, **fields: str) -> dict[str, Any]:
        self.send({"type": "start", **fields})
        return self.receive()

    def send_words(self, text: str) -> None:
        self.sent += 1
        self.send({"type": "words", "seq": self.sent, "text": text})

    def finish(self) -> None:
        self.sent += 1
        self.send({"type": "finish", "seq": self.sent})

    def receive(self, timeout: float = 30) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout))
        self.received += 1
        assert message["seq"] == self.received
        assert message["time"] >= self.time
        self.time = message["time"]
        for word in message.get("words", []) if message["type"] == "commit" else []:
            self.words.append((word["text"], word["sentence"], word["source"]))
        return message

    def receive_until(self, kind: str) -> dict[str, Any]:
        while (message := self.receive())["type"] != kind:
            assert message["type"] != "error", message
        return message

    def receive_ack(self, seq: int) -> dict[str, Any]:
        """The commit that acknowledges this message; commits before it may have some of its words."""
        while (message := self.receive_until("commit"))["ack"] < seq:
            pass
        assert message["ack"] == seq
        return message

    def close_code(self) -> int:
        """The code that the server closes with, without another message before."""
        with pytest.raises(ConnectionClosed) as closed:
            self.socket.recv(30)
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code


def fetch(server: LocalServer, path: str, data: bytes | None = None, **headers: str) -> tuple[int, str, str]:
    """Status, content type, body."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", data, names)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def post(server: LocalServer, table: object, **headers: str) -> tuple[int, str, str]:
    return fetch(server, "/v1/translate", json.dumps(table).encode(), **headers)
