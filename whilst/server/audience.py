"""Published sessions: the words of a speaker's session for any number of watchers. Contains no client connections.

A channel is a log of words under a name. Watchers read it at their own positions: they need no buffers, and a slow
watcher delays neither the speaker nor other watchers. With one process the channels are in it. With several they
are in the parent process (`run_hub`), and a worker has a copy of each channel that is watched there.
"""

import asyncio
import contextlib
import json
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from whilst.server.protocol import Message, SessionError, parse_object, shorten

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
KEPT = 600.0  # seconds for which a channel stays after its session, for latecomers and for a reconnecting speaker
CHANNELS = 1000
HISTORY = 20_000  # words of a channel: about two hours of speech
CHUNK = 500  # words of a message
LINE = 2**24  # bytes of a message between processes


def shutdown_error() -> SessionError:
    return SessionError("shutdown", "the server is being stopped; connect again in a moment")


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        message = f"the name {shorten(name)}: must have 1 to 64 of the characters A-Z, a-z, 0-9, _ and -"
        raise SessionError("protocol", message)
    return name


class Channel:
    """The words that are published under a name, and the session that publishes them, if there is one."""

    def __init__(self, name: str) -> None:
        self.name, self.key = name, ""
        self.watchers = 0
        self.expires = 0.0  # from then on the channel is dropped if it has neither a session nor watchers
        self.publication: LocalPublication | None = None
        self.restart(uuid.uuid4().hex)
        self.ready: Message | None = None  # `ready` for watchers; None: not known yet
        self._closed = False
        self._changed = asyncio.Event()

    def restart(self, channel: str) -> None:
        """Drop all words and change the id."""
        self.id = channel
        self.words: list[Message] = []
        self.dropped = 0  # number of words dropped before these
        self._frames: dict[int, str] = {}  # encoded messages by the position of their first word
        self._began = time.monotonic()

    @property
    def next_sentence(self) -> int:
        return self.words[-1]["sentence"] + 1 if self.words else 0

    def _notify(self) -> None:
        self._frames = {}
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def set_ready(self, live: bool, model: Message | None) -> None:
        self.ready = {"type": "ready", "name": self.name, "channel": self.id, "live": live, "model": model}
        self._notify()

    def add(self, words: list[Message]) -> None:
        self.words += words
        if len(self.words) > HISTORY + CHUNK:
            del self.words[:CHUNK]
            self.dropped += CHUNK
        self._notify()

    def write(self, words: list[tuple[str, int]]) -> None:
        """Add words, each a text and the number of its sentence."""
        now = round(time.monotonic() - self._began, 3)
        self.add([{"text": text, "sentence": sentence, "time": now} for text, sentence in words])

    def copy(self, message: Message) -> None:
        """Apply a message of the channel that this one is a copy of."""
        if message["type"] == "ready":
            if message["channel"] != self.id:
                self.restart(message["channel"])
            self.set_ready(message["live"], message["model"])
        elif message["type"] == "commit":
            if not self.words:
                self.dropped = message["first"]
            self.add(message["words"])

    def close(self) -> None:
        self._closed = True
        self._notify()

    async def frames(self, cursor: str = "") -> AsyncIterator[tuple[str, str]]:
        """Yield messages (type, JSON text) without end, from the cursor at which a watcher stopped.

        A watcher who is behind gets many words in one message. If the cursor is no longer valid, the messages begin
        with the first word that is kept.
        """
        channel, _, index = cursor.partition(".")
        position = int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else 0
        sent_ready: Message | None = None
        while True:
            changed = self._changed
            if channel != self.id or not self.dropped <= position <= self.dropped + len(self.words):
                channel, position = self.id, self.dropped
            if sent_ready is not self.ready:
                sent_ready = self.ready
                yield "ready", json.dumps(sent_ready, ensure_ascii=False)
            elif sent_ready is not None and position < self.dropped + len(self.words):
                first = position
                position = min(first + CHUNK, self.dropped + len(self.words))
                yield "commit", self._frame(first, position)
            elif self._closed:
                raise shutdown_error()
            else:
                await changed.wait()

    def _frame(self, first: int, end: int) -> str:
        if first not in self._frames:
            words = self.words[first - self.dropped : end - self.dropped]
            message = {"type": "commit", "first": first, "cursor": f"{self.id}.{end}", "words": words}
            self._frames[first] = json.dumps(message, ensure_ascii=False)
        return self._frames[first]


class LocalPublication:
    """A session that publishes on a channel of this process."""

    def __init__(self, channel: Channel, sentence: int, close: Callable[[], None]) -> None:
        self._channel, self._close = channel, close
        self.sentence = sentence  # the number in the channel of the session's first sentence
        # By sentence: number of words that the channel has already. They are not published again.
        self._existing = Counter(word["sentence"] for word in channel.words[-HISTORY:])

    def commit(self, message: Message) -> None:
        """Publish the words of a `commit` (protocol.py)."""
        if self._channel.publication is not self:  # another session has taken the name over
            return
        new = []
        for word in message["words"]:
            sentence = self.sentence + word["sentence"]
            if self._existing[sentence]:
                self._existing[sentence] -= 1
            else:
                new.append((word["text"], sentence))
        if new:
            self._channel.write(new)

    def close(self) -> None:
        if self._channel.publication is self:
            self._close()


class LocalAudience:
    """The channels of this process."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def join(self, name: str) -> Channel:
        """Add a watcher to the channel of this name, even if it has no session yet."""
        channel = self._find(name)
        channel.watchers += 1
        return channel

    def _find(self, name: str) -> Channel:
        channel = self._channels.get(name)
        if channel is None:
            if len(self._channels) >= CHANNELS:
                raise SessionError("too_many_sessions", f"{CHANNELS} names are in use; try again later")
            channel = self._channels[name] = Channel(name)
            channel.set_ready(False, None)
        return channel

    def leave(self, channel: Channel) -> None:
        channel.watchers -= 1
        self._drop(channel)

    def _drop(self, channel: Channel) -> None:
        """Drop a channel that is not used."""
        used = channel.publication is not None or channel.watchers or time.monotonic() < channel.expires
        if not used and self._channels.get(channel.name) is channel:
            del self._channels[channel.name]

    async def publish(self, name: str, key: str, sentence: int | None, model: Message) -> LocalPublication:
        """Publish a new session under this name. If another session has the name, their keys must be equal.

        `sentence` is the number of the session's first sentence, if part of the session was published before: words
        that the channel has already are left out. None: the session's sentences follow those of the channel.
        """
        channel = self._find(check_name(name))
        if not key or key != channel.key:
            if channel.publication is not None:
                raise SessionError("taken", f"another session has the name {name}; choose another")
            channel.key = key
            channel.restart(uuid.uuid4().hex)
        first = channel.next_sentence if sentence is None else sentence
        channel.publication = LocalPublication(channel, first, partial(self._end, channel, model))
        channel.set_ready(True, model)
        return channel.publication

    def _end(self, channel: Channel, model: Message) -> None:
        channel.publication = None
        channel.expires = time.monotonic() + KEPT
        channel.set_ready(False, model)
        asyncio.get_running_loop().call_later(KEPT + 1, self._drop, channel)

    def close(self) -> None:
        """Disconnect the watchers."""
        for channel in self._channels.values():
            channel.close()


# With several processes, workers exchange lines of JSON with the hub over a Unix socket, with one connection for
# each publication and each copy of a channel.


def line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


class RemotePublication:
    def __init__(self, writer: asyncio.StreamWriter, sentence: int) -> None:
        self._writer, self.sentence = writer, sentence

    def commit(self, message: Message) -> None:
        if message["words"]:
            self._writer.write(line({"words": message["words"]}))

    def close(self) -> None:
        self._writer.close()


class RemoteAudience:
    """The channels of the hub, with a copy of each that is watched in this process."""

    def __init__(self, hub: str) -> None:
        self._hub = hub
        self._copies: dict[str, tuple[Channel, asyncio.Task[None]]] = {}

    async def publish(self, name: str, key: str, sentence: int | None, model: Message) -> RemotePublication:
        reader, writer = await asyncio.open_unix_connection(self._hub)
        writer.write(line({"name": check_name(name), "key": key, "sentence": sentence, "model": model}))
        answer = parse_object(await reader.readline())
        if "code" in answer:
            writer.close()
            raise SessionError(answer["code"], answer["message"])
        return RemotePublication(writer, answer["sentence"])

    def join(self, name: str) -> Channel:
        if name not in self._copies:
            channel = Channel(name)
            self._copies[name] = channel, asyncio.create_task(self._copy(channel))
        channel, _ = self._copies[name]
        channel.watchers += 1
        return channel

    async def _copy(self, channel: Channel) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(self._hub, limit=LINE)
            with contextlib.closing(writer):
                writer.write(line({"watch": channel.name}))
                while message := await reader.readline():
                    channel.copy(json.loads(message))
        finally:
            channel.close()

    def leave(self, channel: Channel) -> None:
        channel.watchers -= 1
        if not channel.watchers:
            self._copies.pop(channel.name)[1].cancel()

    def close(self) -> None:
        for channel, _ in self._copies.values():
            channel.close()


Publication = LocalPublication | RemotePublication
Audience = LocalAudience | RemoteAudience


async def _serve_worker(
    audience: LocalAudience, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection of a worker, until the worker closes it."""
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        request = json.loads(await reader.readline())
        try:
            if "watch" in request:
                await _send_copy(audience.join(request["watch"]), audience, reader, writer)
                return
            publication = await audience.publish(**request)
        except SessionError as error:
            writer.write(line(error.to_message()))
            return
        with contextlib.closing(publication):
            writer.write(line({"sentence": publication.sentence}))
            while message := await reader.readline():
                publication.commit(json.loads(message))


async def _send_copy(
    channel: Channel, audience: LocalAudience, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    async def send() -> None:
        async for _, text in channel.frames():
            writer.write(text.encode() + b"\n")
            await writer.drain()

    sending = asyncio.create_task(send())
    try:
        await reader.read()
    finally:
        audience.leave(channel)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


@contextlib.contextmanager
def run_hub(path: str) -> Iterator[None]:
    """Serve the channels of several processes from a thread of this one, at the Unix socket `path`."""
    started, stopped = threading.Event(), threading.Event()

    async def run() -> None:
        server = await asyncio.start_unix_server(partial(_serve_worker, LocalAudience()), path, limit=LINE)
        started.set()
        await asyncio.to_thread(stopped.wait)
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="whilst-hub")
    thread.start()
    started.wait()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
