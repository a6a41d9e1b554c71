"""Segmentation is reversible word by word, and byte pair encoding matches subword-nmt."""

import string
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.data.segment import BPESegmenter, PieceSegmenter, Segmenter, WordSegmenter
from whilst.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Language, WordBuffer

TEXT = [
    "the baker bakes bread and the brewer brews beer",
    "a breadboard is a board for bread , a keyboard is not",
    "nobody boards the abandoned boat before the bakery opens",
    "backboards , dashboards and bandaged beds are abroad",
] * 3
LETTERS = "abdekrs"
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=9), max_size=8)
ANY_WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=6), max_size=6
)

SEGMENTERS: dict[str, Segmenter] = {
    "word": WordSegmenter(),
    "bpe": BPESegmenter.learn(TEXT, 40),
    "sentencepiece": PieceSegmenter.learn(TEXT, 60),
}


def language(kind: str, words: list[str]) -> Language:
    """A language that knows every unit of these words."""
    return Language.count("en", SEGMENTERS[kind], Counter([*words, *" ".join(TEXT).split()]), 1)


@pytest.mark.parametrize("kind", SEGMENTERS)
@given(words=WORDS | ANY_WORDS)
def test_round_trip(kind: str, words: list[str]) -> None:
    words = [word.replace("\u2581", "_") for word in words if word not in SPECIALS]
    side = language(kind, words)
    ids = side.encode(words)
    assert UNK not in ids
    assert side.decode([BOS, *ids, EOS, PAD]) == words
    assert ids == [id for word in words for id in side.encode([word])]
    assert all(side.decode(side.encode([word])) == [word] for word in words)


@pytest.mark.parametrize("kind", SEGMENTERS)
@given(data=st.data())
def test_the_word_buffer_matches_decode_and_only_appends(kind: str, data: st.DataObject) -> None:
    side = language(kind, [])
    ids = data.draw(st.lists(st.integers(0, len(side) - 1), max_size=20))
    buffer, words = WordBuffer(side), []
    for place, id in enumerate(ids):
        words += buffer.feed(id)
        assert side.decode(ids[: place + 1])[: len(words)] == words
    words += buffer.flush()
    assert words == side.decode(ids) == side.decode(np.array(ids, dtype=np.uint16))
    assert buffer.flush() == []
    assert all(word and not word.isspace() for word in words)


def test_words_are_returned_when_complete() -> None:
    words = ["the", "keyboard"]
    for kind, whole_with_last_unit in (("word", True), ("bpe", True), ("sentencepiece", False)):
        side = language(kind, [])
        units = [(number, id) for number, word in enumerate(words, start=1) for id in side.encode([word])]
        buffer = WordBuffer(side)
        fed = [(number, word) for number, id in units for word in buffer.feed(id)]
        assert fed[0] == (1 if whole_with_last_unit else 2, "the")
        assert buffer.flush() == ([] if whole_with_last_unit else ["keyboard"])


def test_an_unknown_unit_is_a_word() -> None:
    side = language("bpe", [])
    ids = side.encode(["bo\u00dfrd"])
    assert UNK in ids
    assert SPECIALS[UNK] in side.decode(ids)
    assert language("word", []).decode([UNK, UNK]) == ["<unk>", "<unk>"]


def slow_bpe(word: str, codes: list[tuple[str, str]]) -> list[str]:
    """Applies one merge at a time to the whole word."""
    units = [*word[:-1], word[-1] + "</w>"]
    while True:
        for left, right in codes:
            joined: list[str] = []
            for unit in units:
                if joined and joined[-1] == left and unit == right:
                    joined[-1] = left + right + "\0"  # takes no further part in this merge
                else:
                    joined.append(unit)
            joined = [unit.rstrip("\0") for unit in joined]
            if joined != units:
                units = joined
                break
        else:
            return units


@given(
    words=WORDS,
    codes=st.lists(st.tuples(st.text("abde", min_size=1, max_size=3), st.text("abde", min_size=1, max_size=2))),
    ends=st.lists(st.booleans()),
)
def test_bpe_matches_subword_nmt(words: list[str], codes: list[tuple[str, str]], ends: list[bool]) -> None:
    marked = [(left, right + "</w>" * end) for (left, right), end in zip(codes, ends, strict=False)]
    segmenter = BPESegmenter(marked)
    for word in words:
        assert segmenter.split(word) == slow_bpe(word, marked)


@given(words=WORDS)
def test_learnt_merges_match_tokenizers(words: list[str]) -> None:
    from tokenizers import models

    segmenter = SEGMENTERS["bpe"]
    assert isinstance(segmenter, BPESegmenter)
    letters = {form for letter in "".join(TEXT) for form in (letter, letter + "</w>")}
    units = dict.fromkeys([*sorted(letters), *(left + right for left, right in segmenter.merges)])
    model = models.BPE(
        {unit: number for number, unit in enumerate(units)}, list(segmenter.merges), end_of_word_suffix="</w>"
    )
    for word in words:
        assert segmenter.split(word) == [token.value for token in model.tokenize(word)]


def test_learning_respects_the_size() -> None:
    assert len(BPESegmenter.learn(TEXT, 7).merges) == 7
    assert len(BPESegmenter.learn(["ab ab", "ab cd"], 100).merges) == 1  # no other pair is seen twice


@given(words=WORDS)
def test_sentencepiece_by_word_matches_the_whole_sentence(words: list[str]) -> None:
    segmenter = SEGMENTERS["sentencepiece"]
    assert isinstance(segmenter, PieceSegmenter)
    whole = segmenter.split(" ".join(words)) if words else []
    assert [unit for word in words for unit in segmenter.split(word)] == whole


def test_too_few_sentencepiece_units() -> None:
    with pytest.raises(UserError, match=r"data\.size"):
        PieceSegmenter.learn(TEXT, 5)


def test_vocabulary_order_and_minimum() -> None:
    counts = {"rare": 1, "b": 3, "a": 3, "often": 9, "<s>": 50}
    side = Language.count("en", WordSegmenter(), counts, 2)
    assert side.units == (*SPECIALS, "often", "a", "b")
    assert side.encode(["often", "rare", "</s>", "<s>"]) == [4, UNK, UNK, UNK]
    assert len(side) == 7


@pytest.mark.parametrize("units", [["a", "a"], ["<s>"]])
def test_duplicate_and_special_units_are_refused(units: list[str]) -> None:
    with pytest.raises(ValueError, match="distinct"):
        Language("en", WordSegmenter(), units)


@pytest.mark.parametrize("kind", SEGMENTERS)
def test_save_and_load(kind: str, tmp_path: Path) -> None:
    side = language(kind, [])
    side.save(tmp_path, "target")
    again = Language.load(tmp_path, "target")
    words = ["the", "baker", "boards", "ß"]
    assert again.name == "en"
    assert again.units == side.units
    assert again.encode(words) == side.encode(words)


def test_long_words_are_merged_in_parts() -> None:
    """In linear time, and without loss."""
    segmenter = BPESegmenter([("a", "b"), ("ab", "ab"), ("ab", "c</w>")])
    word = "ab" * 5_000 + "c"
    units = segmenter.split(word)
    assert "".join(map(segmenter.text, units)) == word
    assert [segmenter.ends_word(unit) for unit in units] == [False] * (len(units) - 1) + [True]
    assert units[:125] == segmenter.split("ab" * 250 + "c")[:125] == ["abab"] * 125


def test_the_same_text_gives_the_same_merges() -> None:
    """Also with ties between many pairs."""
    text = [" ".join(a + b for b in string.ascii_lowercase) for a in string.ascii_lowercase] * 2
    first, *others = (BPESegmenter.learn(text, 60).merges for _ in range(5))
    assert all(other == first for other in others)
