"""Adapt input to a model's vocabulary: replace characters that it lacks, and restore the case of words.

A character that the vocabulary lacks, such as a curly quote, an accent or an emoji, would become an unknown unit,
for which small models invent text. Characters in the vocabulary are never changed.

Speech recognisers write lower case, and captions are in capitals. The usual form of a word is the one with the
fewest units. A sentence that begins with a capital and continues in lower case is not changed.
"""

import unicodedata
from collections.abc import Callable
from functools import lru_cache

from whilst.data.vocabulary import UNK, Language

# Written as code points, since these characters look alike.
REPLACEMENTS = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2039\u203a\u0060\u00b4", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    "\u3002": ".",
    **dict(zip("ĐđØøŁłßÆæŒœ", ("D", "d", "O", "o", "L", "l", "ss", "Ae", "ae", "Oe", "oe"), strict=True)),
}
# Unicode categories that are dropped: control, format and unassigned characters, separate accents, symbols.
DROPPED = {"Cc", "Cf", "Cn", "Co", "Cs", "Me", "Mn", "Sk", "So"}
RARER = 8  # a unit this many times further down in the vocabulary counts as a misspelling, such as "i" for "I"

Truecaser = Callable[[str, bool, bool], str]


def character_normaliser(known: frozenset[str]) -> Callable[[str], str]:
    """The function that normalises text for a model with the characters `known`.

    Of other characters, quotes and dashes become ASCII, accents are removed, and symbols are dropped. Other scripts
    stay.
    """

    @lru_cache(maxsize=1 << 14)
    def replace(character: str) -> str:
        if character in known or character.isspace():
            return character
        parts = unicodedata.normalize("NFKD", character)
        without_accents = "".join(part for part in parts if not unicodedata.combining(part))
        for plain in (REPLACEMENTS.get(character, ""), without_accents):
            if plain and known.issuperset(plain):
                return plain
        return "" if unicodedata.category(character) in DROPPED else character

    return lambda text: "".join(map(replace, unicodedata.normalize("NFC", text)))


def is_all_caps(word: str) -> bool:
    return len(word) > 1 and word.isupper()


def lacks_case(first: str) -> bool:
    """Whether a sentence with this first word has no reliable case."""
    return first[:1].islower() or is_all_caps(first)


def truecaser(language: Language) -> Truecaser:
    """The function (word, whether it is the first, whether the sentence lacks case) -> usual form of the word."""

    def cost(word: str) -> tuple[bool, int, int]:
        """Whether a unit of the word is unknown, number of units, rank of the unit if there is only one."""
        ids = language.encode([word])
        return UNK in ids, len(ids), ids[0] if len(ids) == 1 else 0

    def better(form: str, other: str) -> bool:
        """Whether the first form is clearly more usual."""
        (unknown, count, rank), (other_unknown, other_count, other_rank) = cost(form), cost(other)
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
