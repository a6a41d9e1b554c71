"""Clients that disconnect, stall or send invalid data, and sessions that fail, do not affect others."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from tests.helpers.decoding import policy
from tests.helpers.serving import (
    Client,
    LocalServer,
    local_server,
    make_served,
    make_words,
    translate_alone,
    wait_until,
)
from tests.live.test_session import Letters, make_text
from whilst.data.vocabulary import Language
from whilst.live.session import Operation, Request
from whilst.live.torch_backend import TorchBackend
from whilst.model.transformer import Translator
from whilst.server.metrics import Metrics
from whilst.server.protocol import Finish, Limits, SessionError, Words
from whilst.server.served import SinglePool
from whilst.server.torch_pool import BatchPool
from whilst.server.worker import Stream, Worker

LIMITS = Limits(sessions=4, message_bytes=500, idle=60, send=0.4)


@pytest.fixture(scope="module")
def server(model: Translator) -> Iterator[LocalServer]:
    with local_server(make_served(model), LIMITS) as server:
        yield server


@pytest.fixture
def witness(server: LocalServer, model: Translator) -> Iterator[Client]:
    """A session that is open during the test, and must not be affected."""
    talk = make_words(11, 24)
    with server.connect() as client:
        client.start()
        for word in talk[:12]:
            client.send_words(word)
        yield client
        for word in talk[12:]:
            client.send_words(word)
        client.finish()
        client.receive_until("final")
        assert client.words == translate_alone(model, talk)
    wait_until(server.is_idle, "sessions close")


def raw(server: LocalServer, path: str = "/v1/stream") -> socket.socket:
    """A socket after the WebSocket handshake."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.settimeout(30)
    found.connect(("127.0.0.1", server.port))
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version: 13",
    ]
    found.sendall("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += found.recv(1)
    assert answer.startswith(b"HTTP/1.1 101")
    return found


def frame(text: str) -> bytes:
    """A masked text frame; the mask is zero."""
    data = text.encode()
    length = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + struct.pack("!H", len(data))
    return b"\x81" + length + bytes(4) + data


START = frame('{"type":"start"}')


@pytest.mark.parametrize("abrupt", [True, False])
@pytest.mark.parametrize("cut", [1, 5, 20])
@pytest.mark.usefixtures("witness")
def test_a_client_that_disconnects_in_the_middle_of_a_frame(server: LocalServer, cut: int, abrupt: bool) -> None:
    with raw(server) as client:
        client.sendall(START + frame('{"type":"words","seq":1,"text":"abc def ghi"}'))
        client.sendall(frame('{"type":"words","seq":2,"text":"abc"}')[:cut])
        wait_until(lambda: len(server.manager.sessions) == 2, "session opens")
        if abrupt:  # reset the connection
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: len(server.manager.sessions) == 1, "session closes")


def test_an_idle_connection_is_closed(model: Translator) -> None:
    """Such as a half-open one: the client's machine has gone without closing it."""
    with local_server(make_served(model), Limits(sessions=1, idle=0.4)) as server, raw(server) as client:
        client.sendall(START + frame('{"type":"words","seq":1,"text":"abc"}'))
        wait_until(lambda: len(server.manager.sessions) == 1, "session opens")
        wait_until(server.is_idle, "session closes")
        received = b""
        while chunk := client.recv(4096):
            received += chunk
            if b'"idle"' in received:
                break
        assert b'"final"' in received, "words so far are translated"


@pytest.mark.usefixtures("witness")
def test_a_client_that_does_not_read_is_aborted(server: LocalServer) -> None:
    """After back-pressure: first the server stops reading from it."""
    with raw(server) as client:
        client.settimeout(5)
        client.sendall(START)
        wait_until(lambda: len(server.manager.sessions) == 2, "session opens")
        session = next(one for one in server.manager.sessions if one._counter.seq == 0)
        with contextlib.suppress(OSError):  # timed out, reset or broken: whichever is first
            for _ in range(100_000):
                client.sendall(START)
                assert session.outbox.qsize() <= LIMITS.backlog
        wait_until(lambda: session not in server.manager.sessions, "session closes")
        wait_until(lambda: len(server.uvicorn.server_state.connections) == 1, "connection closes")
    assert b'code="slow"' in server.manager.metrics.render()[0]


@pytest.mark.usefixtures("witness")
def test_back_pressure_on_a_client_that_sends_too_fast(server: LocalServer) -> None:
    with server.connect() as client:
        client.start()
        for _ in range(300):
            client.send_words("a")
            assert all(session._pending <= LIMITS.backlog for session in list(server.manager.sessions))
        client.finish()
        assert client.receive_until("final")["source_words"] == 300, "no word is lost"


LARGE, HUGE = "x" * 600, "x" * 4000  # above the limit of a message; above that of a frame
anything = st.text(max_size=700) | st.binary(max_size=700) | st.sampled_from([LARGE, HUGE])
invalid = st.lists(anything, min_size=1, max_size=4)


def exchange(client: Client, frames: list[str | bytes], codes: list[str]) -> None:
    """Send, then receive until the connection is closed."""
    for one in frames:
        client.socket.send(one)
    while True:
        codes.append(client.receive()["code"])


@given(frames=invalid, greet=st.booleans())
@limit(max_examples=60)
def test_invalid_messages_end_their_own_session_only(
    server: LocalServer, frames: list[str | bytes], greet: bool
) -> None:
    with server.connect() as client:
        if greet:
            client.start()
        found: list[str] = []
        with pytest.raises(ConnectionClosed) as closed:
            exchange(client, frames, found)
        assert set(found) <= {"protocol", "too_big"}
        assert frames[0] != LARGE or found in ([], ["too_big"])  # or the connection is reset while sending
        # A client that sends a huge frame while the connection is closed may miss the close code.
        assert closed.value.rcvd is None or closed.value.rcvd.code in (1008, 1009)
        assert closed.value.rcvd is not None or HUGE in frames
    with server.connect() as another:
        assert another.start()["type"] == "ready"


@given(data=st.binary(min_size=1, max_size=200))
@limit(max_examples=40)
def test_bytes_that_are_not_frames(server: LocalServer, data: bytes) -> None:
    with raw(server) as client:
        client.sendall(START + data)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
    wait_until(server.is_idle, "session closes")


@pytest.mark.usefixtures("witness")
def test_an_http_client_that_disconnects(server: LocalServer) -> None:
    body = json.dumps({"text": "abc def " * 50}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:
        client.sendall(head + body)
        assert client.recv(12) == b"HTTP/1.1 200"
    wait_until(lambda: len(server.manager.sessions) == 1, "session closes")


def test_invalid_http_requests(server: LocalServer) -> None:
    for data in (b"\r\n\r\n", b"GET / HTTP/9\r\n\r\n", bytes(range(256)), b"POST /v1/translate HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), 30) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    with server.connect() as client:
        assert client.start()["type"] == "ready"


def test_a_failing_session_does_not_affect_its_batch(model: Translator) -> None:
    """Its unit is out of the model's vocabulary, in a call that other sessions take part in."""
    text = make_text(longest=20)
    wide = Language("src", Letters(), "abcdefghijklmz")  # one more than the model has
    served = make_served(model, replace(text, source=wide))
    talks = {name: make_words(number, 20) for number, name in enumerate("xyz")}
    with local_server(served) as server, server.connect() as bad:
        clients = {name: server.connect() for name in talks}
        for client in (bad, *clients.values()):
            client.start()
        for place in range(20):
            for name, client in clients.items():
                client.send_words(talks[name][place])
            if place == 10:
                bad.send_words("abz")
        while (message := bad.receive())["type"] == "commit":
            pass
        assert (message["code"], message["fatal"]) == ("internal", True)
        assert bad.close_code() == 1011
        for name, client in clients.items():
            client.finish()
            client.receive_until("final")
            assert client.words == translate_alone(model, talks[name])
            client.close()
        wait_until(server.is_idle, "sessions close")


def test_an_error_in_cleaning_ends_only_its_session(model: Translator) -> None:
    def clean(word: str) -> str:
        if word == "boom":
            raise ZeroDivisionError
        return word

    with local_server(make_served(model, replace(make_text(longest=20), clean=clean))) as server:
        with server.connect() as bad, server.connect() as good:
            bad.start()
            good.start()
            bad.send_words("boom")
            assert bad.receive()["code"] == "internal"
            assert bad.close_code() == 1011
            good.send_words("am")
            good.receive_ack(1)
        wait_until(server.is_idle, "sessions close")


@pytest.mark.usefixtures("witness")
def test_hundreds_of_connections_leave_nothing_behind(server: LocalServer) -> None:
    for number in range(300):
        if number % 3 == 0:
            with raw(server) as client:
                client.sendall(START)
        else:
            with server.connect() as one:
                one.start()
                if number % 2:
                    one.send_words("ab")
    wait_until(lambda: len(server.manager.sessions) == 1, "sessions close")
    wait_until(lambda: len(server.uvicorn.server_state.connections) == 1, "sockets are closed")


def test_a_batched_call_that_fails_is_repeated_for_each_session(
    model: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    do, failed = BatchPool.do, list[int]()

    def failing(self: BatchPool, asks: Sequence[tuple[int, Request]]) -> list[int]:
        if len(asks) > 1 and asks[0][1].operation is Operation.DECIDE and len(failed) < 5:
            failed.append(len(asks))
            raise MemoryError
        return do(self, asks)

    monkeypatch.setattr(BatchPool, "do", failing)
    talks = [make_words(number, 15) for number in range(3)]
    with local_server(make_served(model)) as server:
        clients = [server.connect() for _ in talks]
        for client in clients:
            client.start()
        for words in zip(*talks, strict=True):
            for client, word in zip(clients, words, strict=True):
                client.send_words(word)
        for client, talk in zip(clients, talks, strict=True):
            client.finish()
            client.receive_until("final")
            assert client.words == translate_alone(model, talk)
            client.close()
    assert failed


def test_a_long_text_does_not_delay_a_short_one(server: LocalServer) -> None:
    with server.connect() as long, server.connect() as short:
        long.start()
        short.start()
        long.send_words("a b c d e f g h i j k lm " * 18)
        short.send_words("am")
        short.receive_ack(1)
        assert sorted(session._pending for session in server.manager.sessions) == [0, 1], "the long one is not done"
        long.receive_ack(1)


def test_a_failing_session_without_batches(model: Translator) -> None:
    """Both READ in the same round and the second fails: the first must not READ again."""
    text = make_text(longest=20)

    class Fragile(TorchBackend):
        def run(self, request: Request) -> int:
            if request.operation is Operation.READ and self.policy.name == "wait-1":
                raise MemoryError
            return super().run(request)

    def steps(name: str) -> TorchBackend:
        return Fragile(model, policy(name), *text.longest)

    replies: dict[str, list[Any]] = {"wait-2": [], "wait-1": []}
    ended = {name: threading.Event() for name in replies}

    def receive(name: str, message: Any) -> None:
        replies[name].append(message)
        if isinstance(message, SessionError) or message["type"] == "final":
            ended[name].set()

    worker = Worker(SinglePool(steps), 2, lambda work: work(), Metrics())
    talk = make_words(3, 12)
    for name in replies:
        stream = Stream(text, name, lambda message, _, name=name: receive(name, message))  # type: ignore[misc]
        worker.open(stream)
        worker.send(stream, (Words(1, " ".join(talk)), 0.0))
        worker.send(stream, (Finish(2), 0.0))
    worker.start()
    assert all(event.wait(60) for event in ended.values())
    worker.stop()
    assert isinstance(replies["wait-1"][-1], SessionError)
    words = [word for message in replies["wait-2"][:-1] for word in message["words"]]
    assert [(w["text"], w["sentence"], w["source"]) for w in words] == translate_alone(model, talk)
