"""Truecasing for models of cased text, when the input has no case: recognisers write lower case, captions capitals.

The usual form of a word is the one that takes the fewest units of the vocabulary. A sentence that begins with a
capital and continues in lower case is left as it is.
"""

from collections.abc import Callable
from functools import lru_cache

from whilst.data.vocabulary import UNK, Language

RARER = 8  # a unit this many times further down in the vocabulary is a misspelling, such as "i" for "I"

Truecaser = Callable[[str, bool, bool], str]


def is_all_caps(word: str) -> bool:
    return len(word) > 1 and word.isupper()


def lacks_case(first: str) -> bool:
    """Whether a sentence that begins with this word is without case."""
    return first[:1].islower() or is_all_caps(first)


def truecaser(language: Language) -> Truecaser:
    """A function of (word, whether it is first, whether the sentence lacks case) that returns the usual form."""

    def cost(word: str) -> tuple[bool, int, int]:
        ids = language.encode([word])[0]
        return UNK in ids, len(ids), ids[0] if len(ids) == 1 else 0

    def better(one: str, other: str) -> bool:
        """Whether the first form is clearly more usual."""
        (unknown, count, rank), (other_unknown, other_count, other_rank) = cost(one), cost(other)
        rarer = count == other_count == 1 and other_rank > RARER * rank
        return not unknown and (other_unknown or count < other_count or rarer)

    @lru_cache(maxsize=1 << 14)
    def recase(word: str, first: bool, uncased: bool) -> str:
        lower = word.lower()
        capital = lower[:1].upper() + lower[1:]
        if uncased and is_all_caps(word) and (better(lower, word) or better(capital, word)):
            word = lower  # abbreviations in the vocabulary stay as they are
        if not uncased or word != lower:
            return word
        known = first and not cost(capital)[0]
        return capital if known or better(capital, word) else word

    return recase
