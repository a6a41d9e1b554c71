"""The thread that runs the model for all sessions of a process.

It works in rounds: in each, all sessions with work take part in one batched call per operation, so a long text
does not delay a short one. Messages of a session are processed in order: its output does not depend on timing. An
exception in a session ends only that session.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue

from whilst.live.session import Event, Operation, Request, SessionState, Summary, TextPipeline
from whilst.server.metrics import Metrics
from whilst.server.protocol import Finish, Message, SessionError, Words, commit_message, final_message
from whilst.server.served import Pool

HOLD = 0.05  # seconds for which words of one client message are collected into one commit
log = logging.getLogger("whilst.serve")

Input = tuple[Words | Finish, float]  # a message, and when it was received (time.monotonic)
Receiver = Callable[[Message | SessionError, bool], None]  # a reply, and whether it completes an input


class Stream:
    """A session in the worker's thread; no other thread uses it after `Worker.open`."""

    def __init__(self, text: TextPipeline, policy: str, receiver: Receiver) -> None:
        self.policy, self._receiver = policy, receiver  # the policy of the next sentence
        self.state = SessionState(text)
        self.slot: int | None = None  # in the pool
        self.queue: deque[Input | str] = deque()  # a string is the policy of the next sentence
        self.request: Request | None = None  # pending
        self.replies: list[Callable[[], None]] = []  # calls of the receiver
        self._input: Input | None = None  # in progress
        self._ack = 0
        self._summary = Summary()
        self._events: list[Event] = []  # not committed
        self._first_event = 0.0  # time of the first of these events

    def reply(self, message: Message | SessionError, completes: bool) -> None:
        self.replies.append(partial(self._receiver, message, completes))

    def advance(self) -> list[Input]:
        """Process inputs until the model is needed; returns those that are completed."""
        completed = list[Input]()
        while self.request is None:
            if self._input is not None:
                self._complete(self._input[0])
                completed.append(self._input)
                self._input = None
            if not self.queue:
                break
            following = self.queue.popleft()
            if isinstance(following, str):
                self.policy = following
                continue
            self._input = following
            if isinstance(message := following[0], Words):
                self.state.add_words(message.text)
            else:
                self.state.end_sentence()
            self._add_events(self.state.close_finished())
            self.request = self.state.next_request()
        return completed

    def handle_result(self, result: int) -> None:
        assert self.request is not None
        self._add_events(self.state.handle_result(self.request, result))
        self.request = self.state.next_request()

    def _add_events(self, events: list[Event]) -> None:
        if events and not self._events:
            self._first_event = time.monotonic()
        self._events += events
        for event in events:
            self._summary.add(event)

    def _complete(self, message: Words | Finish) -> None:
        self._ack = message.seq
        self._commit(completes=isinstance(message, Words))
        if isinstance(message, Finish):
            self.reply(final_message(self._ack, self.state.source_words, self._summary), True)

    def _commit(self, completes: bool) -> None:
        self.reply(commit_message(self._ack, self._events), completes)
        self._events = []

    def commit_overdue(self, now: float) -> None:
        if self._events and now - self._first_event > HOLD:
            self._commit(completes=False)


class Worker(threading.Thread):
    """`deliver` calls a function in the thread of the receivers (an event loop's call_soon_threadsafe)."""

    def __init__(
        self, pool: Pool, slots: int, deliver: Callable[[Callable[[], None]], object], metrics: Metrics
    ) -> None:
        super().__init__(name="whilst-worker", daemon=True)
        self._pool, self._deliver, self._metrics = pool, deliver, metrics
        self._free = list(range(slots))
        self._active: dict[Stream, None] = {}  # an ordered set
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    # Called from any thread.

    def stop(self) -> None:
        """Stop once the commands queued so far are done."""
        self._commands.put(None)
        self.join()

    def open(self, stream: Stream) -> None:
        self._commands.put(partial(self._open, stream))

    def send(self, stream: Stream, message: Input | str) -> None:
        """Queue an input, or the policy from the next sentence on."""
        self._commands.put(partial(self._enqueue, stream, message))

    def close(self, stream: Stream) -> None:
        self._commands.put(partial(self._close, stream))

    # Called in the worker's thread.

    def _open(self, stream: Stream) -> None:
        stream.slot = self._free.pop()

    def _enqueue(self, stream: Stream, message: Input | str) -> None:
        if stream.slot is not None:
            stream.queue.append(message)
            self._active[stream] = None

    def _close(self, stream: Stream) -> None:
        self._active.pop(stream, None)
        if stream.slot is not None:
            self._free.append(stream.slot)
        stream.slot = None

    def run(self) -> None:
        while self._run_commands():
            streams = list(self._active)
            for stream in streams:
                self._guard(stream, partial(self._advance, stream))
            self._send_replies(streams)
            for operation in Operation:
                pending = [s for s in self._active if s.request is not None and s.request.operation is operation]
                groups = [pending] if pending and self._pool.is_batched else [[stream] for stream in pending]
                for group in groups:
                    self._compute(operation, group)

    def _run_commands(self) -> bool:
        """Run all queued commands; if no session has work, wait for one. Returns False after `stop`."""
        try:
            command = self._commands.get(block=not self._active)
            while command is not None:
                command()
                command = self._commands.get(block=False)
            return False
        except Empty:
            return True

    def _advance(self, stream: Stream) -> None:
        now = time.monotonic()
        for message, received in stream.advance():
            words = len(message.text.split()) if isinstance(message, Words) else 0
            self._metrics.count_message(words, now - received)
        stream.commit_overdue(now)
        if stream.request is None:
            self._active.pop(stream, None)

    def _compute(self, operation: Operation, streams: Sequence[Stream]) -> None:
        """Run one operation for all streams. If it fails, run it for each alone: only those that fail are ended."""
        requests = [
            (stream.slot, stream.request) for stream in streams if stream.request and stream.slot is not None
        ]
        start = time.monotonic()
        try:
            if operation is Operation.BEGIN:
                for stream, (slot, _) in zip(streams, requests, strict=True):
                    self._pool.use(slot, stream.policy)
            results = self._pool.do(requests)
        except Exception as error:
            if len(streams) == 1:
                self._fail(streams[0], error)
            else:
                for stream in streams:
                    self._compute(operation, [stream])
            return
        self._metrics.count_step(operation.name.lower(), len(streams), time.monotonic() - start)
        for stream, result in zip(streams, results, strict=True):
            self._guard(stream, partial(stream.handle_result, result))

    def _guard(self, stream: Stream, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._fail(stream, error)

    def _fail(self, stream: Stream, error: Exception) -> None:
        log.error("a session failed: %s", error, exc_info=error)
        failure = SessionError("internal", "the server failed in this session; begin another one")
        stream.reply(failure, False)
        self._send_replies([stream])
        self._close(stream)

    def _send_replies(self, streams: Sequence[Stream]) -> None:
        replies = [reply for stream in streams for reply in stream.replies]
        for stream in streams:
            stream.replies = []
        if replies:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._deliver(partial(_call_all, replies))


def _call_all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()
