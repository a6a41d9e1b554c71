"""Replace characters that a model's vocabulary lacks, such as curly quotes, accents and emoji.

Each would be an unknown unit, for which small models invent text. Characters in the vocabulary are never changed.
"""

import unicodedata
from collections.abc import Callable
from functools import lru_cache

# As code points, since they look too much alike.
REPLACEMENTS = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2039\u203a\u0060\u00b4", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    "\u3002": ".",
    **dict(zip("ĐđØøŁłßÆæŒœ", ("D", "d", "O", "o", "L", "l", "ss", "Ae", "ae", "Oe", "oe"), strict=True)),
}
# Unicode categories that are not writing: control, format and unassigned characters, loose accents, symbols.
DROPPED = {"Cc", "Cf", "Cn", "Co", "Cs", "Me", "Mn", "Sk", "So"}


def character_normaliser(known: frozenset[str]) -> Callable[[str], str]:
    """The normalising function for a model that knows these characters.

    Quotes and dashes become plain, accents are removed, and what is not writing is dropped. Other scripts stay.
    """

    @lru_cache(maxsize=1 << 14)
    def replace(found: str) -> str:
        if found in known or found.isspace():
            return found
        bare = "".join(part for part in unicodedata.normalize("NFKD", found) if not unicodedata.combining(part))
        for plain in (REPLACEMENTS.get(found, ""), bare):
            if plain and known.issuperset(plain):
                return plain
        return "" if unicodedata.category(found) in DROPPED else found

    return lambda text: "".join(map(replace, unicodedata.normalize("NFC", text)))
