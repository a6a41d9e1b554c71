"""Words as a cased model knows them, where the input has no case: recognisers write lower case, captions CAPITALS.

Which way of writing a word is usual, the vocabulary tells: it takes the fewest units. A sentence that begins with a
capital and goes on in small letters has its case, and stays as it is.
"""

from collections.abc import Callable
from functools import lru_cache

from whilst.data.vocabulary import UNK, Language

RARER = 8  # so many times further down in the vocabulary: a slip, such as "i" for "I"

Casing = Callable[[str, bool, bool], str]


def shouted(word: str) -> bool:
    return len(word) > 1 and word.isupper()


def caseless(first: str) -> bool:
    """Whether a sentence that begins with this word is without case."""
    return first[:1].islower() or shouted(first)


def casing(language: Language) -> Casing:
    """(word, whether it is a sentence's first, whether that is caseless) -> the word as it is usual."""

    def cost(word: str) -> tuple[bool, int, int]:
        ids = language.encode([word])[0]
        return UNK in ids, len(ids), ids[0] if len(ids) == 1 else 0

    def better(one: str, other: str) -> bool:
        """Whether one way of writing is so much more usual than another."""
        (unknown, count, place), (other_unknown, other_count, other_place) = cost(one), cost(other)
        rarer = count == other_count == 1 and other_place > RARER * place
        return not unknown and (other_unknown or count < other_count or rarer)

    @lru_cache(maxsize=1 << 14)
    def recased(word: str, first: bool, loose: bool) -> str:
        lower = word.lower()
        capital = lower[:1].upper() + lower[1:]
        if loose and shouted(word) and (better(lower, word) or better(capital, word)):
            word = lower  # abbreviations that the vocabulary has stay as they are
        if not loose or word != lower:
            return word
        known = first and not cost(capital)[0]
        return capital if known or better(capital, word) else word

    return recased
