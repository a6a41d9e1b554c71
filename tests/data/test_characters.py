# ruff: noqa: RUF001
"""Characters outside of the vocabulary are replaced, and nothing else is changed."""

import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.data.adapting import character_normaliser

ENGLISH = frozenset(string.ascii_letters + string.digits + string.punctuation)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("“Don’t”, she said…", '"Don\'t", she said...'),
        ("Antonín Dvořák and Đặng", "Antonin Dvorak and Dang"),
        ("cafe\u0301", "cafe"),
        ("ﬁve ½ Ｈello！", "five ½ Hello!"),  # NFKD has a fraction slash, which is unknown, too
        ("I love\u200b you 👍🏽 \u2764\ufe0f", "I love you  "),
        ("co\u00adoperate\x07", "cooperate"),
        ("привет 你好", "привет 你好"),
    ],
)
def test_english(text: str, plain: str) -> None:
    assert character_normaliser(ENGLISH)(text) == plain


def test_known_characters_stay() -> None:
    assert character_normaliser(ENGLISH | set("“”é👍"))("“é” 👍 ‘é’") == "“é” 👍 'é'"


@given(text=st.text(), known=st.frozensets(st.characters()))
def test_no_unknown_characters_are_added(text: str, known: frozenset[str]) -> None:
    assert set(character_normaliser(known)(text)) <= set(unicodedata.normalize("NFC", text)) | known


@given(text=st.text(alphabet=sorted(ENGLISH | {" "})))
def test_plain_text_stays(text: str) -> None:
    assert character_normaliser(ENGLISH)(text) == text
