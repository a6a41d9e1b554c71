"""Speech recognition in sessions: audio in, words out. The recogniser runs in threads, not in the event loop."""

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TypeVar

from whilst.server.metrics import Metrics
from whilst.server.protocol import Limits, Message, SessionError
from whilst.speech.audio import RATE, SECOND, WIDTH
from whilst.speech.recogniser import LANGUAGES, Recogniser, SpeechReader, open_recogniser

BEAT = 5.0  # seconds between messages to the client while the recogniser is busy
REPORT = RATE // 2 * WIDTH  # bytes of audio after which it is acknowledged, even if no word has changed
Reply = Callable[[Message], None]
Result = TypeVar("Result")
log = logging.getLogger("whilst.serve")


def heard_message(reader: SpeechReader, words: list[str], read: int, end: bool = False) -> Message:
    settled, said = reader.settled
    known = {"words": words, "partial": reader.partial, "audio": read // WIDTH, "settled": settled, "said": said}
    return {"type": "heard", **known, "end": end}


def speech_missing(command: str, limits: Limits, language: str) -> str:
    """Why a server does not recognise speech in this language; empty if it does."""
    if not limits.speakers:
        return "this server does not recognise speech: it was started with --speakers 0"
    if command:
        return ""
    if language.replace("_", "-").partition("-")[0] not in LANGUAGES:
        return f"this server recognises English speech only, and the source language is {language}"
    if find_spec("moonshine_voice") is None:
        return "this server does not recognise speech: it was started without the extra `speech`"
    return ""


class SpeechService:
    """The recogniser of a process, which all speakers share, and its limits."""

    def __init__(self, limits: Limits, metrics: Metrics, command: str = "") -> None:
        """`command`: a program to run instead of moonshine-voice."""
        self.limits, self.metrics, self.command = limits, metrics, command
        self._threads = ThreadPoolExecutor(max(1, limits.speakers), "whilst-speech")
        self.streams: dict[SpeechStream, asyncio.Task[None]] = {}

    def missing(self, language: str) -> str:
        return speech_missing(self.command, self.limits, language)

    def open(self, language: str, said: str, reply: Reply) -> "SpeechStream":
        if missing := self.missing(language):
            raise SessionError("speech", missing, fatal=False)
        if len(self.streams) >= self.limits.speakers:
            most = self.limits.speakers
            message = f"the server recognises no more speakers at a time than {most}; try again later"
            raise SessionError("too_many_speakers", message, fatal=False)
        stream = SpeechStream(self, said, reply)
        self.streams[stream] = asyncio.create_task(stream.run())
        return stream

    async def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    @cached_property
    def start(self) -> Callable[[], Recogniser]:
        """The function that opens a recogniser; it waits for the model."""
        return open_recogniser(self.command)

    async def stop(self) -> None:
        for stream in list(self.streams):
            stream.close()
        if self.streams:
            await asyncio.wait(list(self.streams.values()), timeout=self.limits.send)
        self._threads.shutdown(wait=False, cancel_futures=True)


class SpeechStream:
    """The audio of a session, from one `listen` to its end."""

    def __init__(self, service: SpeechService, said: str, reply: Reply) -> None:
        self._service, self._said, self._reply = service, said, reply
        self._audio = bytearray()  # not yet recognised
        self._read = 0  # bytes
        self._ended = False  # no more audio follows
        self._changed = asyncio.Event()
        self._recogniser: Recogniser | None = None
        self.over = False  # further audio is ignored

    @property
    def waiting(self) -> float:
        """Seconds of audio that wait to be recognised."""
        return len(self._audio) / SECOND

    def add(self, pcm: bytes) -> None:
        """Add audio; empty audio says that no more follows."""
        if not self.over:
            self._audio += pcm
            self._ended = self._ended or not pcm
            self._changed.set()

    def close(self) -> None:
        self.over, self._audio = True, bytearray()
        self._changed.set()
        if self._recogniser:
            self._recogniser.abort()

    async def run(self) -> None:
        last: Message | None = None
        try:
            self._recogniser = await self._service.call(self._service.start)
            try:
                last = await self._recognise(self._recogniser)
            finally:
                await self._service.call(self._recogniser.close)
        except Exception as error:
            if not self.over:
                log.error("the recogniser failed: %s", error, exc_info=error)
                self._service.metrics.count_error("speech")
                message = "the recogniser of this server failed; speak again"
                last = SessionError("speech", message, fatal=False).to_message()
        self.close()
        del self._service.streams[self]
        if last is not None:
            self._reply(last)

    async def _recognise(self, recogniser: Recogniser) -> Message | None:
        """Recognise audio until it ends; returns the last answer, or None if the stream was closed."""
        reader = SpeechReader(recogniser, said=self._said)
        last = heard_message(reader, [], 0)
        self._reply(last)
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self.over:
                return None
            pcm, self._audio = bytes(self._audio), bytearray()
            end = self._ended
            call = asyncio.ensure_future(self._service.call(partial(recognise, reader, pcm, end)))
            for _ in range(math.ceil(self._service.limits.recognition / BEAT)):
                if (await asyncio.wait({call}, timeout=BEAT))[0]:
                    break
                self._reply(last | {"words": []})
            else:
                recogniser.abort()
            words = await call
            self._read += len(pcm)
            self._service.metrics.audio_seconds.inc(len(pcm) / SECOND)
            message = heard_message(reader, words, self._read, end)
            progress = (message["audio"] - last["audio"]) * WIDTH >= REPORT
            if end:
                return message
            if words or progress or message["partial"] != last["partial"]:
                self._reply(last := message)


def recognise(reader: SpeechReader, pcm: bytes, end: bool) -> list[str]:
    words = list(reader.read(pcm)) if pcm else []
    return [*words, *reader.flush()] if end else words
