# ruff: noqa: RUF001
"""What a model has never met is written with what it knows, and nothing else is changed."""

import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.data.characters import character_normaliser

ENGLISH = frozenset(string.ascii_letters + string.digits + string.punctuation)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("“Don’t”, she said…", '"Don\'t", she said...'),
        ("Antonín Dvořák and Đặng", "Antonin Dvorak and Dang"),
        ("cafe\u0301", "cafe"),
        ("ﬁve ½ Ｈello！", "five ½ Hello!"),  # a fraction has a slash of its own, which is not known either
        ("I love\u200b you 👍🏽 \u2764\ufe0f", "I love you  "),
        ("co\u00adoperate\x07", "cooperate"),
        ("привет 你好", "привет 你好"),
    ],
)
def test_english(text: str, plain: str) -> None:
    assert character_normaliser(ENGLISH)(text) == plain


def test_what_is_known_stays() -> None:
    assert character_normaliser(ENGLISH | set("“”é👍"))("“é” 👍 ‘é’") == "“é” 👍 'é'"


@given(text=st.text(), known=st.frozensets(st.characters()))
def test_nothing_that_is_unknown_comes_in(text: str, known: frozenset[str]) -> None:
    assert set(character_normaliser(known)(text)) <= set(unicodedata.normalize("NFC", text)) | known


@given(text=st.text(alphabet=sorted(ENGLISH | {" "})))
def test_plain_text_stays(text: str) -> None:
    assert character_normaliser(ENGLISH)(text) == text
