"""The measurement of speech: on speech whose words, times and errors are known, without a recogniser's model."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.commands import whilst
from tests.helpers.speech import WORD, Counter, say
from tests.speech.test_recogniser import needs_moonshine
from whilst.core.files import read_json
from whilst.live.input import Hypothesis
from whilst.live.loading import ModelOptions
from whilst.live.session import Event, SentenceEnd, Word
from whilst.research.bench_speech import (
    Lag,
    SkippingClock,
    Speech,
    Update,
    align,
    caption,
    lags_of,
    reading,
    speak,
    speech_bench,
)
from whilst.speech.audio import SECOND

needs_espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")


def test_errors_and_places_of_heard_words() -> None:
    spoken = ["when", "I", "was", "ten", "years", "old"]
    assert align(spoken, spoken) == (0, [0, 1, 2, 3, 4, 5])
    assert align(spoken, ["when", "was", "ten", "ears", "old"]) == (2, [0, 2, 3, 4, 5])
    assert align(spoken, ["when", "I", "I", "was", "ten", "years", "old", "now"])[0] == 2
    assert align(spoken, []) == (6, [])
    assert align(["a"], ["b", "a"]) == (1, [0, 0])


words = st.lists(st.sampled_from("abc"), max_size=8)


@given(words, words)
def test_alignment(spoken: list[str], heard: list[str]) -> None:
    errors, places = align(spoken, heard)
    assert errors == align(heard, spoken)[0]
    assert abs(len(spoken) - len(heard)) <= errors <= max(len(spoken), len(heard))
    assert (errors == 0) == (spoken == heard)
    assert len(places) == len(heard)
    assert all(a <= b for a, b in pairwise(places))


def test_the_parts_of_a_lag() -> None:
    updates = [Update(1.0, 1.5, [Hypothesis("a")]), Update(2.0, 2.5, [Hypothesis("a b")])]
    first, second = lags_of(ends=[0.75, 1.5], committed=[2.5, 4.0], written=[2.75, 4.25, 4.5, 5.0], updates=updates)
    assert first == Lag(recogniser=0.75, stability=1.0, translation=1.75), "two of four words translate it"
    assert second == Lag(recogniser=1.0, stability=1.5, translation=1.0)
    assert first.total == 4.25 - 0.75


class Echo:
    """Translates each word by itself, and ends a sentence where it is told to."""

    def __init__(self) -> None:
        self.words = self.start = self.sentence = 0

    def feed(self, words: str) -> list[Event]:
        self.words += 1
        return [Word(words, self.sentence, self.words, self.words - self.start)]

    def finish(self) -> list[Event]:
        if self.words == self.start:
            return []
        end = SentenceEnd(self.sentence, self.words, self.words - self.start)
        self.start, self.sentence = self.words, self.sentence + 1
        return [end]


def test_the_chain_is_observed() -> None:
    numbers = [*range(1, 11), 0, *range(12, 21), 0, 0]
    spoken = [f"w{number}" for number in numbers if number]
    places = [place for place, number in enumerate(numbers, start=1) if number]
    speech = Speech(say(numbers), spoken, [place * WORD / SECOND for place in places])
    result = caption(speech, Counter(), 2, Echo())
    assert (result.words, result.errors, result.corrected, len(result.lags), len(result.lagging)) == (
        19,
        0,
        0,
        19,
        2,
    )
    assert all(lag.recogniser >= 0 and lag.translation >= 0 for lag in result.lags)
    assert result.seconds == len(numbers) / 4
    wrong = caption(Speech(speech.pcm, ["w0", *spoken[1:]], speech.ends), Counter(), 2, Echo())
    assert wrong.errors == 1
    assert (result + wrong).words == 38


def test_a_clock_that_skips_waiting() -> None:
    clock = SkippingClock()
    before = clock.now()
    clock.sleep(100.0)
    assert clock.now() - before >= 100.0


@needs_espeak
def test_espeak_says_when_words_end() -> None:
    speech = speak("One two three. Four, and it was the last.", "en-us", 150)
    assert speech.words == ["One", "two", "three.", "Four,", "and", "it", "was", "the", "last."]
    assert speech.ends == sorted(speech.ends)
    assert 0 < speech.ends[0] < speech.ends[2] < speech.ends[3]
    assert speech.ends[3] - speech.ends[2] > 0.4, "a pause"
    assert speech.seconds - 1 < speech.ends[-1] <= speech.seconds
    again = speak("One two three.", "en-gb", 150)
    assert again.ends[-1] < again.seconds < speech.seconds


def test_without_espeak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.util.find_library", lambda _: None)
    said = whilst("bench", "speech", "--interval", "1")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "apt install espeak-ng" in said.err


@needs_espeak
@needs_moonshine
@pytest.mark.slow
def test_the_whole_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    human = reading()
    assert human.ends == sorted(human.ends)
    assert human.ends[-1] < human.seconds
    short = Speech(human.pcm[: 10 * SECOND], human.words[:24], human.ends[:24])
    monkeypatch.setattr("whilst.research.bench_speech.reading", lambda: short)
    monkeypatch.setattr("whilst.research.bench_speech.VOICES", {"en-us": (tmp_path / "talk.txt", 150)})
    (tmp_path / "talk.txt").write_text("Thank you very much for coming.\n")
    speech_bench(ModelOptions("en-vi"), [1.0], 2, tmp_path / "out.json")
    written = read_json(tmp_path / "out.json")
    assert [row["voice"] for row in written["rows"]] == ["espeak", "human"]
    assert all(row["WER (%)"] < 40 and row["lag (s)"] > 0 for row in written["rows"])
