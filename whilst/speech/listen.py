"""The commands `whilst listen` and `whilst demo --speech`: translate the speech of a microphone or a file."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whilst.core.errors import UserError, note
from whilst.live.input import read_chunks
from whilst.live.loading import ModelOptions
from whilst.live.session import Event, SentenceEnd, Session, Word
from whilst.live.terminal import DEMO, TALK, LiveOptions, LiveTranslation, open_outputs, open_session, stopwatch
from whilst.speech.audio import RATE, SECOND, PcmBlocks, at_speaking_pace, open_file, open_microphone
from whilst.speech.recogniser import DEFAULT_INTERVAL, SpeechReader, open_recogniser, recording


@dataclass(frozen=True)
class ListenOptions:
    source: str = ""  # a file, or - for PCM on standard input; empty: a microphone
    device: str = ""  # which microphone
    fast: bool = False  # read a file as fast as possible, not at the pace of speech
    interval: float = DEFAULT_INTERVAL
    recogniser: str = ""  # a command; empty: moonshine-voice
    server: str = ""  # address of the server that translates; empty: this process translates
    token: str = ""  # of the server
    live: LiveOptions = field(default_factory=LiveOptions)

    def __post_init__(self) -> None:
        if self.device and self.source:
            raise UserError(f"--device {self.device}: is for a microphone; leave out {self.source}")
        if self.fast and self.source in ("", "-"):
            raise UserError("--fast: name a file; a microphone is never faster than the speaker")

    def open_audio(self) -> PcmBlocks:
        match self.source:
            case "":
                return open_microphone(self.device)
            case "-":
                return read_chunks(sys.stdin.buffer, RATE)
        blocks = open_file(Path(self.source))
        return blocks if self.fast else at_speaking_pace(blocks)


def listen(model_options: ModelOptions, options: ListenOptions) -> None:
    """Translate until the audio ends, or Ctrl-C. With `fast`, times are those in the file."""
    start_recogniser = open_recogniser(options.recogniser, options.interval)
    with contextlib.ExitStack() as stack:
        audio = stack.enter_context(contextlib.closing(options.open_audio()))
        session: Session | RemoteSession
        if options.server:
            session = RemoteSession(options.server, model_options.latency, options.token)
            stack.callback(session.close)
        else:
            session = open_session(model_options)
        recogniser = stack.enter_context(contextlib.closing(start_recogniser()))
        if not options.source:
            note("listening; Ctrl-C ends")
        seconds = 0.0  # of audio read so far

        def counted() -> Generator[bytes, None, None]:
            nonlocal seconds
            for block in audio:
                seconds += len(block) / SECOND
                yield block

        clock = (lambda: seconds) if options.fast else stopwatch()
        reader = SpeechReader(recogniser, options.live.agreement)
        LiveTranslation(session, reader, open_outputs(options.live), clock).run(counted())


def speech_demo(fast: bool = False) -> None:
    """Translate the talk of `whilst demo`, spoken by espeak-ng; without espeak-ng, the recogniser's recording."""
    with tempfile.TemporaryDirectory() as folder:
        talk = recording()
        if shutil.which("espeak-ng"):
            talk = Path(folder) / "talk.wav"
            subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-f", TALK, "-w", talk], check=True)
        options = ListenOptions(str(talk), fast=fast, live=LiveOptions(show=True))
        listen(DEMO, options)


class RemoteSession:
    """A session on a running `whilst serve`. Each call waits for the translation of what it sends."""

    def __init__(self, url: str, latency: str, token: str = "") -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        self._url, self._error, self._seq = url, WebSocketException, 0
        self._stack = contextlib.ExitStack()  # connections of websockets are context managers
        scheme, separator, rest = url.partition("://")
        if not separator or scheme not in ("http", "https", "ws", "wss"):
            raise UserError(f"--serve {url}: give the address of a server, such as http://127.0.0.1:8000")
        address = f"{scheme.replace('http', 'ws')}://{rest.rstrip('/')}/v1/stream"
        try:
            self._socket = self._stack.enter_context(connect(address, compression=None))
        except (OSError, WebSocketException) as error:
            raise UserError(f"--serve {url}: no connection ({error}); is `whilst serve` running there?") from None
        self._exchange({"type": "start", "latency": latency, "token": token}, "ready")

    def close(self) -> None:
        self._stack.close()

    def feed(self, words: str) -> list[Event]:
        self._seq += 1
        return self._exchange({"type": "words", "seq": self._seq, "text": words}, "commit")

    def finish(self) -> list[Event]:
        self._seq += 1
        return self._exchange({"type": "finish", "seq": self._seq}, "final")

    def _exchange(self, message: dict[str, Any], answer: str) -> list[Event]:
        """Send a message; returns the events until the answer of this type that acknowledges it."""
        events: list[Event] = []
        try:
            self._socket.send(json.dumps(message))
            while True:
                reply = json.loads(self._socket.recv())
                if reply["type"] == "error":
                    raise UserError(f"{self._url}: {reply['message']}")
                if reply["type"] == "commit":
                    events += events_of(reply)
                if reply["type"] == answer and reply.get("ack", self._seq) >= self._seq:
                    return events
        except (OSError, self._error) as error:
            raise UserError(f"{self._url}: the connection is lost ({error})") from None


def events_of(reply: dict[str, Any]) -> list[Event]:
    """The events of a commit in the order of a session: the end of a sentence comes after its words."""
    words: list[Event] = [
        Word(word["text"], word["sentence"], word["source"], word["delay"]) for word in reply["words"]
    ]
    ends = [SentenceEnd(end["sentence"], end["source"], end["length"]) for end in reply["ends"]]
    return sorted([*words, *ends], key=lambda event: event.sentence)
