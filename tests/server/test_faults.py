"""What must not bring a server down: clients that vanish, stall or send rubbish, and sessions that fail."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from tests.helpers.sites import Client, Site, alone, make_served, site, texts, until
from tests.live.test_session import Letters, make_text
from tests.server.test_server import make_talk
from whilst.data.vocabulary import Language, Vocabulary
from whilst.live.eager import Eager
from whilst.live.session import Operation
from whilst.model.transformer import Translator
from whilst.policy import policy
from whilst.server.metrics import Metrics
from whilst.server.pool import Batched, Single
from whilst.server.protocol import Limits, SessionError
from whilst.server.worker import Input, Stream, Worker

LIMITS = Limits(sessions=4, message_bytes=500, idle=60, send=0.4)


@pytest.fixture(scope="module")
def here(model: Translator) -> Iterator[Site]:
    with site(make_served(model), LIMITS) as running:
        yield running


@pytest.fixture
def witness(here: Site, model: Translator) -> Iterator[Client]:
    """Someone who is in the middle of a talk all the while, and must not notice anything."""
    talk = make_talk(11, 24)
    with here.connect() as client:
        client.start()
        for word in talk[:12]:
            client.say(word)
        yield client
        for word in talk[12:]:
            client.say(word)
        client.finish()
        client.receive_until("final")
        assert client.words == texts(alone(model, talk))
    until(here.is_empty, "everyone leaves")


def raw(here: Site) -> socket.socket:
    """A connection of bytes, past the handshake."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.settimeout(30)
    found.connect(("127.0.0.1", here.port))
    lines = [
        "GET /v1/stream HTTP/1.1",
        f"Host: 127.0.0.1:{here.port}",
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
def test_a_client_that_vanishes_in_the_middle_of_a_word(here: Site, cut: int, abrupt: bool) -> None:
    with raw(here) as client:
        client.sendall(START + frame('{"type":"words","seq":1,"text":"abc def ghi"}'))
        client.sendall(frame('{"type":"words","seq":2,"text":"abc"}')[:cut])
        until(lambda: len(here.manager.sessions) == 2, "beginning")
        if abrupt:  # a reset instead of a farewell
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: len(here.manager.sessions) == 1, "it is noticed")


def test_a_half_open_connection_is_ended(model: Translator) -> None:
    """The client's machine has gone: nothing comes any more, not even an end."""
    with site(make_served(model), Limits(sessions=1, idle=0.4)) as running, raw(running) as client:
        client.sendall(START + frame('{"type":"words","seq":1,"text":"abc"}'))
        until(lambda: len(running.manager.sessions) == 1, "beginning")
        until(running.is_empty, "it is noticed")
        said = b""
        while chunk := client.recv(4096):
            said += chunk
            if b'"idle"' in said:
                break
        assert b'"final"' in said, "what was fed was finished"


@pytest.mark.usefixtures("witness")
def test_a_client_that_does_not_read_is_dropped(here: Site) -> None:
    """First nothing more is taken from it; when it does not read for long, it is cut off."""
    with raw(here) as client:
        client.settimeout(5)
        client.sendall(START)
        until(lambda: len(here.manager.sessions) == 2, "beginning")
        talk = next(talk for talk in here.manager.sessions if talk._counter.seq == 0)
        with contextlib.suppress(OSError):  # timed out, reset or broken: whichever is first
            for _ in range(100_000):
                client.sendall(START)
                assert talk.outbox.qsize() <= LIMITS.backlog
        until(lambda: talk not in here.manager.sessions, "it is dropped")
        until(lambda: len(here.server.server_state.connections) == 1, "it is cut off, though it does not read")
    assert 'code="slow"' in here.manager.metrics.render()


@pytest.mark.usefixtures("witness")
def test_one_that_speaks_too_fast_has_to_wait(here: Site) -> None:
    with here.connect() as client:
        client.start()
        for _ in range(300):
            client.say("a")
            assert all(talk._pending <= LIMITS.backlog for talk in list(here.manager.sessions))
        client.finish()
        assert client.receive_until("final")["source_words"] == 300, "and nothing is lost"


LARGE, HUGE = "x" * 600, "x" * 4000  # more than a message may have; more than is taken in at all
anything = st.text(max_size=700) | st.binary(max_size=700) | st.sampled_from([LARGE, HUGE])
rubbish = st.lists(anything, min_size=1, max_size=4)


def exchange(client: Client, frames: list[str | bytes], codes: list[str]) -> None:
    """Send, then listen until it is over."""
    for one in frames:
        client.socket.send(one)
    while True:
        codes.append(client.receive()["code"])


@given(frames=rubbish, greet=st.booleans())
@limit(max_examples=60)
def test_rubbish_ends_its_own_session_only(here: Site, frames: list[str | bytes], greet: bool) -> None:
    with here.connect() as client:
        if greet:
            client.start()
        found: list[str] = []
        with pytest.raises(ConnectionClosed) as closed:
            exchange(client, frames, found)
        assert set(found) <= {"protocol", "too_big"}
        assert frames[0] != LARGE or found in ([], ["too_big"])  # who still sends may miss it
        # Whoever sends far too much while it is being closed may miss the reason.
        assert closed.value.rcvd is None or closed.value.rcvd.code in (1008, 1009)
        assert closed.value.rcvd is not None or HUGE in frames
    with here.connect() as another:
        assert another.start()["type"] == "ready"


@given(data=st.binary(min_size=1, max_size=200))
@limit(max_examples=40)
def test_bytes_that_are_no_frames(here: Site, data: bytes) -> None:
    with raw(here) as client:
        client.sendall(START + data)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
    until(here.is_empty, "it leaves")


@pytest.mark.usefixtures("witness")
def test_a_text_whose_reader_leaves(here: Site) -> None:
    body = json.dumps({"text": "abc def " * 50}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", here.port), 30) as client:
        client.sendall(head + body)
        assert client.recv(12) == b"HTTP/1.1 200"
    until(lambda: len(here.manager.sessions) == 1, "it is noticed")


def test_requests_that_are_none(here: Site) -> None:
    for data in (b"\r\n\r\n", b"GET / HTTP/9\r\n\r\n", bytes(range(256)), b"POST /v1/translate HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", here.port), 30) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    with here.connect() as client:
        assert client.start()["type"] == "ready"


def test_a_session_that_fails_fails_alone(model: Translator) -> None:
    """One says a word that the model has no number for, in the very call that the others take part in."""
    text = make_text(longest=20)
    wide = Language("src", Letters(), Vocabulary("abcdefghijklmz"))  # one more than the model knows
    served = make_served(model, replace(text, source=wide))
    talks = {name: make_talk(number, 20) for number, name in enumerate("xyz")}
    with site(served) as running, running.connect() as bad:
        clients = {name: running.connect() for name in talks}
        for client in (bad, *clients.values()):
            client.start()
        for place in range(20):
            for name, client in clients.items():
                client.say(talks[name][place])
            if place == 10:
                bad.say("abz")
        while (message := bad.receive())["type"] == "commit":
            pass
        assert (message["code"], message["fatal"]) == ("internal", True)
        assert bad.closed() == 1011
        for name, client in clients.items():
            client.finish()
            client.receive_until("final")
            assert client.words == texts(alone(model, talks[name]))
            client.close()
        until(running.is_empty, "leaving")


def test_what_cannot_be_cleaned_fails_alone(model: Translator) -> None:
    def clean(word: str) -> str:
        if word == "boom":
            raise ZeroDivisionError
        return word

    with site(make_served(model, replace(make_text(longest=20), clean=clean))) as running:
        with running.connect() as bad, running.connect() as good:
            bad.start()
            good.start()
            bad.say("boom")
            assert bad.receive()["code"] == "internal"
            assert bad.closed() == 1011
            good.say("am")
            good.receive_done(1)
        until(running.is_empty, "leaving")


@pytest.mark.usefixtures("witness")
def test_hundreds_come_and_go_on_real_sockets(here: Site) -> None:
    for number in range(300):
        if number % 3 == 0:
            with raw(here) as client:
                client.sendall(START)
        else:
            with here.connect() as one:
                one.start()
                if number % 2:
                    one.say("ab")
    until(lambda: len(here.manager.sessions) == 1, "leaving")
    until(lambda: len(here.server.server_state.connections) == 1, "sockets are closed")


def test_a_call_of_the_model_that_fails_once_costs_nobody_anything(
    model: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made again for each alone."""
    do, failed = Batched.do, list[int]()

    def failing(self: Batched, step: Operation, asks: Any) -> list[int]:
        if len(asks) > 1 and step is Operation.DECIDE and len(failed) < 5:
            failed.append(len(asks))
            raise MemoryError
        return do(self, step, asks)

    monkeypatch.setattr(Batched, "do", failing)
    talks = [make_talk(number, 15) for number in range(3)]
    with site(make_served(model)) as running:
        clients = [running.connect() for _ in talks]
        for client in clients:
            client.start()
        for words in zip(*talks, strict=True):
            for client, word in zip(clients, words, strict=True):
                client.say(word)
        for client, talk in zip(clients, talks, strict=True):
            client.finish()
            client.receive_until("final")
            assert client.words == texts(alone(model, talk))
            client.close()
    assert failed


def test_time_is_shared(here: Site) -> None:
    """A long text does not keep a short one waiting."""
    with here.connect() as long, here.connect() as short:
        long.start()
        short.start()
        long.say("a b c d e f g h i j k lm " * 18)
        short.say("am")
        short.receive_done(1)
        assert sorted(talk._pending for talk in here.manager.sessions) == [0, 1], "the long one is still under way"
        long.receive_done(1)


def test_one_by_one_a_session_that_fails_fails_alone_too(model: Translator) -> None:
    """Both have to READ in the same round, and who comes after the other fails: the first must not READ again."""
    text = make_text(longest=20)

    class Fragile(Eager):
        def read(self, unit: int) -> None:
            if self.policy.name == "wait-1":
                raise MemoryError
            super().read(unit)

    def steps(name: str) -> Eager:
        return Fragile(model, policy(name), text.max_units, text.max_target_units(text.max_units))

    said: dict[str, list[Any]] = {"wait-2": [], "wait-1": []}
    over = {name: threading.Event() for name in said}

    def sink(name: str, message: Any) -> None:
        said[name].append(message)
        if isinstance(message, SessionError) or message["type"] == "final":
            over[name].set()

    worker = Worker(Single(steps, 2), 2, lambda work: work(), Metrics())
    talk = make_talk(3, 12)
    for name in said:
        stream = Stream(text, name, lambda message, _, name=name: sink(name, message))  # type: ignore[misc]
        worker.open(stream)
        worker.send(stream, Input(1, " ".join(talk), 0.0))
        worker.send(stream, Input(2, None, 0.0))
    worker.start()
    assert all(event.wait(60) for event in over.values())
    worker.stop()
    assert isinstance(said["wait-1"][-1], SessionError)
    words = [word for message in said["wait-2"][:-1] for word in message["words"]]
    assert [(w["text"], w["sentence"], w["source"]) for w in words] == texts(alone(model, talk))
