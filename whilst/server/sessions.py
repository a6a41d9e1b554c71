"""Client sessions between their connections and the worker. All of this runs in the event loop."""

import asyncio
import hmac
import ipaddress
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

from whilst import __version__
from whilst.core.errors import UserError
from whilst.data.literals import Glossary
from whilst.server.audience import Audience, Channel, Publication, check_name, shutdown_error
from whilst.server.metrics import Metrics
from whilst.server.protocol import (
    Audio,
    Finish,
    Limits,
    Listen,
    Message,
    MessageCounter,
    SessionError,
    Words,
    shorten,
)
from whilst.server.served import Served
from whilst.server.speech import SpeechService, SpeechStream
from whilst.server.worker import Stream, Worker


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def default_hosts(host: str) -> tuple[str, ...]:
    """The host names to accept when listening at `host`: any, unless only this machine can connect."""
    local = host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)
    return ("localhost",) if local else ("*",)


@dataclass(frozen=True)
class AccessControl:
    token: str = ""  # empty: none is required
    origins: tuple[str, ...] = ()  # of pages that may connect, besides the server's own; "*": any
    hosts: tuple[str, ...] = ("*",)  # names by which clients reach this server; "*": any

    def __post_init__(self) -> None:
        for origin in self.origins:
            if origin != "*" and not re.fullmatch(r"https?://[^\s/?#@]+", origin):
                raise UserError(f"--origin {origin}: write it as https://example.org, without a path, or * for any")

    def check_host(self, headers: Headers) -> None:
        """Protects against DNS rebinding: a page makes its own host name resolve to this address, and sends it."""
        host = headers.get("host", "").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name and "*" not in self.hosts and name not in self.hosts and not is_address(name):
            message = f"this server is not {shorten(name)}; start it with --allowed-host {shorten(name)[1:-1]}"
            raise SessionError("host", message)

    def check_origin(self, headers: Headers) -> None:
        """Only browsers send the Origin header; requests without it are accepted."""
        origin = headers.get("origin")
        if origin is None or "*" in self.origins or origin in self.origins:
            return
        if origin.partition("://")[2] != headers.get("host"):
            message = f"a page of {shorten(origin)} may not connect here; start the server with --origin"
            raise SessionError("origin", message)

    def check_token(self, headers: Headers, token: str = "") -> None:
        """Check the token of the Authorization header, or else `token`."""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        # Starlette decodes headers as Latin-1.
        given = credentials.strip().encode("latin-1") if scheme.lower() == "bearer" else token.encode()
        if self.token and not hmac.compare_digest(given, self.token.encode()):
            message = "a wrong token or none; send `Authorization: Bearer …`, or token in start"
            raise SessionError("unauthorized", message)


def find_policy(served: Served, latency: str) -> str:
    try:
        return str(served.model.policy_of(latency))
    except UserError as error:
        raise SessionError("protocol", str(error), fatal=False) from None


class ClientSession:
    def __init__(self, manager: "SessionManager", served: Served, policy: str, glossary: Glossary) -> None:
        self.manager, self.served, self.policy = manager, served, policy
        self.worker = manager.workers[served.name]
        self.stream = Stream(served.model.text.with_glossary(glossary), policy, self._deliver_reply)
        self.outbox: asyncio.Queue[Message | SessionError] = asyncio.Queue()
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._id = uuid.uuid4().hex
        self._counter = MessageCounter(manager.limits)
        self._pending = 0  # inputs that the worker has not completed
        self.publication: Publication | None = None
        self._in_sentence = False  # words were received after the last finish
        self._progress = asyncio.Event()
        self._speech: SpeechStream | None = None
        self._listened = False

    def _deliver_reply(self, message: Message | SessionError, completes: bool) -> None:
        """Called with the replies of the worker."""
        self._pending -= completes
        self._progress.set()
        self.outbox.put_nowait(message)
        # Last: the speaker's message is sent before those of many watchers.
        if self.publication is not None and isinstance(message, dict) and message["type"] == "commit":
            self.publication.commit(message)

    def ready_message(self) -> Message:
        limits = self.manager.limits
        latencies = self.served.model.latencies.items()
        missing = self.manager.speech.missing(self.served.model.languages[0])
        message = {
            "type": "ready",
            "session": self._id,
            "version": __version__,
            "model": self.served.describe(),
            "models": [served.describe() for served in self.manager.served.values()],
            "latency": self.policy,
            "latencies": [{"name": name, "policy": policy} for name, policy in latencies],
            "limits": {"message_bytes": limits.message_bytes, "words": limits.words, "idle_seconds": limits.idle},
            "speech": {"available": not missing, "reason": missing},
        }
        return message if self.publication is None else message | {"sentence": self.publication.sentence}

    def set_latency(self, latency: str) -> None:
        """Set the latency from the next sentence on."""
        self.policy = find_policy(self.served, latency)
        self.worker.send(self.stream, self.policy)

    def add_audio(self, message: Listen | Audio) -> None:
        if isinstance(message, Listen):
            if self._speech and not self._speech.over:
                error = 'listen before the audio has ended: send an empty frame and wait for "end": true'
                raise SessionError("protocol", error)
            self._listened, self._speech = True, None
            language, _ = self.served.model.languages
            self._speech = self.manager.speech.open(language, message.said, self._recognised)
        elif not self._listened:
            raise SessionError("protocol", 'audio without {"type":"listen"} before it')
        elif self._speech:  # otherwise the client has not yet received the error that ended recognition
            self._speech.add(message.pcm)

    def _recognised(self, message: Message) -> None:
        """Called with the messages of the recogniser."""
        self._progress.set()
        self.outbox.put_nowait(message)

    def add(self, message: Words | Finish) -> None:
        self._counter.check(message)
        self._send(message)

    def _send(self, message: Words | Finish) -> None:
        self._pending += 1
        self._in_sentence = isinstance(message, Words)
        self.worker.send(self.stream, (message, time.monotonic()))

    async def wait_for_backlog(self) -> None:
        """Back-pressure: wait until few messages, and little audio, are waiting to be processed or sent."""
        limits = self.manager.limits
        while max(self._pending, self.outbox.qsize()) >= limits.backlog or (
            self._speech and self._speech.waiting >= limits.audio
        ):
            self._progress.clear()
            await self._progress.wait()

    async def next_message(self) -> Message:
        """The next message to send; call `outbox.task_done` after sending it. Raises the error of the worker."""
        message = await self.outbox.get()
        self._progress.set()
        if isinstance(message, SessionError):
            raise message
        return message

    async def drain(self) -> None:
        """Finish the sentence and wait until all messages have been sent."""
        if self._in_sentence:
            self._send(Finish(self._counter.seq))
        while self._pending:
            self._progress.clear()
            await self._progress.wait()
        await self.outbox.join()

    def close(self) -> None:
        if self._speech:
            self._speech.close()

    def stop(self, error: SessionError) -> None:
        if not self.stopped.done():
            self.stopped.set_exception(error)
            self.stopped.exception()  # marks it as retrieved: asyncio logs exceptions that nobody retrieves


class SessionManager:
    """The sessions and watchers of a process, a worker for each model, and the limits."""

    def __init__(
        self,
        served: Sequence[Served],
        limits: Limits,
        access: AccessControl,
        metrics: Metrics,
        audience: Audience,
        recogniser: str = "",  # a program that recognises speech, instead of moonshine-voice
    ) -> None:
        self.served = {loaded.name: loaded for loaded in served}
        self.limits, self.access, self.metrics, self.audience = limits, access, metrics, audience
        self.speech = SpeechService(limits, metrics, recogniser)
        self.workers: dict[str, Worker] = {}
        self.sessions: set[ClientSession] = set()
        self.watchers = 0
        self.handshakes = 0  # connections without a start message so far
        self.stopping = False

    def start(self) -> None:
        loop, slots = asyncio.get_running_loop(), self.limits.sessions
        for name, served in self.served.items():
            self.workers[name] = Worker(served.pool(slots), slots, loop.call_soon_threadsafe, self.metrics)
            self.workers[name].start()

    def find_model(self, name: str) -> Served:
        """The model of this name; empty: the first model."""
        name = name or next(iter(self.served))
        if name not in self.served:
            known = ", ".join(self.served)
            raise SessionError("protocol", f"model {shorten(name)}: not served; choose from {known}", fatal=False)
        return self.served[name]

    def check_open(self, count: int) -> None:
        """Raise a `SessionError` if no session may be opened beside `count` others."""
        if self.stopping:
            raise shutdown_error()
        if count >= self.limits.sessions:
            message = f"{self.limits.sessions} sessions are open, and no more are taken; try again later"
            raise SessionError("too_many_sessions", message)

    def open(self, kind: str, served: Served, policy: str, glossary: Glossary) -> ClientSession:
        self.check_open(len(self.sessions))
        session = ClientSession(self, served, policy, glossary)
        self.sessions.add(session)
        session.worker.open(session.stream)
        self.metrics.count_session(kind)
        return session

    def close(self, session: ClientSession) -> None:
        self.sessions.discard(session)
        session.close()
        session.worker.close(session.stream)
        if session.publication is not None:
            session.publication.close()
        self.metrics.count_session_end()

    def join(self, name: str) -> Channel:
        """Add a watcher to the channel of this name."""
        if self.stopping:
            raise shutdown_error()
        if self.watchers >= self.limits.watchers:
            raise SessionError("too_many_sessions", f"{self.watchers} people watch already; try again later")
        channel = self.audience.join(check_name(name))
        self.watchers += 1
        self.metrics.watchers.inc()
        return channel

    def leave(self, channel: Channel) -> None:
        self.audience.leave(channel)
        self.watchers -= 1
        self.metrics.watchers.dec()

    async def drain(self) -> None:
        """Refuse new sessions, end the open ones once their words are translated, then disconnect the watchers."""
        self.stopping = True
        for session in self.sessions:
            session.stop(shutdown_error())
        deadline = time.monotonic() + 2 * self.limits.drain
        while self.sessions and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self.audience.close()
        while self.watchers and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await self.speech.stop()
        for worker in self.workers.values():
            await asyncio.to_thread(worker.stop)
