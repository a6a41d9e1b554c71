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
LONGEST = 60 * SECOND  # bytes of audio that is over in a stream whose speaker never pauses
LOOK_BEHIND = SECOND // 2  # bytes before the detection of speech that may belong to it


class Recogniser(abc.ABC):
    """One stream of speech. Neither its memory nor the cost of a call may grow with its length."""

    settled = 0  # samples: the words of all audio before are final

    @abc.abstractmethod
    def feed(self, pcm: bytes) -> list[Hypothesis]:
        """Add audio, in chunks of any size; returns what has become known."""

    @abc.abstractmethod
    def finish(self) -> list[Hypothesis]:
        """No more audio follows. The last hypothesis is final."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what it holds; may be called twice."""

    def abort(self) -> None:  # noqa: B027
        """Called from another thread: end a call that waits for something."""


class Segment(NamedTuple):
    """A piece of speech between short pauses."""

    text: str
    over: bool
    end: float  # in seconds since the start of the stream


class MoonshineProcess:
    """A child process in which moonshine-voice recognises all streams (moonshine.py); it runs while any is open.

    The package keeps 5 MB for each minute of speech until its process ends. So the process is replaced after
    LIFETIME, at a pause of a stream, and whenever it ends by itself. The new one loads the model in half a second,
    while the next audio is awaited. It knows no streams: each gives it again the audio that is not over.
    """

    LIFETIME = 120.0  # seconds of audio

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held for a request, and for what depends on `number`
        self.number = 0  # of the process
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = 0  # bytes, by this process
        self._numbers = itertools.count()
        self._streams: set[int] = set()

    def open(self) -> int:
        """The number of another stream."""
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
        # In a session of its own, so that Ctrl-C leaves it the last words.
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
        """The segments of a stream since its start. None: the process ended, and there is another one."""
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
            note("the recogniser ended unexpectedly; another one goes on")
            return None
        self._heard += len(pcm)
        return [Segment(*row) for row in json.loads(answer)]


class Moonshine(Recogniser):
    """The English model inside the package moonshine-voice. Each update recognises the open segment of speech anew.

    A segment ends at a short pause. A stream of the package keeps all its audio and text until it is started again.
    That is done whenever no segment is open, and now and then if one always is. The audio after the last segment
    that is over is given to it once more.
    """

    ATTEMPTS = 3  # to recognise the same audio

    def __init__(self, process: MoonshineProcess, interval: float) -> None:
        self._process, self._stream = process, process.open()
        self._number = process.number  # of the process that knows the stream
        self._interval = max(1, round(interval * RATE)) * WIDTH  # bytes
        self._waiting = bytearray()  # for an interval to be full
        self._fed = 0  # samples
        self._given = bytearray()  # to the stream since it was started
        self._sent = 0  # bytes of these that the process has; none: it starts the stream
        self._reported = 0  # segments of the stream whose final hypothesis was returned
        self._over = 0  # bytes up to their end
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
        new = len(self._waiting) // WIDTH
        self._given += self._waiting[: new * WIDTH]
        del self._waiting[: new * WIDTH]
        self._fed += new
        segments = self._segments()
        hypotheses = [Hypothesis(tidy(segment.text), segment.over) for segment in segments[self._reported :]]
        self._reported = sum(segment.over for segment in segments)
        self._over = round(segments[self._reported - 1].end * RATE) * WIDTH if self._reported else 0
        before = 0.0 if segments else self._silence
        keep = self._over
        if speaks := self._reported < len(segments):
            self._silence = 0.0
        else:
            self._silence = (len(self._given) - self._over) / SECOND if segments else new / RATE + before
            keep = max(keep, len(self._given) - LOOK_BEHIND)
        if not speaks or self._over > LONGEST:
            self._restart(keep)
            self._process.replace_if_old()
        self.settled = self._fed - (len(self._given) - self._over) // WIDTH
        if before < PAUSE <= self._silence:
            hypotheses.append(Hypothesis("", pause=True))
        return hypotheses

    def _restart(self, place: int) -> None:
        """Start the stream anew with the audio from this byte on."""
        del self._given[:place]
        self._sent = self._reported = self._over = 0

    def _segments(self, stop: bool = False) -> list[Segment]:
        """Of the stream since its start, which is made anew if the process was replaced."""
        with self._process.lock:
            for _ in range(self.ATTEMPTS):
                if self._number != self._process.number:
                    self._number = self._process.number
                    self._restart(self._over)
                new = bytes(self._given[self._sent :])
                if (segments := self._process.ask(self._stream, new, not self._sent, stop)) is not None:
                    self._sent = len(self._given)
                    return segments
        self._failed = True
        raise UserError(f"moonshine-voice ended {self.ATTEMPTS} times at the same audio; see its messages above")


def tidy(text: str) -> str:
    """Without the double commas that the model likes."""
    return text.replace(",,", ",")


class Program(Recogniser):
    """A program that takes the audio on its standard input and prints lines, as for `whilst live --partial`."""

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
        found: list[Hypothesis] = []
        while not self._lines.empty():
            line = self._lines.get()
            found += hypotheses_of(line, self._last)
            self._last = line.split()
            if not self._last:
                self.settled = self._fed  # about: it does not say where an utterance ended
        return found


def end_process(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe and pipe.close()


class SpeechReader(Reader):
    """Commits the words of hypotheses once they are stable; a pause of the speaker ends the sentence."""

    def __init__(self, recogniser: Recogniser, agreement: int = DEFAULT_AGREEMENT, said: str = "") -> None:
        """`said`: words that an earlier reader returned of this audio."""
        self._recogniser = recogniser
        self._commitment = Commitment(agreement, said.split())
        self._finished = False

    @property
    def partial(self) -> str:
        """The words that may still change."""
        return " ".join(self._commitment.open)

    @property
    def settled(self) -> tuple[int, str]:
        """The samples whose words are all final, and the final words of the audio after them.

        From there another reader can go on, given these words.
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
    """The result begins a stream. `command`: a program instead of moonshine-voice, one for each stream."""
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
