"""The command `whilst listen`: a microphone or a file to captions."""

import contextlib
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from whilst.core.errors import UserError
from whilst.live.input import read_chunks
from whilst.live.loading import ModelOptions
from whilst.live.output import note
from whilst.live.terminal import LiveOptions, LiveTranslation, Translation, open_outputs, open_session, stopwatch
from whilst.speech.audio import PcmBlocks, at_speaking_pace, open_file, open_microphone
from whilst.speech.pcm import RATE, SECOND
from whilst.speech.reader import SpeechReader
from whilst.speech.recogniser import DEFAULT_INTERVAL, open_recogniser


@dataclass(frozen=True)
class ListenOptions:
    source: str = ""  # a file, or - for PCM on standard input; empty: a microphone
    device: str = ""  # which microphone
    fast: bool = False  # do not wait until what a file says would have been spoken
    interval: float = DEFAULT_INTERVAL
    recogniser: str = ""  # a command; empty: moonshine-voice
    server: str = ""  # whose model translates; empty: this process
    token: str = ""  # of the server
    live: LiveOptions = field(default_factory=LiveOptions)

    def __post_init__(self) -> None:
        if self.device and self.source:
            raise UserError(f"--device {self.device}: is for a microphone; leave out {self.source}")
        if self.fast and self.source in ("", "-"):
            raise UserError("--fast: name a file; nobody speaks faster than they do")

    def open_audio(self) -> PcmBlocks:
        match self.source:
            case "":
                return open_microphone(self.device)
            case "-":
                return read_chunks(sys.stdin.buffer, RATE)
        blocks = open_file(Path(self.source))
        return blocks if self.fast else at_speaking_pace(blocks)


def listen(wanted: ModelOptions, options: ListenOptions) -> None:
    """Until the audio ends, or Ctrl-C. With `fast`, times are those in the file."""
    start_recogniser = open_recogniser(options.recogniser, options.interval)
    with contextlib.ExitStack() as stack:
        audio = stack.enter_context(contextlib.closing(options.open_audio()))
        if options.server:
            from whilst.speech.remote import RemoteSession

            session: Translation = stack.enter_context(
                contextlib.closing(RemoteSession(options.server, wanted.latency, options.token))
            )
        else:
            session = open_session(wanted)
        recogniser = stack.enter_context(contextlib.closing(start_recogniser()))
        if not options.source:
            note("listening; Ctrl-C ends")
        seconds = 0.0  # of audio that were read

        def counted() -> Generator[bytes, None, None]:
            nonlocal seconds
            for block in audio:
                seconds += len(block) / SECOND
                yield block

        clock = (lambda: seconds) if options.fast else stopwatch()
        reader = SpeechReader(recogniser, options.live.agreement)
        LiveTranslation(session, reader, open_outputs(options.live), clock).run(counted())
