"""Truecasing of text without case; cased text stays as it is."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.test_session import make_text
from whilst.core.files import MODELS
from whilst.data.adapting import truecaser
from whilst.data.segment import WordSegmenter
from whilst.data.vocabulary import Language
from whilst.live.session import SessionState

# By frequency: "i" is a misspelling of "I"; "So" often begins a sentence, and "so" is a word of its own.
UNITS = ["I", "the", "So", "so", "London", "NASA", "The", "radio", "mark", "Mark", *map(str, range(40)), "i"]
CASE = truecaser(Language("en", WordSegmenter(), UNITS))


@pytest.mark.parametrize(
    ("word", "first", "loose", "wanted"),
    [
        ("london", False, True, "London"),  # unknown without its capital
        ("i", False, True, "I"),
        ("so", False, True, "so"),
        ("so", True, True, "So"),
        ("radio", True, True, "radio"),  # its capital is unknown
        ("mark", False, True, "mark"),
        ("london", False, False, "london"),  # the sentence has its case: it is meant so
        ("RADIO", False, True, "radio"),
        ("RADIO", False, False, "RADIO"),
        ("LONDON", False, True, "London"),
        ("THE", True, True, "The"),
        ("NASA", False, True, "NASA"),
        ("I", False, True, "I"),
        ("QQQ", False, True, "QQQ"),
        ("Radio", False, True, "Radio"),
        ("", False, True, ""),
    ],
)
def test_words_get_their_usual_case(word: str, first: bool, loose: bool, wanted: str) -> None:
    assert CASE(word, first, loose) == wanted


@given(st.text(max_size=8), st.booleans(), st.booleans())
def test_only_case_changes_and_truecasing_is_idempotent(word: str, first: bool, loose: bool) -> None:
    found = CASE(word, first, loose)
    assert found.lower() == word.lower()
    assert CASE(found, first, loose) == found


def read(words: str, longest: int = 60) -> list[str]:
    """The source words of a session."""
    language = Language.load(MODELS / "en-vi", "source")
    text = dataclasses.replace(
        make_text(),
        source=language,
        max_units=longest,
        ends_sentence=lambda word: word.endswith("."),
        truecase=truecaser(language),
    )
    script = SessionState(text)
    script.add_words(words)
    units = [[unit for unit, *_ in sentence.unread] for sentence in script.sentences]
    return [" ".join(language.decode(ids)) for ids in units if ids]


def test_lower_case_text_is_truecased() -> None:
    assert read("last monday i went to london. john came from vietnam.") == [
        "Last Monday I went to London.",
        "John came from Vietnam.",
    ]


def test_cased_text_is_unchanged() -> None:
    text = "Bill paid the bill of the USA in May."
    assert read(text) == [text]
    assert read("THANK YOU FROM NASA.") == ["Thank you from NASA."]


def test_a_cut_sentence_continues_uncased() -> None:
    found = read("last monday i went to london and john came from vietnam and i said so to john", longest=9)
    assert len(found) > 1
    assert all(sentence[0].isupper() for sentence in found)
    assert " ".join(found).split().count("I") == 2
    assert {"Monday", "London", "John", "Vietnam"} <= set(" ".join(found).split())
