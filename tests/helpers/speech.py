"""Speech without a recogniser: audio whose blocks say which word is spoken, and a recogniser that reads them."""

import os
import shlex
import sys
import wave
from pathlib import Path

import numpy as np

from whilst.live.input import Hypothesis
from whilst.server.metrics import resident_bytes
from whilst.speech.audio import RATE, WIDTH
from whilst.speech.recogniser import Recogniser


def write_wav(path: Path, rate: int, width: int, channels: int, data: bytes) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)


def children() -> list[int]:
    """The processes that this one started; empty where the system does not say."""
    files = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(process) for file in files for process in file.read_text().split()]


def resident_mib() -> float:
    """Memory of this process and its children."""
    return sum(resident_bytes(process) for process in ("self", *map(str, children()))) / 2**20


WORD = RATE // 4 * WIDTH  # bytes: four words a second


def say(numbers: list[int]) -> bytes:
    """A quarter of a second for each number from 1 on; 0 is a pause."""
    return b"".join(np.full(RATE // 4, number, "<i2").tobytes() for number in numbers)


def program(code: str) -> str:
    """A command that runs this code."""
    return shlex.join([sys.executable, "-c", f"import sys\n{code}"])


# Hears what `say` made, as Counter does; a pause ends the utterance.
COUNTING = program(f"""
words = []
while block := sys.stdin.buffer.read({WORD}):
    words = words + [f"w{{block[0]}}"] if block[0] else []
    print(*words, flush=True)
""")


class Counter(Recogniser):
    """Hears what `say` made: word 12 is w12. The last word of an unfinished hypothesis is often another one."""

    def __init__(self, interval: float = 1.0) -> None:
        self.interval, self.waiting, self.words = round(interval * RATE) * WIDTH, b"", list[str]()
        self.updates = self.read = 0
        self.closed = False

    def feed(self, pcm: bytes) -> list[Hypothesis]:
        self.waiting += pcm
        found = []
        while len(self.waiting) >= self.interval:
            found += self._update(self.waiting[: self.interval])
            self.waiting = self.waiting[self.interval :]
        return found

    def _update(self, pcm: bytes) -> list[Hypothesis]:
        found = []
        self.updates += 1
        for place in range(0, len(pcm) // WIDTH * WIDTH, WORD):
            self.read += len(pcm[place : place + WORD]) // WIDTH
            number = int(np.frombuffer(pcm[place : place + WIDTH], "<i2")[0])
            if number:
                self.words.append(f"w{number}")
            elif self.words:
                found.append(Hypothesis(" ".join(self.words), final=True, pause=True))
                self.words = []
            if not self.words:
                self.settled = self.read
        if self.words:
            guess = [*self.words[:-1], "what"] if self.updates % 2 else self.words
            found.append(Hypothesis(" ".join(guess)))
        return found

    def finish(self) -> list[Hypothesis]:
        found = self._update(self.waiting)
        self.waiting = b""
        return [*found, Hypothesis(" ".join(self.words), final=True, pause=True)]

    def close(self) -> None:
        self.closed = True
