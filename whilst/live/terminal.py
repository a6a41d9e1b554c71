"""The commands `whilst live` and `whilst demo`: source words from a stream, translated words to the outputs."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Protocol

from whilst.core.errors import StoppedError, UserError, note
from whilst.core.settings import DEFAULT_MODEL
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.data.sentences import never_ends
from whilst.live.input import BREAK, DEFAULT_AGREEMENT, HypothesisParser, PlainTextParser, Reader, read_chunks
from whilst.live.keyboard import typed_chunks
from whilst.live.loading import ModelOptions, open_model
from whilst.live.output import JsonOutput, Output, PlainOutput, SubtitleFile
from whilst.live.session import Event, Session, Word

TALK = Path(__file__).with_name("sentences") / "talk.txt"
DEMO = ModelOptions(DEFAULT_MODEL, "agent-3")  # its waiting is easier to see than that of medium, at equal quality


@dataclass(frozen=True)
class LiveOptions:
    as_json: bool = False
    show: bool = False
    srt: Path | None = None
    vtt: Path | None = None
    partial: bool = False  # the input is the hypotheses of a recogniser
    agreement: int = DEFAULT_AGREEMENT  # hypotheses in a row that must agree on a word
    by_lines: bool = False  # sentences end at line ends only
    words_per_second: float | None = None  # at most; None: no limit

    def __post_init__(self) -> None:
        if self.show and self.as_json:
            raise UserError("--show and --json: one is for people and one for programs; leave one of them out")
        if self.partial and self.by_lines:
            raise UserError("--partial and --lines: lines of a recogniser are not sentences; leave one of them out")
        if self.srt is not None and self.vtt is not None and self.srt.resolve() == self.vtt.resolve():
            raise UserError(f"--srt and --vtt: {self.srt} cannot be both")


class Translation(Protocol):
    """A session in this process or on a server."""

    def feed(self, words: str) -> list[Event]: ...

    def finish(self) -> list[Event]: ...


class DeferredInterrupt:
    """Turns stop signals into `StoppedError`: at once while waiting, else at the next wait.

    A model step and the output of its words are therefore never interrupted, unless the signal comes twice.
    """

    def __init__(self) -> None:
        self._waiting = False
        self._pending = 0  # number of the last signal; 0: none

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        previous, self._pending = self._pending, number
        if self._waiting or previous:
            raise StoppedError(number)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        if self._pending:
            raise StoppedError(self._pending)
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False


@dataclass
class LiveTranslation:
    """Moves words from an input through a session to its outputs."""

    session: Translation
    reader: Reader
    outputs: list[Output]
    clock: Callable[[], float]
    words_per_second: float | None = None  # at most; None: no limit
    interrupt: DeferredInterrupt = field(default_factory=DeferredInterrupt)
    last_word: float = -math.inf  # time of the last word, if their rate is limited

    def _feed(self, words: Iterable[str], arrived: float) -> None:
        for word in words:
            if word == BREAK:
                events = self.session.finish()
            else:
                if self.words_per_second is not None:
                    with self.interrupt.waiting():
                        time.sleep(max(0.0, self.last_word + 1 / self.words_per_second - self.clock()))
                    arrived = self.last_word = self.clock()
                for output in self.outputs:
                    output.source_word(word, arrived)
                events = self.session.feed(word)
            now = self.clock()
            for event in events:
                for output in self.outputs:
                    if isinstance(event, Word):
                        output.target_word(event, arrived, now)
                    else:
                        output.sentence_end(event, now)
        for output in self.outputs:
            output.flush()

    def run(self, chunks: Iterator[bytes]) -> None:
        """Translate until the input ends. Words read before an interrupt or invalid input are still translated."""
        with handle_signals(STOP_SIGNALS, self.interrupt.handle), contextlib.ExitStack() as stack:
            for output in self.outputs:
                stack.callback(output.close)  # each one, even if closing another fails
            try:
                chunk = None
                while chunk != b"":
                    with self.interrupt.waiting():
                        chunk = next(chunks, b"")
                    arrived = self.clock()
                    self._feed(self.reader.read(chunk), arrived)
                self._feed(self.reader.flush(), self.clock())
            except (KeyboardInterrupt, UserError):
                self.words_per_second = None
                self._feed([*self.reader.flush(), BREAK], self.clock())
                raise
            self._feed([BREAK], self.clock())


def stopwatch() -> Callable[[], float]:
    """A clock of the seconds since this call."""
    start = time.monotonic()
    return lambda: time.monotonic() - start


def open_session(model_options: ModelOptions, typed: bool = False, by_lines: bool = False) -> Session:
    model = open_model(model_options)
    if model.note:
        note(model.note)
    if typed:
        note(f"{model.policy} ({model.engine}): type words; Enter twice ends a sentence, Ctrl-D ends")
    text = replace(model.text, ends_sentence=never_ends) if by_lines else model.text
    return Session(model.backend(), text)


def open_outputs(options: LiveOptions, typed: bool = False) -> list[Output]:
    """`typed`: the source is typed at the terminal."""
    files = {"srt": options.srt, "vtt": options.vtt}
    outputs: list[Output] = [SubtitleFile(path, form) for form, path in files.items() if path]
    # Standard output comes last: if its reader has gone, the subtitles already have the word.
    if options.as_json:
        return [*outputs, JsonOutput()]
    if not options.show and not can_redraw():
        return [*outputs, PlainOutput(typed)]
    from whilst.core.console import console
    from whilst.live.display import Display

    return [*outputs, Display(console, options.show)]


def can_redraw() -> bool:
    """Whether standard output is a terminal on which lines can be drawn again."""
    return sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def run_live(model_options: ModelOptions, options: LiveOptions, stream: BinaryIO | None = None) -> None:
    """Translate the words of a stream, or of standard input."""
    if (stream is None and sys.stdin is None) or sys.stdout is None:
        raise UserError("standard input and output: one of them is closed; leave both open")
    typed = stream is None and sys.stdin.isatty()
    parser = HypothesisParser(options.agreement) if options.partial else PlainTextParser(options.by_lines)
    session = open_session(model_options, typed, options.by_lines)
    outputs = open_outputs(options, typed)
    translation = LiveTranslation(session, parser, outputs, stopwatch(), options.words_per_second)
    if typed and outputs[-1].shows_typing and sys.platform != "win32":
        chunks = typed_chunks(sys.stdin.fileno(), outputs[-1].typing)
    else:
        chunks = read_chunks(stream or sys.stdin.buffer)
    with contextlib.closing(chunks):
        translation.run(chunks)


def demo(words_per_second: float = 3.0) -> None:
    """The command `whilst demo`: a short talk at speaking rate, translated by the model of the package."""
    with TALK.open("rb") as talk:
        options = LiveOptions(show=True, words_per_second=words_per_second)
        run_live(DEMO, options, talk)
