"""The `live` command: words from standard input as they come, translated words as they are ready."""

import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from whilst.core.console import console
from whilst.core.errors import UserError
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.live.displays import Sink, pick, teller
from whilst.live.incoming import BREAK, KEEP, Decoder, Hypotheses, Parser, Words
from whilst.live.loading import Wanted, open_model
from whilst.live.marks import Marks
from whilst.live.session import Event, Session, Word
from whilst.live.subtitles import Srt, Vtt

CHUNK = 1 << 16  # bytes


@dataclass(frozen=True)
class Options:
    as_json: bool = False
    partial: bool = False
    keep: int | None = None  # of partial hypotheses; None: the usual
    srt: Path | None = None
    vtt: Path | None = None
    show: bool = False  # every READ and WRITE
    pace: float = 0.0  # words a second at most; 0: as they come

    def __post_init__(self) -> None:
        if self.show and self.as_json:
            raise UserError("--show and --json: one is for people and one for programs; leave one of them away")
        if self.keep is not None and not self.partial:
            raise UserError("--keep: is for what may still change; add --partial")
        if self.pace and not 0.001 <= self.pace < math.inf:
            raise UserError(f"--pace {self.pace}: must be a number of words a second; people speak two to four")
        if self.srt is not None and self.vtt is not None and self.srt.resolve() == self.vtt.resolve():
            raise UserError(f"--srt and --vtt: {self.srt} cannot be both")


class Patience:
    """Ctrl-C comes at once while input is awaited, else when the model has done its step, which has no half.

    The same for SIGTERM: who stops a service wants whole subtitles too.
    """

    def __init__(self) -> None:
        self.waiting = False
        self.asked = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if self.waiting or again:  # who asks twice does not want to wait
            signal.default_int_handler(number, frame)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        with handle_signals(STOP_SIGNALS, self.handle):
            yield

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        if self.asked:
            raise KeyboardInterrupt
        self.waiting = True
        try:
            yield
        finally:
            self.waiting = False

    def read(self, stream: BinaryIO) -> bytes:
        """What has come, at least a byte; nothing at the end."""
        with self._open():
            return stream.read1(CHUNK)  # type: ignore[attr-defined, no-any-return]

    def sleep(self, seconds: float) -> None:
        with self._open():
            time.sleep(max(0.0, seconds))


class Run:
    """A session between its input and its sinks."""

    def __init__(
        self,
        session: Session,
        parser: Parser,
        sinks: list[Sink],
        clock: Callable[[], float],
        pace: float = 0.0,
    ) -> None:
        self.session, self.parser, self.sinks, self.clock, self.pace = session, parser, sinks, clock, pace
        self._decode = Decoder("standard input")
        self._patience = Patience()
        self._last = -math.inf  # when the last word was heard, if there is a pace to keep

    def hear(self, words: Sequence[str], arrived: float) -> None:
        for word in words:
            if self.pace and word != BREAK:
                self._patience.sleep(self._last + 1 / self.pace - self.clock())
                arrived = self._last = self.clock()
            if word != BREAK:
                for sink in self.sinks:
                    sink.heard(word, arrived)
            self._show(self.session.finish() if word == BREAK else self.session.feed(word), arrived)
        for sink in self.sinks:
            sink.paused()

    def _show(self, events: list[Event], arrived: float) -> None:
        now = self.clock()
        for event in events:
            for sink in self.sinks:
                if isinstance(event, Word):
                    sink.wrote(event, arrived, now)
                else:
                    sink.ended(event, now)

    def go(self, stream: BinaryIO) -> None:
        """Until the input ends. What was fed is translated to its end, also after Ctrl-C or bad input."""
        patience = self._patience
        with patience.listening(), contextlib.ExitStack() as left:
            for sink in self.sinks:  # each is closed, whatever another one has to complain of
                left.callback(sink.close)
            try:
                while chunk := patience.read(stream):
                    arrived = self.clock()
                    self.hear(self.parser.take(self._decode(chunk)), arrived)
                last = self.parser.take(self._decode(b"", last=True))
                self.hear([*last, *self.parser.rest()], self.clock())
            except (KeyboardInterrupt, UserError):
                self.pace = 0.0  # there is nothing to wait for any more
                self.hear([*self.parser.rest(), BREAK], self.clock())
                raise
            self.hear([BREAK], self.clock())


def run_live(wanted: Wanted, options: Options, stream: BinaryIO | None = None) -> None:
    """Translate the words of a stream; of standard input, if none is given."""
    if options.partial and wanted.by_lines:
        raise UserError("--partial and --lines: a recogniser's lines are no sentences; leave one of them away")
    if (stream is None and sys.stdin is None) or sys.stdout is None:
        raise UserError("standard input and output: one of them is closed; leave both open")
    typed = stream is None and sys.stdin.isatty()
    sink = Marks(console) if options.show else pick(options.as_json, typed, console)
    say = teller(sink)
    parser: Parser = Hypotheses(say, options.keep or KEEP) if options.partial else Words(wanted.by_lines)
    model = open_model(wanted, say)
    session = Session(model.steps(), model.text)
    sinks: list[Sink] = [Srt(options.srt, say)] if options.srt else []
    sinks += [Vtt(options.vtt, say)] if options.vtt else []
    sinks.append(sink)  # last: if its reader has left, the subtitles have the word
    if model.about:
        say(model.about)
    if typed:
        say(f"{model.policy} ({model.engine}): type words; an empty line ends a sentence, Ctrl-D ends")
    began = time.monotonic()
    Run(session, parser, sinks, lambda: time.monotonic() - began, options.pace).go(stream or sys.stdin.buffer)
