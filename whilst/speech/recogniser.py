"""Speech recognisers behind one interface: audio in, growing hypotheses out, and words once they are final."""

import abc
import contextlib
import itertools
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from whilst.core.errors import UserError, note
from whilst.live.input import DEFAULT_AGREEMENT, UTTERANCE_END, Commitment, Hypothesis, Reader, hypotheses_of
from whilst.speech.audio import RATE, SECOND, WIDTH

LANGUAGES = "en", "eng"  # of moonshine-voice
DEFAULT_INTERVAL = 1.0  # seconds of audio between two updates
PAUSE = 0.8  # seconds without speech that end a sentence
LONGEST = 60 * SECOND  # bytes of complete segments after which a stream is restarted without a pause
LOOK_BEHIND = SECOND // 2  # bytes of audio kept during silence: speech may begin before it is detected


class Recogniser(abc.ABC):
    """One stream of speech. Neither its memory nor the cost of a call may grow with its length."""

    settled = 0  # number of samples, from the start, whose words are all final

    @abc.abstractmethod
    def feed(self, pcm: bytes) -> list[Hypothesis]:
        """Add audio, in chunks of any size; returns new hypotheses."""

    @abc.abstractmethod
    def finish(self) -> list[Hypothesis]:
        """End the audio; returns the remaining hypotheses. The last one is final."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free all resources; may be called twice."""

    def abort(self) -> None:  # noqa: B027
        """Called from another thread, to end a call that waits."""


class Segment(NamedTuple):
    """A piece of speech between short pauses."""

    text: str
    is_complete: bool  # neither its text nor its end will change
    end: float  # seconds since the start of the stream


class MoonshineProcess:
    """A child process in which moonshine-voice recognises all streams (moonshine.py); it runs while any is open.

    The package keeps 5 MB for each minute of speech until its process ends. The process is therefore replaced after
    LIFETIME, at a pause of a stream, and whenever it ends unexpectedly. The new process loads the model in half a
    second, while the next audio is awaited. Each stream sends it again the audio of segments that are not complete.
    """

    LIFETIME = 120.0  # seconds of audio

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held during a request, and while `number` must not change
        self.number = 0  # of the process, counted from 1
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = 0  # bytes of audio that this process has received
        self._numbers = itertools.count()
        self._streams: set[int] = set()

    def open(self) -> int:
        """Open a stream; returns its number."""
        with self.lock:
            if not self._streams:
                self.replace()
            self._streams.add(stream := next(self._numbers))
            return stream

    def close(self, stream: int) -> None:
        with self.lock:
            if stream in self._streams:
                self._streams.remove(stream)
                if self._streams:
                    self.ask(stream, start=True, stop=True)
                else:
                    self._end()

    def replace(self) -> None:
        self._end()
        command = [sys.executable, "-P", "-m", "whilst.speech.moonshine"]
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        # In a session of its own, so that Ctrl-C does not end it before it has recognised the last words.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | path, start_new_session=True
        )
        self.number += 1
        self._heard = 0

    def replace_if_old(self) -> None:
        with self.lock:
            if self._heard > self.LIFETIME * SECOND:
                self.replace()

    def _end(self) -> None:
        if self._process:
            end_process(self._process)
        self._process = None

    def ask(self, stream: int, pcm: bytes = b"", start: bool = False, stop: bool = False) -> list[Segment] | None:
        """Send a request; returns the stream's segments since its start, or None if the process was replaced."""
        assert self._process is not None
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        request = {"stream": stream, "start": start, "stop": stop, "rate": RATE, "bytes": len(pcm)}
        answer = b""
        try:
            with contextlib.suppress(OSError):
                requests.write(json.dumps(request).encode() + b"\n" + pcm)
                requests.flush()
                answer = answers.readline()
        finally:
            if failed := not answer.endswith(b"\n"):
                self.replace()
        if failed:
            note("the recogniser ended unexpectedly; it was started again")
            return None
        self._heard += len(pcm)
        return [Segment(*row) for row in json.loads(answer)]


class Moonshine(Recogniser):
    """The English model inside the package moonshine-voice. Each update recognises the open segment of speech anew.

    A segment ends at a short pause. The package keeps all audio and text of a stream until the stream is restarted.
    This is done whenever no segment is open, or after LONGEST if one always is. The restarted stream receives again
    the audio after the last complete segment.
    """

    ATTEMPTS = 3  # to recognise the same audio

    def __init__(self, process: MoonshineProcess, interval: float) -> None:
        self._process, self._stream = process, process.open()
        self._number = process.number  # of the process that knows the stream
        self._interval = max(1, round(interval * RATE)) * WIDTH  # bytes
        self._waiting = bytearray()  # audio for the next update, which begins when it fills an interval
        self._fed = 0  # samples of all updates
        self._stream_audio = bytearray()  # since the start of the stream
        self._sent = 0  # bytes of `_stream_audio` that the process has; 0: the next request starts the stream
        self._reported = 0  # segments of the stream whose final hypothesis was returned
        self._reported_end = 0  # bytes of the stream's audio up to the end of these segments
        self._silence = PAUSE  # seconds since the last segment
        self._failed = False
        try:
            self._segments()  # waits for the model
        except UserError:
            self.close()
            raise

    def feed(self, pcm: bytes) -> list[Hypothesis]:
        self._waiting += pcm
        return self._update() if len(self._waiting) >= self._interval else []

    def finish(self) -> list[Hypothesis]:
        if self._failed:
            return [UTTERANCE_END]
        hypotheses = self._update() if len(self._waiting) >= WIDTH else []
        last = self._segments(stop=True)[self._reported :]
        self.settled = self._fed
        return [
            *hypotheses,
            *(Hypothesis(tidy(segment.text), final=True) for segment in last),
            Hypothesis("", pause=True),
        ]

    def close(self) -> None:
        self._process.close(self._stream)

    def _update(self) -> list[Hypothesis]:
        new_samples = len(self._waiting) // WIDTH
        self._stream_audio += self._waiting[: new_samples * WIDTH]
        del self._waiting[: new_samples * WIDTH]
        self._fed += new_samples
        segments = self._segments()
        hypotheses = [Hypothesis(tidy(segment.text), segment.is_complete) for segment in segments[self._reported :]]
        self._reported = sum(segment.is_complete for segment in segments)
        self._reported_end = round(segments[self._reported - 1].end * RATE) * WIDTH if self._reported else 0
        silence_before = 0.0 if segments else self._silence
        keep = self._reported_end
        unreported = len(self._stream_audio) - self._reported_end
        if speaks := self._reported < len(segments):
            self._silence = 0.0
        else:
            self._silence = unreported / SECOND if segments else new_samples / RATE + silence_before
            keep = max(keep, len(self._stream_audio) - LOOK_BEHIND)
        if not speaks or self._reported_end > LONGEST:
            self._restart(keep)
            self._process.replace_if_old()
        self.settled = self._fed - (len(self._stream_audio) - self._reported_end) // WIDTH
        if silence_before < PAUSE <= self._silence:
            hypotheses.append(Hypothesis("", pause=True))
        return hypotheses

    def _restart(self, start: int) -> None:
        """Start the stream again, with its audio from byte `start` on."""
        del self._stream_audio[:start]
        self._sent = self._reported = self._reported_end = 0

    def _segments(self, stop: bool = False) -> list[Segment]:
        """The segments of the stream since its start. In a new process the stream is started again."""
        with self._process.lock:
            for _ in range(self.ATTEMPTS):
                if self._number != self._process.number:
                    self._number = self._process.number
                    self._restart(self._reported_end)
                new = bytes(self._stream_audio[self._sent :])
                if (segments := self._process.ask(self._stream, new, not self._sent, stop)) is not None:
                    self._sent = len(self._stream_audio)
                    return segments
        self._failed = True
        raise UserError(f"moonshine-voice ended {self.ATTEMPTS} times at the same audio; see its messages above")


def tidy(text: str) -> str:
    """Remove the double commas that the model often writes."""
    return text.replace(",,", ",")


class Program(Recogniser):
    """A program that takes audio on its standard input and prints hypotheses as for `whilst live --partial`."""

    def __init__(self, command: str) -> None:
        self._command = command
        try:
            self._process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except (OSError, ValueError, IndexError) as error:
            raise UserError(f"--recogniser {command}: cannot be started ({error})") from None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self._last: list[str] = []  # words of the last line
        self._fed = 0  # samples

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.decode(errors="replace"))

    def feed(self, pcm: bytes) -> list[Hypothesis]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pcm)
            self._process.stdin.flush()
        except OSError:
            raise UserError(f"--recogniser {self._command}: has ended; see its message above") from None
        self._fed += len(pcm) // WIDTH
        return self._hypotheses()

    def finish(self) -> list[Hypothesis]:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._reading.join()
        return [*self._hypotheses(), UTTERANCE_END]

    def abort(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._reading.join()
        end_process(self._process)

    def _hypotheses(self) -> list[Hypothesis]:
        hypotheses: list[Hypothesis] = []
        while not self._lines.empty():
            line = self._lines.get()
            hypotheses += hypotheses_of(line, self._last)
            self._last = line.split()
            if not self._last:
                self.settled = self._fed  # approximate: the program does not say where an utterance ended
        return hypotheses


def end_process(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe and pipe.close()


class SpeechReader(Reader):
    """Commits the words of hypotheses once they are stable; a pause of the speaker ends the sentence."""

    def __init__(self, recogniser: Recogniser, agreement: int = DEFAULT_AGREEMENT, said: str = "") -> None:
        """`said`: words that an earlier reader returned for the beginning of this audio."""
        self._recogniser = recogniser
        self._commitment = Commitment(agreement, said.split())
        self._finished = False

    @property
    def partial(self) -> str:
        """The words that may still change."""
        return " ".join(self._commitment.open)

    @property
    def settled(self) -> tuple[int, str]:
        """The number of samples whose words are all final, and the final words of the audio after them.

        Another reader can go on with the audio after these samples; these words are its `said`.
        """
        return self._recogniser.settled, " ".join(self._commitment.final)

    def read(self, chunk: bytes) -> Iterator[str]:
        for hypothesis in self._recogniser.feed(chunk):
            yield from self._commitment.add(hypothesis)

    def flush(self) -> list[str]:
        last = [] if self._finished else self._recogniser.finish()
        self._finished = True
        words = [word for hypothesis in last for word in self._commitment.add(hypothesis)]
        return words + self._commitment.end_utterance()


def open_recogniser(command: str = "", interval: float = DEFAULT_INTERVAL) -> Callable[[], Recogniser]:
    """Returns a function that opens a stream. `command`: a program to run for each, instead of moonshine-voice."""
    if not 0.1 <= interval <= 10:
        raise UserError(f"--interval {interval}: must be from 0.1 to 10 seconds")
    if command:
        return lambda: Program(command)
    if find_spec("moonshine_voice") is None:
        raise ModuleNotFoundError(name="moonshine_voice")
    process = MoonshineProcess()
    return lambda: Moonshine(process, interval)


def recording() -> Path:
    """A reading of 44 seconds that comes with moonshine-voice: the first lines of A Tale of Two Cities."""
    import moonshine_voice

    return Path(moonshine_voice.get_assets_path()) / "two_cities.wav"
