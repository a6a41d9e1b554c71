"""The command `whilst listen`: a microphone or a file to captions."""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from whilst.core.console import console
from whilst.core.errors import UserError
from whilst.live.input import DEFAULT_AGREEMENT
from whilst.live.loading import ModelOptions
from whilst.live.output import choose_output
from whilst.live.terminal import LiveOptions, Translation, open_session, translate
from whilst.speech.audio import Audio, microphone_blocks, open_file
from whilst.speech.pcm import RATE
from whilst.speech.reader import SpeechReader
from whilst.speech.recogniser import DEFAULT_INTERVAL, open_recogniser


@dataclass(frozen=True)
class ListenOptions:
    source: str = ""  # a file, or - for PCM on standard input; empty: a microphone
    device: str = ""  # which microphone
    fast: bool = False  # do not wait until what a file says would have been spoken
    interval: float = DEFAULT_INTERVAL
    agreement: int = DEFAULT_AGREEMENT
    recogniser: str = ""  # a command; empty: moonshine-voice
    server: str = ""  # whose model translates; empty: this process
    token: str = ""  # of the server
    live: LiveOptions = field(default_factory=LiveOptions)

    def __post_init__(self) -> None:
        if self.device and self.source:
            raise UserError(f"--device {self.device}: is for a microphone; leave out {self.source}")
        if self.fast and self.source in ("", "-"):
            raise UserError("--fast: name a file; nobody speaks faster than they do")

    def open_audio(self, notify: Callable[[str], None]) -> Audio:
        match self.source:
            case "":
                return Audio(microphone_blocks(self.device, notify))
            case "-":
                return Audio(iter(lambda: sys.stdin.buffer.read1(RATE), b""))  # type: ignore[union-attr]
        return open_file(Path(self.source), self.fast)


def listen(wanted: ModelOptions, options: ListenOptions) -> None:
    """Until the audio ends, or Ctrl-C. With `fast`, times are those in the file."""
    output = choose_output(options.live.as_json, options.live.show, typed=False, console=console)
    start_recogniser = open_recogniser(options.recogniser, options.interval)
    with contextlib.ExitStack() as stack:
        audio = stack.enter_context(contextlib.closing(options.open_audio(output.note)))
        if options.server:
            from whilst.speech.remote import RemoteSession

            session: Translation = stack.enter_context(RemoteSession(options.server, wanted.latency, options.token))
        else:
            session = open_session(wanted, output)
        recogniser = stack.enter_context(contextlib.closing(start_recogniser()))
        if not options.source:
            output.note("listening; Ctrl-C ends")
        start = time.monotonic()
        clock = (lambda: audio.seconds) if options.fast else (lambda: time.monotonic() - start)
        translate(session, SpeechReader(recogniser, options.agreement), audio, output, options.live, clock)
