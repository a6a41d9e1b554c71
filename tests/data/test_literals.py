"""Literals: what is found, how it waits for its stand-in, and that it is written exactly once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.data.literals import Kind, Literals, TokenReader, make_glossary, read_glossary
from whilst.data.segment import WordSegmenter
from whilst.data.vocabulary import EOS, Language
from whilst.data.writer import GuidedWriter, WordRules

WORDS = ["Google", "Einstein", "30", "15", "2005", "a", "b", "a.", "10", "Google.", "Anna", "30%", "it's"]
PAIR = Language("s", WordSegmenter(), WORDS), Language("t", WordSegmenter(), WORDS)
LITERALS = Literals.of(*PAIR, lowercase=False, patterns=True)
CASES = [
    *("15.7%", "3/4", "+1-555-0199", "$1,250.50", "12/05/2023", "10:30", "-5°", "180"),
    *("https://example.org/a?b=1", "anna.lee@example.com", "www.example.org", "example.com", "report.pdf"),
    *("<b>x</b>", "`x`", "--help", "main()", "my_name", "std::sort", "/etc/hosts", "~/a.txt", "getName", "C++"),
    *("F-16", "USB-C", "COVID-19", "@anna", "#news", "今天天气很好", "Привет", "x" * 100),
]
PLAIN = ["a", "10", "e-mail", "and/or", "U.S.", "a.m.", "--", "...", "O'Neill", "it's", "naïve", "4th", "1980s"]


def kinds(line: str, literals: Literals = LITERALS) -> list[tuple[str, Kind]]:
    reader = TokenReader(literals)
    tokens = [token for number, word in enumerate(line.split(), 1) for token in reader.read(word, number)]
    return [(token.text, token.kind) for token in tokens + reader.flush()]


@pytest.mark.parametrize("text", CASES)
def test_literals_are_found_within_punctuation(text: str) -> None:
    for before, after in (("", ""), ("(", ")."), ('"', '",')):
        [(found, kind)] = kinds(before + text + after)
        assert found == text
        assert kind in (Kind.NAME, Kind.NUMBER)


@pytest.mark.parametrize("text", PLAIN)
def test_the_model_gets_other_words(text: str) -> None:
    known = Literals(frozenset("abcdefghijklmnopqrstuvwxyzONUS'/.-1234567890"), patterns=True)
    assert {kind for _, kind in kinds(text, known)} <= {Kind.WORD} | ({Kind.NUMBER} if text == "10" else set())


def test_emoji_and_code_in_their_words() -> None:
    assert kinds("great😀!") == [("great", Kind.NAME), ("😀", Kind.EMOJI), ("!", Kind.WORD)]
    assert [kind for _, kind in kinds("a `git commit -m` a")] == [Kind.WORD, *[Kind.NAME] * 3, Kind.WORD]


def translate(line: str, written: str, literals: Literals = LITERALS) -> str:
    """With a model that writes these words once it has read the whole source."""
    rules = WordRules(*PAIR, literals=literals)
    source = rules.known_source(line.split())
    writer = GuidedWriter(rules.writer(), source)
    units = [*PAIR[1].encode(written.split()), EOS]
    return " ".join(word for unit in units for word in writer.write(unit, len(source.units) + 1))


@pytest.mark.parametrize(
    ("source", "written", "wanted"),
    [
        ("a 15.7% b", "b 30 a", "b 15.7% a"),
        ("a 15.7% b", "b a", "b a 15.7%"),  # the model has not written the stand-in
        ("a x@y.org.", "a.", "a. x@y.org"),  # a. was a whole word
        ("a 3/4 b 180", "15 a 30", "180 a 3/4"),
        ("1987 a", "2005 a", "1987 a"),
        ("30 3/4", "30 15", "30 3/4"),  # 30 is taken
        ("3/4 a 3/4", "30 a 30", "3/4 a 3/4"),  # one stand-in for both
        ("天 气 a", "Google a", "天 气 a"),  # one stand-in for both
        ("a 😀 b", "a b", "a 😀 b"),
        ("a b 😀", "a b", "a b 😀"),
        ("天 a Google", "Google a Einstein", "天 a Google"),  # a stand-in that is also said
        ("15.7% a", "30%", "15.7%%"),
    ],
)
def test_stand_ins_become_literals(source: str, written: str, wanted: str) -> None:
    assert translate(source, written) == wanted


@given(
    source=st.lists(
        st.sampled_from(["a", "b", "10", "3/4", "7.5%", "天", "😀", "x_y", "Google", "30"]), max_size=9
    ),
    written=st.lists(st.sampled_from(["a", "b", "Google", "Einstein", "30", "15", "2005"]), max_size=9),
)
def test_no_literal_is_lost(source: list[str], written: list[str]) -> None:
    found = translate(" ".join(source), " ".join(written)).split()
    for literal in ("3/4", "7.5%", "天", "😀", "x_y"):
        assert found.count(literal) >= min(1, source.count(literal))


TERMS = make_glossary([("Golden Gate", "Cổng Vàng"), ("golden Gate bridge", "cầu"), ("Anna", ""), ("a b", "a b")])
TERMED = LITERALS.with_glossary(TERMS)


@pytest.mark.parametrize(
    ("source", "terms"),
    [
        ("a Golden Gate b", ["Cổng Vàng"]),
        ("Golden Gate Bridge", ["cầu"]),
        ('"golden gate."', ["Cổng Vàng"]),
        ("Golden, Gate", []),
        ("Golden Golden Gate", ["Cổng Vàng"]),
        ("ANNA's b", ["ANNA"]),
        ("a a b", ["a b"]),
    ],
)
def test_terms(source: str, terms: list[str]) -> None:
    assert [text for text, kind in kinds(source, TERMED) if kind is Kind.TERM] == terms


def test_a_glossary_works_without_guards() -> None:
    terms = Literals.of(*PAIR, lowercase=False, patterns=False).with_glossary(TERMS)
    assert translate("b Golden Gate 15.7%", "b Google 10", terms) == "b Cổng Vàng 10"


def test_glossary_files(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("Anna\nmachine learning\thọc  máy\n\nBert\tBert\n", encoding="utf-8")
    assert read_glossary(path) == {("anna",): "", ("machine", "learning"): "học máy", ("bert",): ""}
    path.write_text("a\tb\tc\n")
    with pytest.raises(UserError, match=r"terms\.tsv:1: not an entry of a glossary"):
        read_glossary(path)
