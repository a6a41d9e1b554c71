"""When recognised words are committed: once stable, at ends of utterances, never twice and never taken back."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.speech import Counter, say
from whilst.live.input import BREAK, Commitment, Hypothesis, common_prefix
from whilst.speech.recogniser import Recogniser, SpeechReader


class Scripted(Recogniser):
    """Each chunk of audio brings the next hypotheses of a list."""

    def __init__(self, script: list[list[Hypothesis]]) -> None:
        self.script = iter(script)

    def feed(self, pcm: bytes) -> list[Hypothesis]:  # noqa: ARG002
        return next(self.script, [])

    def finish(self) -> list[Hypothesis]:
        return [Hypothesis("", pause=True)]

    def close(self) -> None:
        pass


def heard(script: list[list[Hypothesis]], agreement: int = 2) -> list[list[str]]:
    """The words committed with each chunk, and at the end."""
    reader = SpeechReader(Scripted(script), agreement)
    return [*(list(reader.read(b"x")) for _ in script), list(reader.read(b"")) + reader.flush()]


def test_a_word_is_committed_once_it_is_stable() -> None:
    lines = ["it was the best.", "it was the best of times,", "it was the best of times, it"]
    assert heard([[Hypothesis(line)] for line in lines]) == [
        [],
        ["it", "was", "the"],
        ["best", "of", "times,"],
        [BREAK, "it"],
    ]


def test_the_end_of_a_segment_commits_but_only_a_pause_ends_the_sentence() -> None:
    script = [
        [Hypothesis("in short", final=True), Hypothesis("the period")],
        [Hypothesis("the period was", final=True), Hypothesis("", pause=True)],
    ]
    assert heard(script) == [["in", "short"], ["the", "period", "was", BREAK], [BREAK]]


def test_a_shorter_hypothesis_without_a_common_word_corrects() -> None:
    """It does not begin another utterance, as it would on standard input: the recogniser says where those end."""
    script = [
        [Hypothesis("thanks for watching this video")],
        [Hypothesis("hello")],
        [Hypothesis("hello", final=True)],
    ]
    assert heard(script) == [[], [], ["hello"], [BREAK]]


def test_a_correction_before_commitment_costs_nothing() -> None:
    script = [[Hypothesis("a little bit")], [Hypothesis("an old radio")], [Hypothesis("an old radio", final=True)]]
    assert heard(script, agreement=3) == [[], [], ["an", "old", "radio"], [BREAK]]


def test_a_correction_after_commitment_repeats_nothing() -> None:
    script = [[Hypothesis("one too")], [Hypothesis("one too")], [Hypothesis("one two three", final=True)]]
    assert heard(script) == [[], ["one", "too"], ["three"], [BREAK]]


words = st.lists(st.sampled_from("abc"), max_size=6)


@given(st.lists(words, max_size=8), st.integers(1, 4))
def test_only_stable_words_are_committed(history: list[list[str]], agreement: int) -> None:
    """They end the longest prefix that as many hypotheses in a row have in common."""
    commitment = Commitment(agreement)
    for number, hypothesis in enumerate(history, start=1):
        if new := commitment.update(hypothesis):
            recent = history[max(0, number - agreement) : number]
            stable = hypothesis[: common_prefix(recent)]
            assert len(recent) == agreement
            assert new == stable[len(stable) - len(new) :]


@given(st.lists(words, min_size=1, max_size=8), st.integers(1, 4))
def test_growing_hypotheses_lose_and_repeat_nothing(parts: list[list[str]], agreement: int) -> None:
    """Hypotheses that only grow are committed as they are."""
    commitment = Commitment(agreement)
    grown = list(itertools.accumulate(parts))
    committed = [word for hypothesis in grown for word in commitment.update(hypothesis)]
    assert committed == grown[-1][: len(committed)]
    assert committed + commitment.end_utterance() == grown[-1]


@given(st.lists(st.integers(0, 30), max_size=40), st.lists(st.integers(1, 40_000), max_size=10), st.integers(2, 3))
def test_nothing_depends_on_how_audio_is_cut(numbers: list[int], cuts: list[int], agreement: int) -> None:
    audio = say(numbers)
    places = sorted({min(cut, len(audio)) for cut in itertools.accumulate(cuts)} | {0, len(audio)})
    reader = SpeechReader(Counter(), agreement)
    found = [word for a, b in itertools.pairwise(places) for word in reader.read(audio[a:b])] + reader.flush()
    assert [word for word in found if word != BREAK] == [f"w{number}" for number in numbers if number]
    assert reader.flush() == [], "the end comes once"
