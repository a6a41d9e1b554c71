"""Watchers of published sessions: by WebSocket and server-sent events, in one process and in several."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import urllib.request
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import ANY

import pytest
from websockets.exceptions import ConnectionClosed, InvalidMessage
from websockets.sync.client import connect

from tests.helpers.serving import (
    Client,
    LocalServer,
    fetch,
    local_server,
    make_served,
    make_words,
    post,
    wait_until,
)
from tests.server.test_faults import raw
from tests.server.test_serve import make_run, serve_process
from whilst.core.settings import Data, Recipe
from whilst.data.dataset import Dataset
from whilst.model.transformer import Translator
from whilst.server.audience import CHUNK, HISTORY, Channel, LocalAudience, RemoteAudience, run_hub
from whilst.server.protocol import Limits, Message, SessionError
from whilst.server.sessions import AccessControl

MODEL = {"name": "src-tgt", "source": "src", "target": "tgt"}
Made = TypeVar("Made")
names = (f"talk-{number}" for number in itertools.count())  # a channel stays for some minutes


@pytest.fixture(scope="module")
def server(model: Translator) -> Iterator[LocalServer]:
    with local_server(make_served(model), access=AccessControl("secret")) as server:
        yield server


class Watcher:
    """What a client keeps: the words, and its place."""

    def __init__(self, port: int, name: str, after: str = "") -> None:
        address = f"ws://127.0.0.1:{port}/v1/watch/{name}?after={after}"
        self._stack = contextlib.ExitStack()
        self.socket = self._stack.enter_context(connect(address, compression=None))
        self.words: list[Message] = []
        self.cursor, self.live = after, False

    def receive(self) -> Message:
        message: Message = json.loads(self.socket.recv(30))
        if message["type"] == "ready":
            self.live = message["live"]
        elif message["type"] == "commit":
            self.cursor = message["cursor"]
            self.words += message["words"]
        return message

    def texts(self, count: int) -> list[tuple[str, int]]:
        """Words and sentences, once there are so many."""
        while len(self.words) < count:
            self.receive()
        return [(word["text"], word["sentence"]) for word in self.words]

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def publish(server: LocalServer, name: str, key: str = "", **fields: Any) -> tuple[Client, Message]:
    client = server.connect(f"/v1/stream?publish={name}")
    return client, client.start(token="secret", latency="wait-2", key=key, **fields)


def say(client: Client, words: list[str], finish: bool = True) -> None:
    for word in words:
        client.send_words(word)
    if finish:
        client.finish()
        client.receive_until("final")
    else:
        client.receive_ack(client.sent)


def reconnect(connect: Callable[[], Made]) -> Made:
    while True:
        with contextlib.suppress(ConnectionError, InvalidMessage):
            return connect()


def written(client: Client, first: int = 0) -> list[tuple[str, int]]:
    return [(text, first + sentence) for text, sentence, _ in client.words]


def test_watchers_receive_what_the_speaker_receives(server: LocalServer) -> None:
    name = next(names)
    with Watcher(server.port, name) as early:
        assert early.receive() == {"type": "ready", "name": name, "channel": ANY, "live": False, "model": None}
        client, ready = publish(server, name)
        with client:
            assert ready["sentence"] == 0
            say(client, make_words(1))
            wanted = written(client)
            assert len(wanted) > 10
            assert early.texts(len(wanted)) == wanted
            assert early.live
            times = [word["time"] for word in early.words]
            assert times == sorted(times)
            with Watcher(server.port, name) as late:
                assert late.receive()["model"] == MODEL
                assert late.texts(len(wanted)) == wanted, "what was said before"
                assert late.words == early.words
        while early.live:
            early.receive()


def test_a_session_that_is_not_published_has_no_channel(server: LocalServer) -> None:
    with server.connect() as client:
        assert "sentence" not in client.start(token="secret")
        assert server.manager.sessions
        assert all(session.publication is None for session in server.manager.sessions)


def test_a_speaker_who_reconnects_goes_on(server: LocalServer) -> None:
    name, words = next(names), [*"abcdef", "gm", *"hijklm"]  # two sentences
    first, _ = publish(server, name, "key")
    with Watcher(server.port, name) as watcher:
        say(first, words[:5], finish=False)
        before = written(first)
        assert watcher.texts(len(before)) == before
        # The first session is still open, as when a network breaks; the sentence is sent again.
        second, ready = publish(server, name, "key", sentence=0)
        with second:
            assert ready["sentence"] == 0
            say(first, ["z"], finish=False)
            say(second, words)
            wanted = written(second)
            assert wanted[: len(before)] == before
            assert watcher.texts(len(wanted)) == wanted, "no word twice, none of the first session"
        first.close()
        third, ready = publish(server, name, "key")
        with third:
            assert ready["sentence"] == 2, "a new sentence"
            say(third, words[:7])
            wanted += written(third, 2)
            assert watcher.texts(len(wanted)) == wanted


def test_a_name_is_its_speakers(server: LocalServer) -> None:
    name = next(names)
    first, _ = publish(server, name, "key")
    with first:
        for key in ("", "other"):
            other, message = publish(server, name, key)
            with other:
                assert message["code"] == "taken"
                assert other.close_code() == 1008
        say(first, make_words(2))
    wait_until(lambda: not server.manager.sessions, "sessions close")
    with Watcher(server.port, name) as watcher:
        watcher.texts(len(first.words))
        watcher.words.clear()
        second, _ = publish(server, name, "other")
        with second:
            say(second, make_words(3))
            assert watcher.texts(len(second.words)) == written(second), "of the new one only"
    bad, message = publish(server, "a%20b")
    with bad:
        assert (message["code"], bad.close_code()) == ("protocol", 1008)


def test_a_watcher_who_reconnects_goes_on(server: LocalServer) -> None:
    name = next(names)
    client, _ = publish(server, name)
    with client:
        say(client, make_words(1))
        half = len(client.words)
        with Watcher(server.port, name) as watcher:
            watcher.texts(half)
        say(client, make_words(2))
        wanted = written(client)
        with Watcher(server.port, name, watcher.cursor) as again:
            assert again.texts(len(wanted) - half) == wanted[half:]
        for nowhere in ("x.3", f"{watcher.cursor}0000", ".", "²", f"{watcher.cursor.partition('.')[0]}.-1"):
            with Watcher(server.port, name, nowhere) as again:
                assert again.texts(len(wanted)) == wanted


def test_watchers_cannot_write(server: LocalServer) -> None:
    name = next(names)
    client, _ = publish(server, name)
    with client, Watcher(server.port, name) as watcher:
        watcher.socket.send('{"type":"start","token":"secret"}')
        assert watcher.receive()["type"] == "ready"
        assert watcher.receive()["code"] == "protocol"
        with pytest.raises(ConnectionClosed):
            watcher.socket.recv(30)
        say(client, make_words(1))
    wait_until(lambda: not server.manager.watchers, "the watcher is gone")


def test_a_slow_watcher_is_dropped_and_nobody_waits_for_it(model: Translator) -> None:
    with local_server(make_served(model), Limits(sessions=2, send=0.5)) as server:
        client, _ = publish(server, "talk")
        with (
            client,
            raw(server, "/v1/watch/talk"),
            Watcher(server.port, "talk") as other,
        ):  # nobody reads the second
            channel = server.manager.audience.join("talk")
            text = "x" * 300
            server._loop.call_soon_threadsafe(channel.write, [(text, 0)] * 4000)
            assert other.texts(4000)[0] == (text, 0)
            wait_until(lambda: server.manager.watchers == 1, "the slow one is dropped")
            assert b'code="slow"' in server.manager.metrics.render()[0]
            say(client, ["a", "b", "cm"])


def events(server: LocalServer, name: str, last: str = "") -> Generator[tuple[str, str, Message]]:
    """Kind, id and data of server-sent events."""
    address = f"http://127.0.0.1:{server.port}/v1/watch/{name}"
    with urllib.request.urlopen(
        urllib.request.Request(address, headers={"Last-Event-ID": last}), timeout=30
    ) as answer:
        fields: dict[str, str] = {}
        for line in answer:
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key:
                fields[key] = value
            elif fields:
                yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
                fields = {}


def test_server_sent_events(server: LocalServer) -> None:
    name = next(names)
    client, _ = publish(server, name)
    with client:
        say(client, make_words(1))
        stream = events(server, name)
        assert next(stream)[0] == "ready"
        kind, place, message = next(stream)
        assert (kind, place) == ("commit", message["cursor"])
        assert [word["text"] for word in message["words"]] == [text for text, *_ in client.words]
        stream.close()
        say(client, make_words(2))
        again = events(server, name, place)
        assert next(again)[0] == "ready"
        assert next(again)[2]["first"] == len(message["words"])
        again.close()
    wait_until(lambda: not server.manager.watchers, "both have gone")


def test_refused_watchers(model: Translator, server: LocalServer) -> None:
    assert fetch(server, "/v1/watch/a%20b")[0] == 400
    assert fetch(server, "/v1/watch/a", origin="https://bad.example")[0] == 403
    with local_server(make_served(model), Limits(sessions=2, watchers=1)) as small, Watcher(small.port, "a"):
        assert fetch(small, "/v1/watch/a")[0] == 503
    with Watcher(server.port, "b") as watcher:
        assert watcher.receive()["type"] == "ready"
        server.stop()
        server.start()
        assert watcher.receive()["code"] == "shutdown"


def test_the_qr_code_of_a_page(server: LocalServer) -> None:
    host = f"127.0.0.1:{server.port}"
    status, kind, body = fetch(server, f"/v1/qr.svg?url=http://{host}/watch/talk")
    assert (status, kind) == (200, "image/svg+xml")
    assert body.startswith("<svg")
    for url in ("", "https://bad.example/", f"http://{host}/{'a' * 500}"):
        assert fetch(server, f"/v1/qr.svg?url={url}")[0] == 400
    assert fetch(server, "/watch/talk")[1].startswith("text/html")


def test_a_session_chooses_its_model(model: Translator) -> None:
    first, second = make_served(model), make_served(model)
    other = replace(second, model=replace(second.model, recipe=Recipe(data=Data(source="tgt", target="src"))))
    with local_server([first, other]) as server, server.connect() as client:
        message = client.start(model="xx-yy")
        assert (message["code"], message["fatal"]) == ("protocol", False)
        ready = client.start(model="tgt-src", latency="wait-2")
        assert (ready["model"]["name"], [one["name"] for one in ready["models"]]) == (
            "tgt-src",
            ["src-tgt", "tgt-src"],
        )
        assert client.start(model="src-tgt")["code"] == "protocol", "it stays"
        assert client.start(model="tgt-src")["type"] == "ready"
        say(client, make_words(1))
        answer = post(server, {"text": "a b", "model": "tgt-src"})[2]
        assert '"name": "tgt-src"' in answer
        assert post(server, {"text": "a b", "model": "en"})[0] == 400


@pytest.mark.slow
def test_the_process_of_the_speaker_is_killed(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> None:
    run = make_run(tmp_path / "run", toy_data, toy_dataset)
    lines = [line for line in toy_dataset.text("test")[0] if len(line.split()) > 6][:2]
    with serve_process("--model", run, "--workers", "2") as server, contextlib.ExitStack() as stack:
        watchers = [stack.enter_context(Watcher(server.port, "talk")) for _ in range(8)]
        first = stack.enter_context(server.connect("/v1/stream?publish=talk"))
        assert first.start(latency="wait-2", key="key")["sentence"] == 0
        say(first, lines[0].split())
        (speakers,) = server.sessions()
        os.kill(speakers, signal.SIGKILL)
        second = stack.enter_context(reconnect(partial(server.connect, "/v1/stream?publish=talk")))
        assert second.start(latency="wait-2", key="key")["sentence"] == 1
        say(second, lines[1].split())
        wanted = written(first) + written(second, 1)
        lost = 0
        for watcher in watchers:
            with contextlib.suppress(ConnectionClosed):
                watcher.texts(len(wanted))
            if len(watcher.words) < len(wanted):  # its process was killed
                lost += 1
                again = stack.enter_context(reconnect(partial(Watcher, server.port, "talk", watcher.cursor)))
                again.words = watcher.words
                again.texts(len(wanted))
            assert [(word["text"], word["sentence"]) for word in watcher.words] == wanted
        assert lost < len(watchers), "those of the other process see no interruption"


# Without a server.


async def collect(channel: Channel, count: int, cursor: str = "") -> list[Message]:
    """The words of a channel, once there are so many."""
    words: list[Message] = []
    async for kind, text in channel.frames(cursor):
        if kind == "commit":
            words += json.loads(text)["words"]
            if len(words) >= count:
                return words
    raise AssertionError


def test_long_histories() -> None:
    """The last words, in messages of bounded size; who is behind gets what there is."""

    async def main() -> None:
        channel = Channel("talk")
        channel.set_ready(True, None)
        total = 2 * HISTORY
        for number in range(total):
            channel.write([(str(number), 0)])
        assert len(channel.words) <= HISTORY + CHUNK
        words = await collect(channel, len(channel.words), f"{channel.id}.3")
        assert [word["text"] for word in words] == list(map(str, range(total - len(words), total)))
        assert (await collect(channel, 1, f"{channel.id}.{total - 1}"))[0]["text"] == str(total - 1)
        sizes = [len(json.loads(channel._frame(first, first + CHUNK))["words"]) for first in (total - CHUNK,)]
        assert sizes == [CHUNK]

    asyncio.run(main())


def test_channels_that_nobody_uses_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whilst.server.audience.CHANNELS", 2)

    async def main() -> None:
        audience = LocalAudience()
        one, two = audience.join("one"), audience.join("two")
        with pytest.raises(SessionError, match="in use"):
            audience.join("three")
        audience.leave(one)
        publication = await audience.publish("three", "", None, MODEL)
        audience.leave(two)
        publication.close()
        assert list(audience._channels) == ["three"], "it is kept for a while"
        channel = audience.join("three")
        channel.expires = 0.0
        audience.leave(channel)
        assert not audience._channels

    asyncio.run(main())


def commit(*words: tuple[str, int]) -> Message:
    return {"type": "commit", "words": [{"text": text, "sentence": sentence} for text, sentence in words]}


def test_channels_of_several_processes(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = RemoteAudience(hub), RemoteAudience(hub)
        publication = await one.publish("talk", "key", None, MODEL)
        with pytest.raises(SessionError, match="choose another"):
            await two.publish("talk", "", None, MODEL)
        copies = [two.join("talk"), two.join("talk"), one.join("talk")]
        assert copies[0] is copies[1]
        publication.commit(commit(("a", 0), ("b", 0), ("c", 1)))
        for copy in copies:
            assert [word["text"] for word in await collect(copy, 3)] == ["a", "b", "c"]
        again = await two.publish("talk", "key", 1, MODEL)
        again.commit(commit(("c", 0), ("d", 0)))
        publication.close()
        for copy in copies:
            words = await collect(copy, 4)
            assert [(word["text"], word["sentence"]) for word in words[2:]] == [("c", 1), ("d", 1)]
        again.close()
        while copies[0].ready is None or copies[0].ready["live"]:
            await asyncio.sleep(0.01)
        other = await one.publish("talk", "another", None, MODEL)
        other.commit(commit(("e", 0)))
        while len(copies[0].words) != 1:
            await asyncio.sleep(0.01)
        assert [word["text"] for word in await collect(copies[0], 1)] == ["e"]
        other.close()
        for copy in copies[:2]:
            two.leave(copy)
        assert not two._copies
        one.close()
        with pytest.raises(SessionError, match="stopped"):
            await collect(copies[2], 2)
        one.leave(copies[2])

    hub = str(tmp_path / "hub")
    with run_hub(hub):
        asyncio.run(main())
