"""Which words end a sentence, and which only look like it."""

import pytest

from whilst.data.sentences import ends_sentence, is_clause_end, never_ends

ENDS = '. ? ! word. word? word?! “word.” word.) 1990. 3.5. No. \u3002 \u597d\u3002 "yes!" ?"'
NOT = 'word , word, Mr. (Dr. J. U.S. e.g. 3. ... … wait... " ) .5 a.m. no:'


@pytest.mark.parametrize("word", ENDS.split())
def test_ends_of_sentences(word: str) -> None:
    assert ends_sentence(word)
    assert not never_ends(word)


@pytest.mark.parametrize("word", NOT.split())
def test_what_looks_like_an_end(word: str) -> None:
    assert not ends_sentence(word)


def test_pauses() -> None:
    assert list(filter(is_clause_end, ["word,", ";", "—", "so", ".", "“so,”"])) == ["word,", ";", "—", "“so,”"]
