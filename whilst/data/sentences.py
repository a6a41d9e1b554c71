"""Where sentences end in a stream of words, as far as one can tell without the next one. Knows words only."""

# ruff: noqa: RUF001  (punctuation that looks like other punctuation is meant)

_CLOSING = "\"'”’»)]}"
_OPENING = "\"'“‘«([{„"
_ENDS = "!", "?", "。", "！", "？", "؟", "।"
_PAUSES = ",", ";", ":", "…", "...", "–", "—", "，", "；", "、"
_ABBREVIATIONS = """
    mr mrs ms dr prof st mt vs jr sr etc fig nos vol pp ca cf al inc ltd co corp gen col capt sgt rev hon approx
    dept jan feb mar apr jun jul aug sep sept oct nov dec bzw usw nr str ggf tp ths gs
"""
_KNOWN = frozenset(_ABBREVIATIONS.split())


def ends_sentence(word: str) -> bool:
    """Whether a sentence ends with this word. To wait for the next one would cost a word of delay.

    In doubt (Mr. J. 3. e.g. …) it goes on: two sentences in one do less harm than one that is cut.
    """
    word = word.rstrip(_CLOSING)
    if not word.endswith("."):
        return word.endswith(_ENDS)
    stem = word[:-1].lstrip(_OPENING)
    if not stem:
        return True
    if stem.isdecimal():
        return len(stem) > 2  # a year, not the 3rd of something
    dotted = stem.endswith(".") or ("." in stem and any(letter.isalpha() for letter in stem))
    return not (dotted or len(stem) == 1 or stem.lower() in _KNOWN)


def pauses(word: str) -> bool:
    """Whether a long sentence may be cut after this word."""
    return word.rstrip(_CLOSING).endswith(_PAUSES)


def never(word: str) -> bool:  # noqa: ARG001
    """For text whose sentences end where its lines do."""
    return False
