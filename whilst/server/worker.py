"""One thread that does the steps of all sessions, those of a kind together. Knows no sockets.

Everyone who has work takes part in every round, with one step of each kind: a long text does not keep a short one
waiting. A client's messages are taken one after the other, each to its end, so that what comes out depends on what
was said, and not on when. What fails in a session ends that session.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from whilst.live.session import Event, Operation, Request, SessionState, TextPipeline
from whilst.server.meter import Meter
from whilst.server.pool import Pool
from whilst.server.protocol import Message, SessionError, Tally, commit

HOLD = 0.05  # seconds that words wait for others of the same client message: each commit costs
log = logging.getLogger("whilst.serve")

Letter = tuple[Message | SessionError, bool]  # and whether a client's message has been dealt with by it
Sink = Callable[[Message | SessionError, bool], None]


@dataclass(frozen=True)
class Job:
    """A client's message, and when it came."""

    seq: int
    words: str | None  # None: the sentence ends
    came: float


class Stream:
    """A session as the worker sees it; nobody else touches it."""

    def __init__(self, text: TextPipeline, policy: str, sink: Sink) -> None:
        self.policy, self.sink = policy, sink  # the policy of sentences that begin from now on
        self.script = SessionState(text)
        self.place: int | None = None
        self.jobs: deque[Job | str] = deque()  # a string is another policy
        self.job: Job | None = None  # under way
        self.ask: Request | None = None  # what it waits for
        self.ack = 0
        self.events: list[Event] = []
        self.since = 0.0  # when the first of them came
        self.tally = Tally()
        self.out: list[Letter] = []

    def proceed(self) -> list[Job]:
        """Take messages until there is something to ask for: those that are done."""
        done = list[Job]()
        while self.ask is None:
            if self.job is not None:
                self._end(self.job)
                done.append(self.job)
                self.job = None
            if not self.jobs:
                break
            following = self.jobs.popleft()
            if isinstance(following, str):
                self.policy = following
                continue
            self.job = following
            if following.words is None:
                self.script.end_sentence()
            else:
                self.script.add_words(following.words)
            # A sentence may be over already when its end becomes known: it had written the end mark.
            self._heard(self.script.close_finished())
            self.ask = self.script.next_request()
        return done

    def answer(self, result: int) -> None:
        assert self.ask is not None
        self._heard(self.script.handle_result(self.ask, result))
        self.ask = self.script.next_request()

    def _heard(self, events: list[Event]) -> None:
        if events and not self.events:
            self.since = time.monotonic()
        self.events += events
        for event in events:
            self.tally.add(event)

    def _end(self, job: Job) -> None:
        self.ack = job.seq
        self.say(done=job.words is not None)
        if job.words is None:
            self.tally.source_words = self.script.source_words
            self.out.append((self.tally.told(self.ack), True))

    def say(self, done: bool) -> None:
        self.out.append((commit(self.ack, self.events), done))
        self.events = []

    def hurry(self, now: float) -> None:
        """A long message has much to say: not all of it must wait for the end."""
        if self.events and now - self.since > HOLD:
            self.say(done=False)


class Worker:
    """`deliver` takes a function and calls it where the sinks live (an event loop's call_soon_threadsafe)."""

    def __init__(
        self, pool: Pool, places: int, deliver: Callable[[Callable[[], None]], object], meter: Meter
    ) -> None:
        self._pool, self._deliver, self._meter = pool, deliver, meter
        self._free = list(range(places))
        self._active: dict[Stream, None] = {}  # a set that keeps its order
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="whilst-worker", daemon=True)

    # From any thread.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After what was told before."""
        self._commands.put(None)
        self._thread.join()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def open(self, stream: Stream) -> None:
        self._commands.put(partial(self._open, stream))

    def tell(self, stream: Stream, job: Job | str) -> None:
        """A message, or the policy from the next sentence on."""
        self._commands.put(partial(self._tell, stream, job))

    def close(self, stream: Stream) -> None:
        self._commands.put(partial(self._close, stream))

    # In the worker's own.

    def _open(self, stream: Stream) -> None:
        stream.place = self._free.pop()

    def _tell(self, stream: Stream, job: Job | str) -> None:
        if stream.place is not None:
            stream.jobs.append(job)
            self._active[stream] = None

    def _close(self, stream: Stream) -> None:
        self._active.pop(stream, None)
        if stream.place is not None:
            self._free.append(stream.place)
        stream.place = None

    def _run(self) -> None:
        while self._listen():
            streams = list(self._active)
            for stream in streams:
                self._guard(stream, partial(self._proceed, stream))
            self._send(streams)
            for step in Operation:
                chosen = [s for s in self._active if s.ask is not None and s.ask.operation is step]
                groups = [chosen] if chosen and self._pool.together else [[stream] for stream in chosen]
                for group in groups:
                    self._do(step, group)

    def _listen(self) -> bool:
        """Take all commands that there are, and wait for one if there is nothing else to do."""
        try:
            command = self._commands.get(block=not self._active)
            while command is not None:
                command()
                command = self._commands.get(block=False)
            return False
        except Empty:
            return True

    def _proceed(self, stream: Stream) -> None:
        now = time.monotonic()
        for job in stream.proceed():
            self._meter.read(len((job.words or "").split()), now - job.came)
        stream.hurry(now)
        if stream.ask is None:
            self._active.pop(stream, None)

    def _do(self, step: Operation, streams: Sequence[Stream]) -> None:
        """One step of all of them; if that fails, of each alone, so that only the culprit suffers."""
        asks = [(stream.place, stream.ask.unit) for stream in streams if stream.ask and stream.place is not None]
        began = time.monotonic()
        try:
            if step is Operation.BEGIN:
                for stream, (place, _) in zip(streams, asks, strict=True):
                    self._pool.use(place, stream.policy)
            results = self._pool.do(step, asks)
        except Exception as error:
            if len(streams) == 1:
                self._fail(streams[0], error)
            else:
                for stream in streams:
                    self._do(step, [stream])
            return
        self._meter.did(step, len(streams), time.monotonic() - began)
        for stream, result in zip(streams, results, strict=True):
            self._guard(stream, partial(stream.answer, result))

    def _guard(self, stream: Stream, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._fail(stream, error)

    def _fail(self, stream: Stream, error: Exception) -> None:
        log.error("a session failed: %s", error, exc_info=error)
        stream.out.append((SessionError("internal", "the server failed in this session; begin another one"), False))
        self._send([stream])
        self._close(stream)

    def _send(self, streams: Sequence[Stream]) -> None:
        letters = [(stream.sink, stream.out) for stream in streams if stream.out]
        for stream in streams:
            stream.out = []
        if letters:
            # A loop that has been closed takes nothing more, and nobody is left to miss it.
            with contextlib.suppress(RuntimeError):
                self._deliver(partial(hand_out, letters))


def hand_out(letters: Sequence[tuple[Sink, list[Letter]]]) -> None:
    for sink, mine in letters:
        for letter in mine:
            sink(*letter)
