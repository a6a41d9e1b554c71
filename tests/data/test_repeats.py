"""A translation repeats no phrase more often in a row than its source does, whatever a model would write."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.data.repeats import DOUBLED, LONGEST, CompletingUnits, RepeatGuard
from whilst.data.segment import BPESegmenter, PieceSegmenter, Segmenter, WordSegmenter
from whilst.data.sentences import normalise
from whilst.data.vocabulary import SPECIALS, Language
from whilst.data.writer import SourceWord, Writer


class Marked(Segmenter):
    """Units as of SentencePiece."""

    first_mark = PieceSegmenter.first_mark

    def split(self, word: str) -> list[str]:
        return [self.first_mark + word[0], *word[1:]]


MARK, END = Marked.first_mark, BPESegmenter.last_mark
LANGUAGES = {
    "first": Language("t", Marked(), [MARK, *'ab,-"', *(MARK + x for x in ("a", "A", "b,", "ab", '"', '",'))]),
    "last": Language("t", BPESegmenter([]), ["a", "b", "A", *(x + END for x in ("a", "b", "A,", "ab", ","))]),
    "word": Language("t", WordSegmenter(), ["a", "A", "b", "a,", "ab", "luôn", "-", "--"]),
}


def most_in_row(words: list[str]) -> int:
    """By all phrases at all places."""
    words = [normalise(word) for word in words]
    best = 1
    for length in range(1, LONGEST + 1):
        for start in range(len(words)):
            parts = (words[n : n + length] for n in range(start, len(words), length))
            count = len(list(next(groupby(parts))[1]))
            best = max(best, count if length > 1 or words[start] not in DOUBLED or count > 2 else 1)
    return best


@pytest.mark.parametrize("kind", LANGUAGES)
@given(source=st.lists(st.sampled_from(["x", "y", "X."]), max_size=6), data=st.data())
def test_no_phrase_is_repeated_more_than_in_the_source(kind: str, source: list[str], data: st.DataObject) -> None:
    """A model that writes anything that is not banned, and reads at any time."""
    language, unread = LANGUAGES[kind], list(source)
    writer = Writer(language, copy=True, repeats=CompletingUnits(language))
    words: list[str] = []
    for _ in range(20):
        if unread and data.draw(st.sampled_from(range(2))):
            writer.read(SourceWord(unread.pop(0)))
        banned = writer.banned()
        free = [unit for unit in range(len(SPECIALS), len(language)) if unit not in banned]
        if not free:
            break
        words += writer.write(free[data.draw(st.integers(0, len(free) - 1))])
        read = source[: len(source) - len(unread)]
        assert most_in_row([*words, *([writer._buffer.begun] if kind == "first" else [])]) <= most_in_row(read)


@pytest.mark.parametrize("kind", LANGUAGES)
@given(data=st.data())
def test_nothing_else_is_banned(kind: str, data: st.DataObject) -> None:
    language = LANGUAGES[kind]
    guarded, units = Writer(language, copy=True, repeats=CompletingUnits(language)), list[int]()
    for _ in range(10):
        banned = guarded.banned()
        for unit in banned:
            free = Writer(language, copy=False)
            words = [word for each in [*units, unit] for word in free.write(each)] + free.flush()
            assert most_in_row(words) > 1
        free_units = [unit for unit in range(len(SPECIALS), len(language)) if unit not in banned]
        units.append(data.draw(st.sampled_from(free_units)))
        guarded.write(units[-1])


@pytest.mark.parametrize(
    ("source", "target", "banned"),
    [
        ("x y", "a", "a A a,"),
        ("x y", "b a b", "a A a, b"),
        ("x x y", "a", ""),
        ("x x y", "a b a b a", "b"),
        ("x y x y", "a A", "a A a,"),
        ("x", "luôn", ""),  # a word that stands twice
        ("x", "luôn luôn", "luôn"),
    ],
)
def test_examples(source: str, target: str, banned: str) -> None:
    language = LANGUAGES["word"]
    guard = RepeatGuard(CompletingUnits(language))
    for word in source.split():
        guard.read(word)
    guard.write(target.split())
    assert sorted(guard.banned("")) == sorted(language.encode(banned.split()))
