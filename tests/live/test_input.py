"""Source words from bytes, however they are cut, and from hypotheses of a recogniser that change."""

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.live.input import (
    BREAK,
    MAX_EDITS,
    MAX_LINE,
    MAX_WORD,
    REPLACEMENT,
    HypothesisParser,
    Parser,
    PlainTextParser,
    align_end,
)


def cut(data: bytes, offsets: list[int]) -> list[bytes]:
    ends = sorted({min(offset, len(data)) for offset in offsets} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


def parse(parser: Parser, data: bytes, offsets: list[int]) -> list[str]:
    words = [word for chunk in [*cut(data, offsets), b""] for word in parser.read(chunk)]
    return words + parser.flush()


def parse_whole(text: str, by_lines: bool) -> list[str]:
    """The reference: all of the text at once."""
    words: list[str] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        words += line.split()
        if number < len(lines) and (by_lines or not line.split()):
            words.append(BREAK)
    return words


texts = st.text(st.sampled_from("aé好 \n\t\r"), max_size=30)


@given(texts, st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_words_do_not_depend_on_chunks(text: str, offsets: list[int], by_lines: bool) -> None:
    assert parse(PlainTextParser(by_lines), text.encode(), offsets) == parse_whole(text, by_lines)


def test_white_space_ends_a_word() -> None:
    parser = PlainTextParser()
    chunks = ["hel", "lo wor", "ld\n", "\n", "bye"]
    assert [list(parser.feed(chunk)) for chunk in chunks] == [[], ["hello"], ["world"], [BREAK], []]
    assert parser.flush() == ["bye"]


def test_a_byte_order_mark_is_dropped() -> None:
    assert parse(PlainTextParser(), b"\xef\xbb\xbfone two", [1, 2]) == ["one", "two"]


@pytest.mark.parametrize("offsets", [[], [9], [10], [3, 4, 9]])
def test_invalid_bytes_are_replaced_with_one_warning(
    offsets: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    for make in (PlainTextParser, HypothesisParser):
        words = parse(make(), b"one\ntwo \xff three\nfo\xffur fi\xc3", offsets)
        assert words[-2:] == ["fo\ufffdur", "fi\ufffd"]
        warning = f"standard input:2: not valid UTF-8; such bytes become {REPLACEMENT}, here and later"
        assert capsys.readouterr().err == f"whilst: {warning}\n"


@pytest.mark.parametrize("size", [1, MAX_WORD + 3, 10 * MAX_WORD])
def test_words_and_lines_are_bounded(size: int) -> None:
    """Nothing of a long word is lost; of a line without end, which no recogniser writes, the rest is dropped."""
    text = b"one " + b"a" * (2 * MAX_WORD + 1) + b" two"
    parts = ["a" * MAX_WORD, "a" * MAX_WORD, "a"]
    assert parse(PlainTextParser(), text, list(range(size, len(text), size))) == ["one", *parts, "two"]
    line = b"one two " + b"a" * MAX_LINE
    words = parse(HypothesisParser(), line, list(range(1000 * size, len(line), 1000 * size)))
    assert words[:2] == ["one", "two"]
    assert sum(map(len, words)) < MAX_LINE


def parse_hypotheses(lines: list[str], agreement: int = 2) -> list[list[str]]:
    """The words that each line makes final, with those at the end of the input."""
    parser = HypothesisParser(agreement)
    return [list(parser.feed(line + "\n")) for line in lines] + [parser.flush()]


def flat(lists: list[list[str]]) -> list[str]:
    return [word for words in lists for word in words]


def test_a_word_is_final_when_two_lines_have_it() -> None:
    final = parse_hypotheses(["the", "the quick", "the quick brown", "the quick brow fox", "", "so"])
    assert final == [[], ["the"], ["quick"], [], ["brow", "fox", BREAK], [], ["so"]]


def test_a_final_word_that_changes_is_skipped() -> None:
    final = parse_hypotheses(["I", "I scream", "ice cream", "ice cream is", "ice cream is good"])
    assert flat(final) == ["I", "cream", "is", "good"]


def test_a_final_word_that_changes_more_than_once_is_skipped() -> None:
    final = parse_hypotheses(["a b c", "a b c", "a x c", "a x c d", "a b c d", "a x c d e", "a x c d e"])
    assert flat(final) == ["a", "b", "c", "d", "e"]


def test_insertions_and_deletions_do_not_shift_the_rest() -> None:
    assert flat(parse_hypotheses(["a b c", "a b c", "a new b c", "a new b c d", "a new b c d"])) == [
        "a",
        "b",
        "c",
        "d",
    ]
    assert flat(parse_hypotheses(["a b c", "a b c", "a c d", "a c d e", "a c d e"])) == ["a", "b", "c", "d", "e"]


def test_case_and_punctuation_are_no_change() -> None:
    final = parse_hypotheses(
        ["hello world", "hello world", "Hello, world.", "Hello, world. Yes", "Hello, world. Yes"]
    )
    assert flat(final) == ["hello", "world", "Yes"]


def test_a_short_line_without_common_words_is_another_utterance() -> None:
    final = parse_hypotheses(["so this is it", "so this is it", "well", "well then"])
    assert flat(final) == ["so", "this", "is", "it", BREAK, "well", "then"]


def test_with_an_agreement_of_one_every_word_is_final() -> None:
    assert parse_hypotheses(["a", "a b"], agreement=1) == [["a"], ["b"], []]


letters = st.sampled_from("abc")
recogniser = st.lists(st.lists(letters, max_size=6).map(" ".join), max_size=12)


@given(recogniser, st.integers(1, 4))
def test_final_words_are_in_all_of_the_last_lines(lines: list[str], agreement: int) -> None:
    """Whatever a recogniser does, unless the utterance ends there."""
    final = parse_hypotheses(lines, agreement)
    for number, (line, words) in enumerate(zip(lines, final, strict=False)):
        if line and BREAK not in words:
            last = lines[max(0, number - agreement + 1) : number + 1]
            assert not words or len(last) == agreement
            assert all(word in line.split() for line in last for word in words)


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), max_size=20), st.integers(2, 4))
def test_a_tail_that_changes_in_every_line_is_never_final(
    grow: list[int], noise: list[int], agreement: int
) -> None:
    lines: list[str] = []
    truth = [f"w{n}" for n in range(sum(grow))]
    for end, count in zip(itertools.accumulate(grow), noise, strict=False):
        lines.append(" ".join([*truth[:end], *(f"no{len(lines)}.{n}" for n in range(count))]))
    lines = [line for line in lines if line]
    final = parse_hypotheses([*lines, " ".join(truth)], agreement) if truth else []
    assert flat(final) == truth


@given(st.lists(letters, max_size=24), st.lists(letters, max_size=24))
def test_alignment_equals_the_full_edit_distance(old: list[str], new: list[str]) -> None:

    @functools.cache
    def distance(a: int, b: int) -> int:
        """Between the first words of each."""
        if not a or not b:
            return a + b
        changed = old[a - 1] != new[b - 1]
        return min(distance(a - 1, b) + 1, distance(a, b - 1) + 1, distance(a - 1, b - 1) + changed)

    costs = [distance(len(old), n) for n in range(len(new) + 1)]
    end = align_end(old, new)
    assert costs[end] == min(costs)
    assert all(abs(n - len(old)) >= abs(end - len(old)) for n, cost in enumerate(costs) if cost == costs[end])


def test_few_edits_of_a_long_line_are_found() -> None:
    old = [f"w{n}" for n in range(2_000)]
    new = [*old[:3], "more", *old[3:], "and", "on"]
    assert align_end(old, new) == 2_001


def test_a_line_that_shrinks_by_more_than_the_band() -> None:
    assert align_end(["a"] * (2 * MAX_EDITS), ["b"]) == 1
