"""Words that end a sentence, and words that only look like it."""

import pytest

from whilst.data.sentences import ends_sentence, is_clause_end, never_ends

ENDS = '. ? ! word. word? word?! “word.” word.) 1990. 3.5. No. \u3002 \u597d\u3002 "yes!" ?"'
NOT = 'word , word, Mr. (Dr. J. U.S. e.g. 3. ... … wait... " ) .5 a.m. no:'


@pytest.mark.parametrize("word", ENDS.split())
def test_ends_of_sentences(word: str) -> None:
    assert ends_sentence(word)
    assert not never_ends(word)


@pytest.mark.parametrize("word", NOT.split())
def test_words_that_do_not_end_a_sentence(word: str) -> None:
    assert not ends_sentence(word)


def test_clause_ends() -> None:
    assert list(filter(is_clause_end, ["word,", ";", "—", "so", ".", "“so,”"])) == ["word,", ";", "—", "“so,”"]
