"""Letters and signs that a model has never met, written as those that it knows. Knows characters only.

People paste curly quotes, foreign names and emoji. A model that knows none of them sees an unknown unit there, and
small models then say something from nowhere. Characters that it knows are never changed.
"""

import unicodedata
from collections.abc import Callable
from functools import lru_cache

# By their numbers, as they look too much alike.
PLAIN = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2039\u203a\u0060\u00b4", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    "\u3002": ".",
    **dict(zip("ĐđØøŁłßÆæŒœ", ("D", "d", "O", "o", "L", "l", "ss", "Ae", "ae", "Oe", "oe"), strict=True)),
}
# Categories of what is no writing: control and format characters, loose accents, pictures, what is not assigned.
UNWRITTEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Me", "Mn", "Sk", "So"}


def familiar(known: frozenset[str]) -> Callable[[str], str]:
    """The function that does so for a model of these characters.

    Quotes and dashes become plain, accents go, what is no writing is left out. Other writing stays as it is.
    """

    @lru_cache(maxsize=1 << 14)
    def character(found: str) -> str:
        if found in known or found.isspace():
            return found
        bare = "".join(part for part in unicodedata.normalize("NFKD", found) if not unicodedata.combining(part))
        for plain in (PLAIN.get(found, ""), bare):
            if plain and known.issuperset(plain):
                return plain
        return "" if unicodedata.category(found) in UNWRITTEN else found

    return lambda text: "".join(map(character, unicodedata.normalize("NFC", text)))
