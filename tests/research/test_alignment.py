"""Alignments: the links of a file, words against units of every kind, and what of it had been read."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.core.settings import Data
from whilst.data.segment import BPESegmenter, PieceSegmenter, Segmenter, WordSegmenter
from whilst.data.text import cleaner
from whilst.data.vocabulary import Language
from whilst.research.sufficiency import Aligned, encode, last_sources, needs, sufficient

LINES = ["low lower lowest", "new newer newest wide", "a slow widow lowers a new sower", "we sow & owe"]


def segmenter(kind: str) -> Segmenter:
    if kind == "bpe":
        return BPESegmenter([("l", "o"), ("lo", "w"), ("n", "e"), ("e", "r</w>"), ("s", "t</w>")])
    return PieceSegmenter.learn(LINES * 5, 30) if kind == "sentencepiece" else WordSegmenter()


@pytest.fixture(scope="module", params=["word", "bpe", "sentencepiece"])
def language(request: pytest.FixtureRequest) -> Language:
    counts = {word: 1 for line in LINES for word in line.split()}
    return Language.count("xx", segmenter(request.param), counts, 1)


# From words to units.


def test_every_word_has_its_own_units(language: Language) -> None:
    lengths = set()
    for line in LINES:
        units = encode(line, str, language)
        assert [*itertools.chain(*units)] == language.encode(line.split())
        for word, own in zip(line.split(), units, strict=True):
            assert language.decode(own) == [word]
            lengths.add(len(own))
    assert (lengths == {1}) == (language.segmenter.kind == "word")


def test_a_word_divided_by_cleaning_is_still_one_word(language: Language) -> None:
    def clean(line: str) -> str:
        return " ".join(line.replace("-", " ").split())

    units = encode("low-lower - new", clean, language)
    assert [*itertools.chain(*units)] == language.encode(["low", "lower", "new"])
    assert language.decode(units[0]) == ["low", "lower"]
    assert units[1] == [], "nothing is left of it"
    assert language.decode(units[2]) == ["new"]
    # The second target word has no units, so nobody can write it.
    first, both = len(units[0]), len(units[0]) + len(units[2])
    assert needs(units, units, {1: 3, 2: 1, 3: 2}) == [(0, both), (first, first)]


def test_entities_and_case_are_cleaned_as_in_training() -> None:
    language = Language.count("xx", WordSegmenter(), {"we": 1, "&": 1, "owe": 1}, 1)
    units = encode("We &amp; OWE", cleaner(Data(unescape=True, lowercase=True), "xx"), language)
    assert [language.decode(own) for own in units] == [["we"], ["&"], ["owe"]]


# The figure.

WORDS = st.lists(st.integers(1, 4), min_size=1, max_size=8)  # units of each word
Link = tuple[int, str, int]  # source word, "-" or "p", target word
Case = tuple[list[int], list[int], list[Link], list[int]]


@st.composite
def aligned(draw: st.DrawFn) -> Case:
    """Units of the words on both sides, links, and reads that never fall."""
    source, target = draw(WORDS), draw(WORDS)
    link = st.tuples(st.integers(1, len(source)), st.sampled_from("-p"), st.integers(1, len(target)))
    reads = draw(st.lists(st.integers(1, sum(source)), min_size=sum(target), max_size=sum(target)))
    return source, target, draw(st.lists(link, max_size=12)), sorted(reads)


def words_of(lengths: list[int]) -> list[list[int]]:
    return [[7] * length for length in lengths]


def needed_by(case: Case, possible: bool) -> list[tuple[int, int]]:
    source, target, links, _ = case
    line = " ".join(f"{left}{kind}{right}" for left, kind, right in links)
    return needs(
        words_of(source), words_of(target), last_sources(line, (len(source), len(target)), possible, False, "line")
    )


@given(aligned(), st.booleans())
def test_sufficiency_matches_its_definition(case: Case, possible: bool) -> None:
    source, target, links, reads = case
    needed = needed_by(case, possible)
    met = sufficient(reads, needed)
    # Word by word, unit by unit, link by link.
    right = wrong = 0
    for word in range(1, len(target) + 1):
        linked = [left for left, kind, right in links if right == word and (possible or kind == "-")]
        begin = sum(target[: word - 1])
        if linked:
            whole = all(reads[begin] >= sum(source[:j]) for j in linked)
            right, wrong = right + whole, wrong + (not whole)
    assert (met, len(needed)) == (right, right + wrong)


@given(aligned(), st.booleans())
def test_reading_more_never_hurts(case: Case, possible: bool) -> None:
    source, _, _, reads = case
    needed = needed_by(case, possible)
    later = [min(g + 1, sum(source)) for g in reads]
    assert sufficient(reads, needed) <= sufficient(later, needed) <= len(needed)
    assert sufficient([sum(source)] * len(reads), needed) == len(needed), "the whole source is always enough"


@given(aligned())
def test_more_links_need_more_reads(case: Case) -> None:
    _, _, _, reads = case
    sure, every = (dict(needed_by(case, also)) for also in (False, True))
    assert sure.keys() <= every.keys()
    assert all(every[unit] >= wanted for unit, wanted in sure.items())
    assert sufficient(reads, [(unit, every[unit]) for unit in sure]) <= sufficient(reads, list(sure.items()))


def test_the_units_of_the_last_word_must_all_be_read() -> None:
    source, target = words_of([1, 3]), words_of([2, 1])
    needed = needs(source, target, {1: 2, 2: 1})
    assert needed == [(0, 4), (2, 1)]
    assert [sufficient(reads, needed) for reads in ([3, 4, 4], [4, 4, 4])] == [1, 2], "the first unit counts"


# Files.


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_links_of_a_file(tmp_path: Path) -> None:
    source, target = write(tmp_path, "s", "a b c\nd\n"), write(tmp_path, "t", "x y\nz\n")
    path = write(tmp_path, "links", "2-1 1-1 3p2 \n\n")
    assert Aligned.read(source, target, path, False, False).needs == [{1: 2}, {}]
    assert Aligned.read(source, target, path, True, False).needs == [{1: 2, 2: 3}, {}]
    path = write(tmp_path, "turned", "1-2 1-1 2p3\n1-1\n")
    assert Aligned.read(source, target, path, True, True).needs == [{1: 2, 2: 3}, {1: 1}]
    path = write(tmp_path, "several", "1-1;2,3-2;\n1-1;\n")
    assert Aligned.read(source, target, path, False, False).needs == [{1: 1, 2: 3}, {1: 1}]
    for wrong in ("1-", "0-1", "1x2", "1-2-3", "a", "1,-2", "1-,2"):
        path = write(tmp_path, "bad", f"1-1\n{wrong}\n")
        with pytest.raises(UserError, match=r"bad:2: .* is not a link; write 9-8"):
            Aligned.read(source, target, path, False, False)


def test_some_sentences_are_chosen_by_their_sources_alone(tmp_path: Path) -> None:
    lines = [f"sentence {number}" for number in range(20)]
    links = write(tmp_path, "links", "1-1\n" * 20)
    source, target = write(tmp_path, "s", "\n".join(lines) + "\n"), write(tmp_path, "t", "\n".join(lines) + "\n")
    few = Aligned.read(source, target, links, False, False, 5)
    more = Aligned.read(source, target, links, False, False, 9)
    assert (len(few.source), len(few.needs)) == (5, 5)
    assert few.source == few.target == [line for line in lines if line in few.source], "in their order"
    assert set(few.source) < set(more.source)
    turned = write(tmp_path, "r", "\n".join(lines[::-1]) + "\n")
    assert set(Aligned.read(turned, target, links, False, False, 5).source) == set(few.source)
    faulty = write(tmp_path, "faulty", "".join("1-9\n" if line == few.source[0] else "1-1\n" for line in lines))
    left = Aligned.read(source, target, faulty, False, False, 5)
    assert set(few.source) - set(left.source) == {few.source[0]}
    assert len(left.source) == 5, "another one takes its place"
