"""The way from speech to captions, measured: word errors, lag and its parts, computing time.

Audio arrives at the pace of speech by a clock that skips the waiting: computing takes the time that it takes, and
the next audio is whatever has been spoken meanwhile, but nobody waits for the speaker.
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
from whilst.research.figures import Figures, report
from whilst.speech.audio import SECOND, Resampler, Samples, at_speaking_pace, open_file, to_pcm
from whilst.speech.recogniser import Recogniser, SpeechReader, open_recogniser, recording

VOICES = {"en-us": (TALK, 150), "en-gb": (Path(__file__).with_name("lecture.txt"), 165)}  # words a minute
READING = Path(__file__).with_name("two_cities.txt")
QUIET = 0.01  # of the full scale: samples below it are silence


# Speech whose word times are known.


@dataclass(frozen=True)
class Speech:
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
    """Spoken by espeak-ng, whose library says where words begin."""
    path = ctypes.util.find_library("espeak-ng")
    if path is None:
        raise UserError("espeak-ng, which speaks the talks, is not installed: for example apt install espeak-ng")
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
    # Without a word's begin, it ends with the word after it.
    following = [
        min((at for place, at in begins.items() if place >= word.end()), default=len(sound)) for word in words
    ]
    loud = np.flatnonzero(np.abs(sound) > QUIET)
    ends = [float(loud[np.searchsorted(loud, place) - 1]) / rate for place in following]
    return Speech(to_pcm(Resampler(rate).feed(sound)), [word.group() for word in words], ends)


def reading() -> Speech:
    """A human voice."""
    rows = [line.split() for line in READING.read_text(encoding="utf-8").splitlines()]
    return Speech(b"".join(open_file(recording())), [word for word, _ in rows], [float(end) for _, end in rows])


# The chain, observed.


class SkippingClock:
    """Seconds since its start. Computing takes time; waiting is skipped, but counted."""

    def __init__(self) -> None:
        self._start, self.skipped = time.perf_counter(), 0.0

    def now(self) -> float:
        return time.perf_counter() - self._start + self.skipped

    def sleep(self, seconds: float) -> None:
        self.skipped += seconds


@dataclass(frozen=True)
class Update:
    """What a recogniser returned."""

    audio: float  # seconds of it so far
    time: float
    hypotheses: list[Hypothesis]


class Observed(Recogniser):
    """Notes the updates of another recogniser."""

    def __init__(self, recogniser: Recogniser, clock: SkippingClock) -> None:
        self._recogniser, self._clock, self._bytes = recogniser, clock, 0
        self.updates: list[Update] = []

    def _note(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        if hypotheses:
            self.updates.append(Update(self._bytes / SECOND, self._clock.now(), hypotheses))
        return hypotheses

    def feed(self, pcm: bytes) -> list[Hypothesis]:
        self._bytes += len(pcm)
        return self._note(self._recogniser.feed(pcm))

    def finish(self) -> list[Hypothesis]:
        return self._note(self._recogniser.finish())

    def close(self) -> None:
        self._recogniser.close()


@dataclass
class Captions(Output):
    """Notes when source words were committed and target words written."""

    updates: list[Update]
    committed: list[tuple[str, float]] = field(default_factory=list)
    written: list[list[float]] = field(default_factory=lambda: [[]])  # times in each sentence
    sentences: list[SentenceEnd] = field(default_factory=list)

    def source_word(self, word: str, now: float) -> None:  # noqa: ARG002  (of the audio, not of the word)
        self.committed.append((word, self.updates[-1].time))

    def target_word(self, word: Word, arrived: float, now: float) -> None:  # noqa: ARG002
        self.written[-1].append(now)

    def sentence_end(self, end: SentenceEnd, now: float) -> None:  # noqa: ARG002
        self.sentences.append(end)
        self.written.append([])


@dataclass(frozen=True)
class Lag:
    """Seconds from the end of a spoken word to its translation, in parts."""

    recogniser: float  # until an update with all of the word was there
    stability: float  # until the word was committed
    translation: float  # until the translation had come as far

    @property
    def total(self) -> float:
        return self.recogniser + self.stability + self.translation


@dataclass(frozen=True)
class Result:
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
    """The whole chain once, as `whilst listen` runs it."""
    clock = SkippingClock()
    observed = Observed(recogniser, clock)
    captions = Captions(observed.updates)
    size = SECOND // 10
    audio = (speech.pcm[place : place + size] for place in range(0, len(speech.pcm), size))
    with closing(recogniser):
        reader = SpeechReader(observed, agreement)
        LiveTranslation(session, reader, [captions], clock.now).run(at_speaking_pace(audio, clock.now, clock.sleep))
    work = clock.now() - clock.skipped
    heard = [normalise(word) for word, _ in captions.committed]
    final = [hypothesis.text for update in observed.updates for hypothesis in update.hypotheses if hypothesis.final]
    errors, places = align([normalise(word) for word in speech.words], heard)
    corrected, _ = align([normalise(word) for word in " ".join(final).split()], heard)
    ends = [speech.ends[place] for place in places]
    lags, lagging = list[Lag](), list[float]()
    for sentence, written in zip(captions.sentences, captions.written, strict=False):
        first, last = sentence.position - sentence.length, sentence.position
        if written:
            commits = [at for _, at in captions.committed[first:last]]
            lags += lags_of(ends[first:last], commits, written, observed.updates)
            begin = ends[first - 1] if first else 0.0
            times, duration = [at - begin for at in written], ends[last - 1] - begin
            lag = yet_another_average_lagging(times, duration, len(written), speech.seconds - begin)
            lagging += [] if lag is None else [lag]
    return Result(len(speech.words), errors, corrected, lags, lagging, work, speech.seconds)


def lags_of(
    ends: Sequence[float], committed: Sequence[float], written: Sequence[float], updates: Sequence[Update]
) -> Iterator[Lag]:
    """Of each source word of a sentence, whose translation ends at its share of the target words."""
    for number, (end, commit) in enumerate(zip(ends, committed, strict=True), start=1):
        recognised = next(update.time for update in updates if update.audio >= end)
        translated = written[math.ceil(number * len(written) / len(ends)) - 1]
        yield Lag(recognised - end, commit - recognised, translated - commit)


def align(spoken: Sequence[str], heard: Sequence[str]) -> tuple[int, list[int]]:
    """The edit distance, and the index in `spoken` of each heard word: the one before, if nobody said it."""
    costs = [list(range(len(heard) + 1))]
    for row, word in enumerate(spoken, start=1):
        line = [row]
        for column, other in enumerate(heard):
            line.append(min(costs[-1][column] + (word != other), costs[-1][column + 1] + 1, line[-1] + 1))
        costs.append(line)
    row, column, places = len(spoken), len(heard), list[int]()
    while column:
        if row and costs[row][column] == costs[row - 1][column] + 1:
            row -= 1
            continue
        same = row and costs[row][column] == costs[row - 1][column - 1] + (spoken[row - 1] != heard[column - 1])
        places.append(max(row - 1, 0))
        row, column = row - bool(same), column - 1
    return costs[-1][-1], places[::-1]


def speech_bench(wanted: ModelOptions, intervals: Sequence[float], agreement: int, out: Path | None) -> None:
    """Figures for each interval and voice. "late": committed words that the recogniser changed later."""
    talks = [speak(path.read_text(encoding="utf-8"), voice, speed) for voice, (path, speed) in VOICES.items()]
    voices = {"espeak": talks, "human": [reading()]}
    model, rows = open_model(wanted), list[Figures]()
    for interval, (voice, speeches) in itertools.product(intervals, voices.items()):
        start = open_recogniser(interval=interval)
        results = [caption(speech, start(), agreement, model.session()) for speech in speeches]
        rows.append({"voice": voice, "update (s)": interval, **figures(sum(results[1:], results[0]))})
    processes = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN  # the second: the recogniser
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
        "late": result.corrected,
        "lag (s)": median(total),
        "95 %": quantiles(total, n=20)[-1],
        "heard": fmean(lag.recogniser for lag in result.lags),
        "stable": fmean(lag.stability for lag in result.lags),
        "written": fmean(lag.translation for lag in result.lags),
        "YAAL (s)": fmean(result.lagging) if result.lagging else None,  # all was written after the end
        "RTF": result.work / result.seconds,
    }
