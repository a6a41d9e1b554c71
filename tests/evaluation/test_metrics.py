"""Metrics: worked examples by hand, and what must hold for every policy."""

import dataclasses
import itertools
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.config import from_json
from whilst.core.errors import UserError
from whilst.evaluation.metrics import (
    Scores,
    average_lagging,
    average_proportion,
    average_token_delay,
    consecutive_wait,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
    paced_times,
    quality,
    score,
    yet_another_average_lagging,
)
from whilst.evaluation.trace import Sentence

lengths = st.integers(1, 30)


@st.composite
def policies(draw: st.DrawFn) -> tuple[list[int], int]:
    """Some non-decreasing reads and the source's length."""
    source = draw(lengths)
    return sorted(draw(st.lists(st.integers(1, source), min_size=1, max_size=30))), source


def wait_k(k: int, source: int, target: int) -> list[int]:
    return [min(k + i, source) for i in range(target)]


def test_the_worked_example_of_the_docs() -> None:
    reads = [2, 2, 4, 5, 5, 5]
    assert average_lagging(reads, 5, 6) == pytest.approx((2 + 7 / 6 + 7 / 3 + 5 / 2) / 4)
    assert average_lagging(reads, 5, 4) == pytest.approx((2 + 0.75 + 1.5 + 1.25) / 4)
    assert length_adaptive_average_lagging(reads, 5, 4) == average_lagging(reads, 5, 6)
    assert average_proportion(reads, 5, 4) == pytest.approx(23 / 20)
    dal = (2 + 2 + (4 - 10 / 6) + 2.5 + 2.5 + 2.5) / 6
    assert differentiable_average_lagging(reads, 5) == pytest.approx(dal)
    assert consecutive_wait(reads) == pytest.approx((2 + 2 + 1) / 3)


def test_yaal_leaves_out_what_is_written_after_the_end() -> None:
    reads = [2, 2, 4, 5, 5, 5]
    assert yet_another_average_lagging(reads, 5, 4) == pytest.approx((2 + 7 / 6 + 7 / 3) / 3)
    assert yet_another_average_lagging(reads, 5, 4, end=6) == pytest.approx(
        (2 + 7 / 6 + 7 / 3 + 2.5 + 5 / 3 + 5 / 6) / 6
    )
    assert yet_another_average_lagging([5, 5], 5, 4) is None


def test_atd_by_hand() -> None:
    # target tokens end at 3, 4, 5, 6, 7, 8; three of a burst of source tokens 1 to 2, 3 to 4 and 5
    assert average_token_delay([2, 2, 4, 5, 5, 5]) == pytest.approx(
        fmean([3 - 1, 4 - 2, 5 - 3, 6 - 4, 7 - 5, 8 - 5])
    )
    # in speech, text takes no time; source tokens end at 300, 600, 700 and 1000 ms
    assert average_token_delay([700, 1000], (), 300, 0) == pytest.approx(fmean([700 - 300, 1000 - 600]))
    assert average_token_delay([700, 1000], (50, 400), 300, 0) == pytest.approx(fmean([450, 1400 - 600]))
    # a burst of four words after one source word: later words are compared with earlier source words
    assert average_token_delay([1, 1, 1, 1, 2]) == pytest.approx(fmean([2 - 1, 3 - 1, 4 - 1, 5 - 1, 6 - 2]))


def test_computing_delays_words_only_if_it_is_slower_than_speech() -> None:
    fast = make(0, "ein Test", (1, 2), source=2, reference=2)  # 1 ms, then 1 ms
    assert paced_times(fast) == [301, 601]
    slow = dataclasses.replace(fast, elapsed=(500.0, 900.0))
    assert paced_times(slow) == [800, 1200]
    scores = score([slow])
    assert scores.al_ca == pytest.approx(800 / 300)
    assert scores.laal_ca == scores.al_ca
    assert score([dataclasses.replace(slow, elapsed=())]).al_ca is None


@given(policies(), lengths)
def test_newer_figures_are_bounded_by_the_older(policy: tuple[list[int], int], reference: int) -> None:
    reads, source = policy
    laal = length_adaptive_average_lagging(reads, source, reference)
    yaal = yet_another_average_lagging(reads, source, reference)
    if reads[-1] < source:
        assert yaal == pytest.approx(laal)
    assert yaal is None or yaal < source
    assert 0 < average_token_delay(reads) <= source + len(reads)


@given(policies(), lengths, st.lists(st.floats(0, 2000), min_size=30, max_size=30))
def test_computing_never_lowers_lagging(policy: tuple[list[int], int], reference: int, costs: list[float]) -> None:
    reads, source = policy
    elapsed = tuple(itertools.accumulate(costs[: len(reads)]))
    one = dataclasses.replace(
        make(0, " ".join("w" for _ in reads), tuple(reads), source, reference), elapsed=elapsed
    )
    times = paced_times(one)
    assert times == sorted(times)
    assert all(time >= 300 * read for time, read in zip(times, reads, strict=True))


@given(lengths, st.data())
def test_lagging_of_wait_k_is_k_on_equal_lengths(length: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, length))
    reads = wait_k(k, length, length)
    assert average_lagging(reads, length, length) == pytest.approx(k)
    assert differentiable_average_lagging(reads, length) == pytest.approx(k)
    assert consecutive_wait(reads) == pytest.approx(length / (length - k + 1))


@given(lengths, lengths)
def test_reading_everything_first_lags_by_the_whole_source(source: int, target: int) -> None:
    reads = [source] * target
    assert average_lagging(reads, source, target) == source
    assert average_proportion(reads, source, target) == pytest.approx(1)
    assert consecutive_wait(reads) == source
    # each later token waits for its even share as well, which is just what AL would take off
    assert differentiable_average_lagging(reads, source) == pytest.approx(source)


@given(policies(), lengths)
def test_bounds(policy: tuple[list[int], int], reference: int) -> None:
    reads, source = policy
    al = average_lagging(reads, source, reference)
    laal = length_adaptive_average_lagging(reads, source, reference)
    assert al <= laal + 1e-9  # more target tokens make the even pace slower, never faster
    assert laal <= source
    if len(reads) <= reference:
        assert laal == al
    assert 0 < average_proportion(reads, source, reference) <= len(reads) / reference + 1e-9
    assert laal > 0 or len(reads) > 1
    assert reads[0] / len(reads) <= differentiable_average_lagging(reads, source) <= source + 1e-9
    assert 1 <= consecutive_wait(reads) <= source


@given(policies(), lengths, st.data())
def test_reading_more_never_looks_faster_to_ap_and_dal(
    policy: tuple[list[int], int], reference: int, data: st.DataObject
) -> None:
    reads, source = policy
    more = sorted(min(source, g + data.draw(st.integers(0, 3))) for g in reads)
    assert average_proportion(more, source, reference) >= average_proportion(reads, source, reference)
    slower, faster = (differentiable_average_lagging(g, source) for g in (more, reads))
    assert slower >= faster - 1e-9


@given(st.integers(1, 12), lengths, lengths)
def test_larger_k_lags_more(k: int, source: int, target: int) -> None:
    less, more = (average_lagging(wait_k(n, source, target), source, target) for n in (k, k + 1))
    if target <= source:  # else AL is not monotone
        assert more >= less - 1e-9
    assert differentiable_average_lagging(wait_k(k + 1, source, target), source) >= (
        differentiable_average_lagging(wait_k(k, source, target), source) - 1e-9
    )


def make(index: int, words: str, delays: tuple[int, ...], source: int, reference: int) -> Sentence:
    units = tuple(2 * d for d in delays)  # every source word is two units
    return Sentence(index, words, delays, tuple(map(float, delays)), units, source, 2 * source, reference)


A = make(0, "Ein kleiner Test &amp; mehr", (1, 2, 3, 4, 4), source=4, reference=4)
B = make(1, "wir sehen es heute", (2, 2, 2, 3), source=3, reference=5)
NOTHING = make(2, "", (), source=2, reference=1)
REFERENCES = ["ein kleiner Test &amp; mehr", "wir sehen es schon heute", "nun"]


def test_corpus_figures_are_means_over_sentences_and_join_by_index() -> None:
    scores = score([B, NOTHING, A], REFERENCES)
    assert (scores.sentences, scores.empty) == (3, 1)
    assert scores.al == pytest.approx(fmean([average_lagging(A.reads, 8, 5), average_lagging(B.reads, 6, 4)]))
    assert scores.al_word == pytest.approx(
        fmean([average_lagging(A.delays, 4, 4), average_lagging(B.delays, 3, 5)])
    )
    assert scores.cw == pytest.approx(fmean([2, 3]))
    assert scores.bleu == pytest.approx(score([A, B, NOTHING], REFERENCES).bleu)
    assert scores.bleu is not None
    assert scores.bleu > 50
    assert dataclasses.replace(scores, bleu=None, sacrebleu=None, chrf=None, signatures={}) == score(
        [A, B, NOTHING], None
    )


def test_an_empty_output_costs_quality() -> None:
    with_it = score([A, B, NOTHING], REFERENCES).bleu
    without = score([A, B], REFERENCES[:2]).bleu
    assert with_it is not None
    assert without is not None
    assert with_it < without


def test_conventions_differ_where_they_should() -> None:
    hypothesis, reference = ["Don &apos;t panic , it is ( only ) I"], ["don &apos;t panic , it is ( only ) i"]
    found = quality(hypothesis, reference)
    assert found["bleu"][0] == pytest.approx(100)  # case does not count
    assert found["sacrebleu"][0] < 100  # case counts
    escaped = quality(["it 's a < b & c"], ["it &apos;s a &lt; b &amp; c"])
    assert [escaped[name][0] for name in ("sacrebleu", "chrf")] == pytest.approx([100, 100])
    parts = ("bleu", "case:lc"), ("bleu", "tok:none"), ("sacrebleu", "case:mixed"), ("sacrebleu", "tok:13a")
    for name, part in (*parts, ("chrf", "nc:6|nw:0")):
        assert part in found[name][1]


def test_references_in_the_sentences_are_used_if_all_are_there() -> None:
    both = [dataclasses.replace(one, reference=text) for one, text in zip((A, B), REFERENCES[:2], strict=True)]
    assert score(both[::-1]) == score([A, B], REFERENCES[:2])
    assert score([both[0], B]).bleu is None
    assert score([dataclasses.replace(one, reference="") for one in both]).bleu is None


def test_scores_survive_the_way_through_a_table() -> None:
    scores = score([A, B], REFERENCES[:2])
    again = from_json(Scores, scores.to_table() | {"signatures": scores.signatures}, "scores")
    assert again.to_table() == scores.to_table()
    assert again.signatures == scores.signatures
    assert set(scores.signatures) == {"bleu", "sacrebleu", "chrf"}
    table = scores.to_table()
    del table["al"]
    with pytest.raises(UserError, match="scores: missing or unknown al, signatures"):
        from_json(Scores, table, "scores")


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(UserError, match="no sentence has an output"):
        score([NOTHING], None)
    with pytest.raises(UserError, match="2 sentences do not match 3 references"):
        score([A, B], REFERENCES)
