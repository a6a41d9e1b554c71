"""Words from bytes: however they are cut, and from lines of a recogniser that changes its mind."""

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.live import incoming
from whilst.live.incoming import BREAK, LONGEST_LINE, LONGEST_WORD, Decoder, Hypotheses, Parser, Words, best_end


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


def parse(parser: Parser, data: bytes, places: list[int]) -> list[str]:
    decode = Decoder("standard input")
    words = [word for chunk in cut(data, places) for word in parser.take(decode(chunk))]
    return words + parser.take(decode(b"", last=True)) + parser.rest()


def simple(text: str, by_lines: bool) -> list[str]:
    """The slow way: when all is there."""
    words = []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        words += line.split()
        if number < len(lines) and (by_lines or not line.split()):
            words.append(BREAK)
    return words


texts = st.text(st.sampled_from("aé好 \n\t\r"), max_size=30)


@given(texts, st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_words_do_not_depend_on_how_bytes_arrive(text: str, places: list[int], by_lines: bool) -> None:
    assert parse(Words(by_lines), text.encode(), places) == simple(text, by_lines)


def test_a_word_comes_with_the_white_space_after_it() -> None:
    words = Words()
    assert words.take("hel") == []
    assert words.take("lo wor") == ["hello"]
    assert words.take("ld\n") == ["world"]
    assert words.take("\n") == [BREAK]
    assert words.take("bye") == []
    assert words.rest() == ["bye"]


def test_a_byte_order_mark_is_no_word() -> None:
    assert parse(Words(), b"\xef\xbb\xbfone two", [1, 2]) == ["one", "two"]


@pytest.mark.parametrize("places", [[], [9], [10], [3, 4, 9]])
def test_what_is_not_text_is_named(places: list[int]) -> None:
    with pytest.raises(UserError, match=r"standard input:2: not valid UTF-8 \(byte 0xff\)"):
        parse(Words(), b"one\ntwo \xff three", places)
    with pytest.raises(UserError, match="standard input:1: not valid UTF-8"):
        parse(Words(), "é".encode()[:1], [])


@pytest.mark.parametrize("end", ["", " ", "\n", "\nfour five\n"])
def test_nothing_without_end_is_kept(end: str) -> None:
    """What stands before it is heard first, however the stream is cut; what comes after it is not."""
    words = Words()
    assert words.take("one two\nthree " + "a" * (LONGEST_WORD + 1) + end) == ["one", "two", "three"]
    with pytest.raises(UserError, match="is it text"):
        words.take("")
    assert words.rest() == []
    heard = Hypotheses(print)
    assert heard.take("one\none two\n" + "a " * LONGEST_LINE + end) == ["one"]
    with pytest.raises(UserError, match="is it text"):
        heard.take("")
    assert heard.rest() == ["two"]


def test_what_came_before_a_bad_byte_is_heard() -> None:
    decode = Decoder("standard input")
    assert decode(b"\xef\xbb\xbfone two \xffthree") == "one two "
    with pytest.raises(UserError, match="standard input:1"):
        decode(b"", last=True)


def hear(lines: list[str], keep: int = 2) -> tuple[list[list[str]], list[str]]:
    """What each line makes certain, and what was told."""
    told: list[str] = []
    parser = Hypotheses(told.append, keep)
    return [parser.take(line + "\n") for line in lines] + [parser.rest()], told


def flat(lists: list[list[str]]) -> list[str]:
    return [word for words in lists for word in words]


def test_a_word_counts_when_two_lines_had_it() -> None:
    fed, told = hear(["the", "the quick", "the quick brown", "the quick brow fox", "", "so"])
    assert fed == [[], ["the"], ["quick"], [], ["brow", "fox", BREAK], [], ["so"]]
    assert told == []


def test_a_changed_tail_is_handled() -> None:
    fed, told = hear(["I", "I scream", "ice cream", "ice cream is", "ice cream is good"])
    assert flat(fed) == ["I", "cream", "is", "good"]
    assert told == ["heard 'I', which is now 'ice': it was translated already"]


def test_a_changed_word_is_told_once() -> None:
    fed, told = hear(["a b c", "a b c", "a x c", "a x c d", "a b c d", "a x c d e", "a x c d e"])
    assert flat(fed) == ["a", "b", "c", "d", "e"]
    assert len(told) == 1


def test_a_word_more_or_less_before_does_not_shift_the_rest() -> None:
    assert flat(hear(["a b c", "a b c", "a new b c", "a new b c d", "a new b c d"])[0]) == ["a", "b", "c", "d"]
    assert flat(hear(["a b c", "a b c", "a c d", "a c d e", "a c d e"])[0]) == ["a", "b", "c", "d", "e"]


def test_case_and_punctuation_make_no_other_word() -> None:
    fed, told = hear(["hello world", "hello world", "Hello, world.", "Hello, world. Yes", "Hello, world. Yes"])
    assert flat(fed) == ["hello", "world", "Yes"]
    assert told == []


def test_a_line_that_begins_anew_is_another_utterance() -> None:
    fed, told = hear(["so this is it", "so this is it", "well", "well then"])
    assert flat(fed) == ["so", "this", "is", "it", BREAK, "well", "then"]
    assert told == []


def test_at_least_one_line() -> None:
    with pytest.raises(UserError, match="--keep"):
        Hypotheses(print, 0)
    assert hear(["a", "a b"], keep=1)[0] == [["a"], ["b"], []]


letters = st.sampled_from("abc")
recogniser = st.lists(st.lists(letters, max_size=6).map(" ".join), max_size=12)


@given(recogniser, st.integers(1, 4))
def test_only_what_was_kept_is_handed_out(lines: list[str], keep: int) -> None:
    """Whatever a recogniser does: a word handed out between empty lines stood in the last `keep` lines."""
    fed, told = hear(lines, keep)
    for number, (line, words) in enumerate(zip(lines, fed, strict=False)):
        if line and BREAK not in words:
            last = lines[max(0, number - keep + 1) : number + 1]
            assert not words or len(last) == keep
            assert all(word in line.split() for line in last for word in words)
    assert len(told) <= len(flat(fed)), "once for each word at most"


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), max_size=20), st.integers(2, 4))
def test_a_tail_that_changes_in_every_line_never_counts(grow: list[int], noise: list[int], keep: int) -> None:
    lines: list[str] = []
    truth = [f"w{n}" for n in range(sum(grow))]
    for end, count in zip(itertools.accumulate(grow), noise, strict=False):
        lines.append(" ".join([*truth[:end], *(f"no{len(lines)}.{n}" for n in range(count))]))
    lines = [line for line in lines if line]
    fed, told = hear([*lines, " ".join(truth)], keep) if truth else ([], [])
    assert flat(fed) == truth
    assert told == []


@given(st.lists(letters, max_size=24), st.lists(letters, max_size=24))
def test_the_best_end(old: list[str], new: list[str]) -> None:
    """Against all edit distances, computed apart."""

    @functools.cache
    def distance(a: int, b: int) -> int:
        """Between the first words of each."""
        if not a or not b:
            return a + b
        changed = old[a - 1] != new[b - 1]
        return min(distance(a - 1, b) + 1, distance(a, b - 1) + 1, distance(a - 1, b - 1) + changed)

    costs = [distance(len(old), n) for n in range(len(new) + 1)]
    end, cost = best_end(old, new)
    assert cost == costs[end] == min(costs)
    assert all(abs(n - len(old)) >= abs(end - len(old)) for n, other in enumerate(costs) if other == cost)


def test_a_word_put_into_a_long_line_does_not_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of so many words held against another, each against each, would be a hundred million looks."""
    old = [f"w{n}" for n in range(10_000)]
    new = [*old[:3], "more", *old[3:], "and", "on"]
    looks = 0
    counted = incoming._last_costs

    def watched(left: list[str], right: list[str], most: int) -> dict[int, int]:
        nonlocal looks
        looks += len(left) * (2 * most + 1)
        return counted(left, right, most)

    monkeypatch.setattr(incoming, "_last_costs", watched)
    assert best_end(old, new) == (10_001, 1)
    assert looks < 100 * len(old)
