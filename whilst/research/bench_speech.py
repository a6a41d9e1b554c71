"""Measure live captions of speech: word errors, lag and its parts, computing time.

Audio arrives at the pace of speech, by a clock that skips the waiting for it. Computing takes real time, in which
speech goes on.
"""

import ctypes
import ctypes.util
import itertools
import math
import os
import re
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, quantiles

import numpy as np

from whilst.core.errors import UserError
from whilst.core.provenance import provenance
from whilst.data.sentences import normalise
from whilst.evaluation.metrics import yet_another_average_lagging
from whilst.live.input import Hypothesis
from whilst.live.loading import ModelOptions, open_model
from whilst.live.output import Output
from whilst.live.session import SentenceEnd, Word
from whilst.live.terminal import TALK, LiveTranslation, Translation
from whilst.research.bench_report import Figures, report
from whilst.speech.audio import SECOND, Resampler, Samples, at_speaking_pace, open_file, to_pcm
from whilst.speech.recogniser import Recogniser, SpeechReader, open_recogniser, recording

VOICES = {"en-us": (TALK, 150), "en-gb": (Path(__file__).with_name("lecture.txt"), 165)}  # words a minute
READING = Path(__file__).with_name("two_cities.txt")
QUIET = 0.01  # of the full scale: samples below it are silence


# Speech whose word times are known.


@dataclass(frozen=True)
class Speech:
    """Spoken words with their audio."""

    pcm: bytes
    words: list[str]
    ends: list[float]  # of each word, in seconds

    @property
    def seconds(self) -> float:
        return len(self.pcm) / SECOND


class EspeakEvent(ctypes.Structure):
    """`espeak_EVENT` of speak_lib.h. The last event of an array has type 0."""

    WORD = 1
    _fields_ = (
        ("type", ctypes.c_int),
        ("id", ctypes.c_uint),
        ("text_position", ctypes.c_int),  # from 1
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # ms
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("name", ctypes.c_void_p),
    )


def speak(text: str, voice: str, words_per_minute: int) -> Speech:
    """Speak a text with espeak-ng, whose library reports where words begin."""
    path = ctypes.util.find_library("espeak-ng")
    if path is None:
        raise UserError("espeak-ng, which speaks the talks, is not installed; for example: apt install espeak-ng")
    espeak, samples, begins = ctypes.CDLL(path), list[int](), dict[int, int]()

    def take(audio: "ctypes._Pointer[ctypes.c_short]", count: int, events: Sequence[EspeakEvent]) -> int:
        samples.extend(audio[:count])
        for event in itertools.takewhile(lambda event: event.type, events):
            if event.type == EspeakEvent.WORD:
                begins.setdefault(event.text_position - 1, event.sample)
        return 0

    short = ctypes.POINTER(ctypes.c_short)
    callback = ctypes.CFUNCTYPE(ctypes.c_int, short, ctypes.c_int, ctypes.POINTER(EspeakEvent))(take)
    retrieve, utf8, rate_parameter = 1, 1, 1
    rate = espeak.espeak_Initialize(retrieve, 0, None, 0)
    espeak.espeak_SetSynthCallback(callback)
    espeak.espeak_SetVoiceByName(voice.encode())
    espeak.espeak_SetParameter(rate_parameter, words_per_minute, 0)
    data = text.encode()
    espeak.espeak_Synth(data, len(data) + 1, 0, 1, 0, utf8, None, None)
    espeak.espeak_Synchronize()
    espeak.espeak_Terminate()
    sound: Samples = np.array(samples, np.float32) / np.float32(32768)
    words = list(re.finditer(r"\S+", text))
    # Where the next word begins; a word without a reported beginning ends together with the word before it.
    following = [
        min((sample for position, sample in begins.items() if position >= word.end()), default=len(sound))
        for word in words
    ]
    loud = np.flatnonzero(np.abs(sound) > QUIET)
    ends = [float(loud[np.searchsorted(loud, sample) - 1]) / rate for sample in following]
    return Speech(to_pcm(Resampler(rate).feed(sound)), [word.group() for word in words], ends)


def reading() -> Speech:
    """A recording of a human voice."""
    rows = [line.split() for line in READING.read_text(encoding="utf-8").splitlines()]
    return Speech(b"".join(open_file(recording())), [word for word, _ in rows], [float(end) for _, end in rows])


# Recogniser and captions that record times.


class SkippingClock:
    """Seconds since the start. Computing takes real time; `sleep` moves the clock forward and returns at once."""

    def __init__(self) -> None:
        self._start, self.skipped = time.perf_counter(), 0.0

    def now(self) -> float:
        return time.perf_counter() - self._start + self.skipped

    def sleep(self, seconds: float) -> None:
        self.skipped += seconds


@dataclass(frozen=True)
class Update:
    """The hypotheses that a recogniser returned at a time."""

    audio: float  # seconds of audio fed so far
    time: float  # by the clock
    hypotheses: list[Hypothesis]


class Observed(Recogniser):
    """Wraps a recogniser and records its updates."""

    def __init__(self, recogniser: Recogniser, clock: SkippingClock) -> None:
        self._recogniser, self._clock, self._bytes = recogniser, clock, 0
        self.updates: list[Update] = []

    def _record(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        if hypotheses:
            self.updates.append(Update(self._bytes / SECOND, self._clock.now(), hypotheses))
        return hypotheses

    def feed(self, pcm: bytes) -> list[Hypothesis]:
        self._bytes += len(pcm)
        return self._record(self._recogniser.feed(pcm))

    def finish(self) -> list[Hypothesis]:
        return self._record(self._recogniser.finish())

    def close(self) -> None:
        self._recogniser.close()


@dataclass
class Captions(Output):
    """Records when source words were committed and target words written."""

    updates: list[Update]
    committed: list[tuple[str, float]] = field(default_factory=list)
    written: list[list[float]] = field(default_factory=lambda: [[]])  # times of the words of each sentence
    sentences: list[SentenceEnd] = field(default_factory=list)

    def source_word(self, word: str, now: float) -> None:  # noqa: ARG002  (when the audio arrived, not the word)
        self.committed.append((word, self.updates[-1].time))

    def target_word(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        self.written[-1].append(now)

    def sentence_end(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        self.sentences.append(end)
        self.written.append([])


@dataclass(frozen=True)
class Lag:
    """Seconds from the end of a spoken word to its translation, in parts."""

    recogniser: float  # until the recogniser returned an update with the whole word
    stability: float  # from then until the word was committed
    translation: float  # from then until the corresponding target word was written

    @property
    def total(self) -> float:
        return self.recogniser + self.stability + self.translation


@dataclass(frozen=True)
class Result:
    """The measurements of one talk, or of several talks together."""

    words: int  # spoken
    errors: int  # in the committed words
    corrected: int  # committed words that the recogniser changed later
    lags: list[Lag]
    lagging: list[float]  # of each sentence: LongYAAL in seconds
    work: float  # seconds of computing
    seconds: float  # of speech

    def __add__(self, other: "Result") -> "Result":
        return Result(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def caption(speech: Speech, recogniser: Recogniser, agreement: int, session: Translation) -> Result:
    """Recognise and translate a talk, as `whilst listen` does."""
    clock = SkippingClock()
    observed = Observed(recogniser, clock)
    captions = Captions(observed.updates)
    size = SECOND // 10
    audio = (speech.pcm[start : start + size] for start in range(0, len(speech.pcm), size))
    with closing(recogniser):
        reader = SpeechReader(observed, agreement)
        LiveTranslation(session, reader, [captions], clock.now).run(at_speaking_pace(audio, clock.now, clock.sleep))
    work = clock.now() - clock.skipped
    heard = [normalise(word) for word, _ in captions.committed]
    final = [hypothesis.text for update in observed.updates for hypothesis in update.hypotheses if hypothesis.final]
    errors, spoken = align([normalise(word) for word in speech.words], heard)
    corrected, _ = align([normalise(word) for word in " ".join(final).split()], heard)
    ends = [speech.ends[number] for number in spoken]
    lags, lagging = list[Lag](), list[float]()
    for sentence, written in zip(captions.sentences, captions.written, strict=False):
        first, last = sentence.position - sentence.length, sentence.position
        if written:
            commits = [moment for _, moment in captions.committed[first:last]]
            lags += lags_of(ends[first:last], commits, written, observed.updates)
            begin = ends[first - 1] if first else 0.0
            times, duration = [moment - begin for moment in written], ends[last - 1] - begin
            lag = yet_another_average_lagging(times, duration, len(written), speech.seconds - begin)
            lagging += [] if lag is None else [lag]
    return Result(len(speech.words), errors, corrected, lags, lagging, work, speech.seconds)


def lags_of(
    ends: Sequence[float], committed: Sequence[float], written: Sequence[float], updates: Sequence[Update]
) -> Iterator[Lag]:
    """The lag of each source word of a sentence. Word i of n is translated once i/n of the target is written."""
    for number, (end, commit) in enumerate(zip(ends, committed, strict=True), start=1):
        recognised = next(update.time for update in updates if update.audio >= end)
        translated = written[math.ceil(number * len(written) / len(ends)) - 1]
        yield Lag(recognised - end, commit - recognised, translated - commit)


def align(spoken: Sequence[str], heard: Sequence[str]) -> tuple[int, list[int]]:
    """The edit distance, and the index in `spoken` of each heard word; an insertion has that of the word before."""
    costs = [list(range(len(heard) + 1))]
    for row, word in enumerate(spoken, start=1):
        line = [row]
        for column, other in enumerate(heard):
            line.append(min(costs[-1][column] + (word != other), costs[-1][column + 1] + 1, line[-1] + 1))
        costs.append(line)
    row, column, indices = len(spoken), len(heard), list[int]()
    while column:
        if row and costs[row][column] == costs[row - 1][column] + 1:
            row -= 1
            continue
        same = row and costs[row][column] == costs[row - 1][column - 1] + (spoken[row - 1] != heard[column - 1])
        indices.append(max(row - 1, 0))
        row, column = row - bool(same), column - 1
    return costs[-1][-1], indices[::-1]


def speech_bench(options: ModelOptions, intervals: Sequence[float], agreement: int, out: Path | None) -> None:
    """Report figures for each update interval and voice."""
    talks = [speak(path.read_text(encoding="utf-8"), voice, speed) for voice, (path, speed) in VOICES.items()]
    voices = {"espeak": talks, "human": [reading()]}
    model, rows = open_model(options), list[Figures]()
    for interval, (voice, speeches) in itertools.product(intervals, voices.items()):
        start = open_recogniser(interval=interval)
        results = [caption(speech, start(), agreement, model.session()) for speech in speeches]
        rows.append({"voice": voice, "update (s)": interval, **figures(sum(results[1:], results[0]))})
    processes = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN  # the recogniser is a child
    memory = sum(resource.getrusage(process).ru_maxrss for process in processes) / 2**20
    about = {
        "latency": str(model.policy),
        "keep": agreement,
        "cores": os.cpu_count(),
        "memory (GiB)": memory,
        "words": " + ".join(str(sum(len(speech.words) for speech in speeches)) for speeches in voices.values()),
    }
    report("speech to captions", about, rows, provenance("CPU"), out)


def figures(result: Result) -> Figures:
    total = [lag.total for lag in result.lags]
    return {
        "WER (%)": 100 * result.errors / result.words,
        "late": result.corrected,  # words that the recogniser changed after they were committed
        "lag (s)": median(total),
        "95 %": quantiles(total, n=20)[-1],
        "heard": fmean(lag.recogniser for lag in result.lags),
        "stable": fmean(lag.stability for lag in result.lags),
        "written": fmean(lag.translation for lag in result.lags),
        "YAAL (s)": fmean(result.lagging) if result.lagging else None,  # None if all was written after the end
        "RTF": result.work / result.seconds,
    }
