"""Moonshine and external programs behind the interface of recognisers."""

import contextlib
import importlib.util
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pytest

from tests.helpers.speech import children, program, resident_mib
from whilst.core.errors import UserError
from whilst.data.sentences import normalise
from whilst.live.input import BREAK, UTTERANCE_END, Hypothesis
from whilst.research.bench_speech import align, reading
from whilst.speech.audio import RATE, SECOND, WIDTH, from_pcm, open_file, to_pcm
from whilst.speech.recogniser import (
    Moonshine,
    MoonshineProcess,
    Program,
    Recogniser,
    SpeechReader,
    open_recogniser,
    recording,
)

needs_moonshine = pytest.mark.skipif(
    importlib.util.find_spec("moonshine_voice") is None, reason="moonshine-voice is not installed"
)


def recognise(recogniser: Recogniser, pcm: bytes, chunk: int = RATE // 10 * WIDTH) -> list[str]:
    reader = SpeechReader(recogniser)
    words = [word for place in range(0, len(pcm), chunk) for word in reader.read(pcm[place : place + chunk])]
    words += reader.flush()
    recogniser.close()
    return words


ECHO = """
while block := sys.stdin.buffer.read(32000):
    print({1: "one too", 2: "one two three", 3: "", 4: "four"}[block[0]], flush=True)
"""


def test_a_program_that_prints_growing_lines() -> None:
    pcm = b"".join(bytes([n]) * 32000 for n in (1, 2, 3, 4))
    assert recognise(Program(program(ECHO)), pcm) == ["one", "two", "three", BREAK, "four", BREAK]


def test_a_program_that_begins_another_utterance_without_an_empty_line() -> None:
    lines = ["one two three four five", "six seven"]
    recogniser = Program(program(f"sys.stdin.buffer.read()\nprint({chr(10).join(lines)!r})"))
    assert recogniser.feed(bytes(100)) == []
    assert recogniser.finish() == [
        Hypothesis(lines[0] + "\n"),
        UTTERANCE_END,
        Hypothesis(lines[1] + "\n"),
        UTTERANCE_END,
    ]
    recogniser.close()
    recogniser.close()


def test_a_program_that_ends_too_early() -> None:
    recogniser = Program(program("print('one')"))
    recogniser._process.wait()
    with pytest.raises(UserError, match="has ended"):
        recogniser.feed(bytes(1_000_000))
    assert recogniser.finish()[0] == Hypothesis("one\n"), "its words are not lost"
    recogniser.close()


@pytest.mark.parametrize("command", ["no-such-program --x", "'", ""])
def test_a_program_that_cannot_be_started(command: str) -> None:
    with pytest.raises(UserError, match="cannot be started"):
        Program(command)


def test_an_interval_that_makes_no_sense() -> None:
    with pytest.raises(UserError, match="--interval"):
        open_recogniser(interval=0.0)


rng = np.random.default_rng(1)
SECONDS = np.arange(6 * RATE) / RATE
SOUNDS = {
    "silence": np.zeros(len(SECONDS)),
    "hiss": rng.normal(0, 0.05, len(SECONDS)),
    "noise": rng.normal(0, 0.5, len(SECONDS)),
    "bursts of noise": rng.normal(0, 0.3, len(SECONDS)) * (SECONDS % 0.25 < 0.12),
    "tone": np.sin(2 * np.pi * 440 * SECONDS) / 3,
    "square wave": np.sign(np.sin(2 * np.pi * 200 * SECONDS)),
    "sweep": np.sin(2 * np.pi * (100 + 150 * SECONDS) * SECONDS) / 3,
    "hum": sum(np.sin(2 * np.pi * 50 * n * SECONDS) / n for n in range(1, 6)) / 3,
    "melody": sum(
        np.sin(2 * np.pi * n * np.take([220, 262, 330, 392], (SECONDS * 3).astype(int) % 4) * SECONDS) / n
        for n in range(1, 5)
    )
    * np.exp(-4 * (SECONDS % (1 / 3)))
    / 4,
    "offset": np.full(len(SECONDS), 0.9),
}


@needs_moonshine
@pytest.mark.parametrize("name", SOUNDS)
def test_no_text_is_invented(name: str) -> None:
    sound = np.asarray(SOUNDS[name], np.float32)
    assert recognise(open_recogniser()(), to_pcm(sound)) == [BREAK]


def test_a_process_that_always_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and the words that were not final are kept."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", shutil.which("false"))
        with pytest.raises(UserError, match="ended 3 times"):
            Moonshine(MoonshineProcess(), 1.0)
    monkeypatch.setattr(MoonshineProcess, "replace", answering('[["it was", false, 1.0]]', 2))
    with contextlib.closing(Moonshine(MoonshineProcess(), 1.0)) as recogniser:
        reader = SpeechReader(recogniser)
        assert list(reader.read(bytes(SECOND))) == []
        with pytest.raises(UserError, match="ended 3 times"):
            list(reader.read(bytes(SECOND)))
        assert reader.flush() == ["it", "was", BREAK]


def answering(line: str, times: int) -> Callable[[MoonshineProcess], None]:
    """Instead of `replace`: a process that gives this answer so many times; those after it none."""
    left = [times, *itertools.repeat(0, 10)]
    code = "for _ in range({}):\n  sys.stdin.buffer.readline()\n  print({!r}, flush=True)"

    def replace(process: MoonshineProcess) -> None:
        process._end()
        command = shlex.split(program(code.format(left.pop(0), line)))
        process._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.number += 1

    return replace


@needs_moonshine
@pytest.mark.slow
def test_a_human_voice_cut_clipped_and_repeated() -> None:
    """The stream is started again with nothing lost or doubled."""
    pcm = b"".join(open_file(recording()))[: 21 * RATE * WIDTH + 1]  # ends in the middle of a word and of a sample
    start = open_recogniser(interval=2.0)
    first = recognise(start(), pcm)
    assert {"times", "wisdom", "despair"} <= {word.strip(",.").lower() for word in first}
    loud = 30 * from_pcm(pcm[:-1])  # is clipped
    assert len(recognise(start(), to_pcm(loud))) == pytest.approx(len(first), rel=0.2)
    again = recognise(start(), 3 * (pcm[:-1] + bytes(2 * RATE * WIDTH)), chunk=7777)
    assert len([word for word in again if word]) == pytest.approx(
        3 * len([word for word in first if word]), rel=0.1
    )


@needs_moonshine
@pytest.mark.slow
def test_processes_that_end_lose_and_repeat_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two streams share a process, which is killed at many places of a segment and replaced at every pause."""
    pcm = b"".join(open_file(recording()))[: 21 * SECOND]
    before, start = set(children()), open_recogniser()
    expected = [normalise(word) for word in recognise(start(), pcm) if word]
    assert set(children()) == before
    monkeypatch.setattr(MoonshineProcess, "LIFETIME", 0.0)
    monkeypatch.setattr("whilst.speech.recogniser.LONGEST", 2 * SECOND)
    recognisers = [start(), start()]
    readers = [SpeechReader(recogniser) for recogniser in recognisers]
    found: list[list[str]] = [[], []]
    seen = set[int]()
    for second in range(21):
        for reader, words in zip(readers, found, strict=True):
            words += reader.read(pcm[second * SECOND : (second + 1) * SECOND])
            [process] = set(children()) - before
            seen.add(process)
            if second % 4 == 1:
                os.kill(process, signal.SIGKILL)
    for reader, words in zip(readers, found, strict=True):
        words += reader.flush()
    for recogniser in recognisers:
        recogniser.close()
        recogniser.close()
    assert set(children()) == before
    for words in found:
        heard = [normalise(word) for word in words if word]
        assert align(expected, heard)[0] <= 0.1 * len(expected), (expected, heard)
    assert len(seen) > 20
    assert "it was started again" in capsys.readouterr().err


@needs_moonshine
@pytest.mark.slow
def test_ten_minutes() -> None:
    """Memory stays flat, no word is lost, and the last words come no later than the first ones."""
    talk = b"".join(open_file(recording())) + bytes(2 * SECOND)
    rounds = 13
    assert rounds * len(talk) > 590 * SECOND
    places, words = list[float](), [list[str]() for _ in range(rounds)]
    memory: list[list[float]] = [[] for _ in range(11)]  # MiB in each minute, with the recogniser's process
    with contextlib.closing(open_recogniser(interval=2.0)()) as recogniser:
        reader = SpeechReader(recogniser)
        for number in range(rounds):
            for place in range(0, len(talk), RATE):
                if found := [word for word in reader.read(talk[place : place + RATE]) if word]:
                    words[number] += found
                    last = place
                memory[(number * len(talk) + place) // (60 * SECOND)].append(resident_mib())
            places.append(last / len(talk))
        assert reader.flush() == [BREAK]
    spoken = [normalise(word) for word in reading().words]
    for found in words:  # the updates are at other places of each round
        assert len(found) == pytest.approx(len(spoken), abs=6)
        assert align(spoken, [normalise(word) for word in found])[0] < 0.15 * len(spoken)
    assert max(places) - min(places) < 0.05
    figures = [median(minute) for minute in memory]
    print("MiB by minute:", *map(round, figures))
    assert fmean(figures[5:10]) < fmean(figures[1:5]) + 20, "one process: 35"


def test_the_recording_is_found() -> None:
    if importlib.util.find_spec("moonshine_voice"):
        assert isinstance(recording(), Path)
