"""Sessions between their connections and the worker: who may begin one, what is on its way. All in the loop."""

import asyncio
import hmac
import time
import uuid
from dataclasses import dataclass

from starlette.datastructures import Headers

from whilst import __version__
from whilst.core.errors import UserError
from whilst.server.meter import Meter
from whilst.server.protocol import Finish, Limits, Message, Order, SessionError, Words, short
from whilst.server.served import Served
from whilst.server.worker import Job, Stream, Worker


@dataclass(frozen=True)
class Door:
    """Who may come in."""

    token: str = ""  # empty: everyone
    origins: tuple[str, ...] = ()  # of web pages, besides those that this server sends itself; "*": any

    def check_origin(self, headers: Headers) -> None:
        """Browsers say whose page it is that connects; other clients need not."""
        origin = headers.get("origin")
        if origin is None or "*" in self.origins or origin in self.origins:
            return
        if origin.partition("://")[2] != headers.get("host"):
            raise SessionError(
                "origin", f"a page of {short(origin)} may not connect here; start the server with --origin"
            )

    def check_token(self, headers: Headers, said: str = "") -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Headers are bytes, which came here as Latin-1.
        token = given.strip().encode("latin-1") if scheme.lower() == "bearer" else said.encode()
        if self.token and not hmac.compare_digest(token, self.token.encode()):
            raise SessionError(
                "unauthorized", "a wrong token or none; send `Authorization: Bearer …`, or token in start"
            )


class Talk:
    """One session."""

    def __init__(self, hub: "Hub", policy: str) -> None:
        self.hub, self.policy = hub, policy
        self.id = uuid.uuid4().hex
        self.order = Order(hub.limits)
        self.stream = Stream(hub.served.text, policy, self._hear)
        self.outbox: asyncio.Queue[Message | SessionError] = asyncio.Queue()
        self.stopped: asyncio.Future[SessionError] = asyncio.get_running_loop().create_future()
        self._pending = 0  # messages that the worker has not done with
        self._open = False  # whether words came after the last finish
        self._moved = asyncio.Event()

    def _hear(self, message: Message | SessionError, done: bool) -> None:
        """The worker says something."""
        self._pending -= done
        self._moved.set()
        self.outbox.put_nowait(message)

    def ready(self) -> Message:
        served = self.hub.served
        return {
            "type": "ready",
            "session": self.id,
            "version": __version__,
            "model": {"name": served.name, "source": served.source, "target": served.target},
            "latency": self.policy,
            "latencies": [{"name": name, "policy": policy} for name, policy in served.latencies.items()],
            "limits": self.hub.limits.told(),
        }

    def use(self, latency: str) -> None:
        """Another latency from the next sentence on."""
        self.policy = self.hub.policy(latency)
        self.hub.worker.tell(self.stream, self.policy)

    def tell(self, message: Words | Finish) -> None:
        self.order.take(message)
        self._tell(message.text if isinstance(message, Words) else None)

    def _tell(self, words: str | None) -> None:
        self._pending += 1
        self._open = words is not None
        self.hub.worker.tell(self.stream, Job(self.order.seq, words, time.monotonic()))

    async def room(self) -> None:
        """Wait until little is on its way: who does not read what we write need not be read either."""
        backlog = self.hub.limits.backlog
        while self._pending >= backlog or self.outbox.qsize() >= backlog:
            self._moved.clear()
            await self._moved.wait()

    async def next(self) -> Message:
        """What to send (`outbox.task_done` says that it was sent); raises the fault that the worker ended with."""
        message = await self.outbox.get()
        self._moved.set()
        if isinstance(message, SessionError):
            raise message
        return message

    async def end(self) -> None:
        """Finish what was fed, until all of it has been sent."""
        if self._open:
            self._tell(None)
        while self._pending:
            self._moved.clear()
            await self._moved.wait()
        await self.outbox.join()

    def stop(self, fault: SessionError) -> None:
        if not self.stopped.done():
            self.stopped.set_result(fault)


class Hub:
    """All sessions of a process, and what they share."""

    def __init__(self, served: Served, limits: Limits, door: Door, meter: Meter) -> None:
        self.served, self.limits, self.door, self.meter = served, limits, door, meter
        self.talks: set[Talk] = set()
        self.greeting = 0  # connections that have not said yet what they want
        self.stopping = False
        self.worker: Worker

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        pool = self.served.pool(self.limits.sessions)
        self.worker = Worker(pool, self.limits.sessions, loop.call_soon_threadsafe, self.meter)
        self.worker.start()

    def policy(self, latency: str) -> str:
        try:
            return self.served.policy(latency)
        except UserError as error:
            raise SessionError("protocol", str(error), fatal=False) from None

    def check_open(self, count: int) -> None:
        if self.stopping:
            raise SessionError("shutdown", "the server is being stopped; connect again in a moment")
        if count >= self.limits.sessions:
            most = self.limits.sessions
            raise SessionError(
                "too_many_sessions", f"{most} sessions are open, and no more are taken; try again later"
            )

    def begin(self, kind: str, policy: str) -> Talk:
        self.check_open(len(self.talks))
        talk = Talk(self, policy)
        self.talks.add(talk)
        self.worker.open(talk.stream)
        self.meter.add("whilst_sessions")
        self.meter.add("whilst_sessions_total", labels=f'kind="{kind}"')
        return talk

    def close(self, talk: Talk) -> None:
        self.talks.discard(talk)
        self.worker.close(talk.stream)
        self.meter.add("whilst_sessions", -1)

    async def drain(self) -> None:
        """Begin nothing new, finish what was fed."""
        self.stopping = True
        for talk in self.talks:
            talk.stop(SessionError("shutdown", "the server is being stopped; connect again in a moment"))
        deadline = time.monotonic() + 2 * self.limits.grace
        while self.talks and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await asyncio.to_thread(self.worker.stop)
