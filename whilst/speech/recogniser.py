"""Speech recognisers behind one interface: audio in, growing hypotheses out, and words once they are final."""

import abc
import contextlib
import ctypes
import queue
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from whilst.core.errors import UserError
from whilst.live.input import DEFAULT_AGREEMENT, UTTERANCE_END, Commitment, Hypothesis, Reader, hypotheses_of
from whilst.speech.audio import RATE, WIDTH, Samples, from_pcm

LANGUAGES = "en", "eng"  # of moonshine-voice
DEFAULT_INTERVAL = 1.0  # seconds of audio between two updates
PAUSE = 0.8  # seconds without speech that end a sentence
LOOK_BEHIND = RATE // 2  # samples before the detection of speech that may belong to it


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


class Moonshine(Recogniser):
    """The English model inside the package moonshine-voice. Each update recognises the open segment of speech anew.

    A segment ends at a short pause. A stream of the package keeps all its audio and text until it is started again.
    That is done whenever no segment is open, and the audio after the last segment is given to it once more.
    """

    def __init__(self, transcriber: Any, interval: float) -> None:
        self._force = transcriber.MOONSHINE_FLAG_FORCE_UPDATE
        self._stream = transcriber.create_stream(update_interval=float("inf"))
        self._stream.start()
        self._interval = max(1, round(interval * RATE)) * WIDTH  # bytes
        self._waiting = bytearray()  # for an interval to be full
        self._fed = 0  # samples
        self._given: Samples = np.zeros(0, np.float32)  # to the stream since it was started
        self._reported = 0  # segments of the stream whose final hypothesis was returned
        self._silence = PAUSE  # seconds since the last segment

    def feed(self, pcm: bytes) -> list[Hypothesis]:
        self._waiting += pcm
        return self._update() if len(self._waiting) >= self._interval else []

    def finish(self) -> list[Hypothesis]:
        hypotheses = self._update() if len(self._waiting) >= WIDTH else []
        self.settled = self._fed
        last = self._stream.stop().lines[self._reported :]
        return [
            *hypotheses,
            *(Hypothesis(tidy(line.text), final=True) for line in last),
            Hypothesis("", pause=True),
        ]

    def close(self) -> None:
        self._stream.close()

    def _update(self) -> list[Hypothesis]:
        whole = len(self._waiting) // WIDTH * WIDTH
        samples = from_pcm(bytes(self._waiting[:whole]))
        del self._waiting[:whole]
        self._fed += len(samples)
        self._give(samples)
        lines = self._stream.update_transcription(self._force).lines
        hypotheses = [Hypothesis(tidy(line.text), line.is_complete) for line in lines[self._reported :]]
        self._reported = sum(line.is_complete for line in lines)
        before = 0.0 if lines else self._silence
        last = lines[self._reported - 1] if self._reported else None
        end = round((last.start_time + last.duration) * RATE) if last else 0
        if self._reported < len(lines):
            self._silence = 0.0
            self.settled = self._fed - len(self._given) + end
        else:
            self._silence = (len(self._given) - end if lines else len(samples)) / RATE + before
            if lines:
                trim_memory()
            self._restart(self._given[end:][-LOOK_BEHIND:])
            self.settled = self._fed - len(self._given)
        if before < PAUSE <= self._silence:
            hypotheses.append(Hypothesis("", pause=True))
        return hypotheses

    def _give(self, samples: Samples) -> None:
        self._stream.add_audio(samples.tolist(), RATE)
        self._given = np.concatenate([self._given, samples])

    def _restart(self, samples: Samples) -> None:
        self._stream.stop()
        self._stream.start()
        self._given, self._reported = samples[:0], 0
        self._give(samples)


def trim_memory() -> None:
    """Give freed memory back: the model's buffers fragment glibc's heap, by 25 MB a minute of speech."""
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


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
        self._process.wait()
        self._reading.join()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream and stream.close()

    def _hypotheses(self) -> list[Hypothesis]:
        found: list[Hypothesis] = []
        while not self._lines.empty():
            line = self._lines.get()
            found += hypotheses_of(line, self._last)
            self._last = line.split()
            if not self._last:
                self.settled = self._fed  # about: it does not say where an utterance ended
        return found


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

    def abort(self) -> None:
        """Called from another thread: end a call that waits for the recogniser."""
        self._recogniser.abort()

    def read(self, chunk: bytes) -> Iterator[str]:
        for hypothesis in self._recogniser.feed(chunk):
            yield from self._commitment.add(hypothesis)

    def flush(self) -> list[str]:
        last = [] if self._finished else self._recogniser.finish()
        self._finished = True
        words = [word for hypothesis in last for word in self._commitment.add(hypothesis)]
        return words + self._commitment.end_utterance()


def open_recogniser(command: str = "", interval: float = DEFAULT_INTERVAL) -> Callable[[], Recogniser]:
    """Load the model once; the result begins a stream. `command`: a program instead of moonshine-voice."""
    if not 0.1 <= interval <= 10:
        raise UserError(f"--interval {interval}: must be from 0.1 to 10 seconds")
    if command:
        return lambda: Program(command)
    import moonshine_voice
    from moonshine_voice.transcriber import Transcriber

    options = {"identify_speakers": "false", "return_audio_data": "false"}
    arch = moonshine_voice.ModelArch.TINY
    transcriber = Transcriber(moonshine_voice.get_model_path("tiny-en"), arch, options=options)
    return lambda: Moonshine(transcriber, interval)


def recording() -> Path:
    """A reading of 44 seconds that comes with moonshine-voice: the first lines of A Tale of Two Cities."""
    import moonshine_voice

    return Path(moonshine_voice.get_assets_path()) / "two_cities.wav"
