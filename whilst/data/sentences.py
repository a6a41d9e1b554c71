"""Normalise words, and find sentence boundaries in a stream of words without looking at the next word."""

# ruff: noqa: RUF001  (typographic punctuation is intended)

CLOSING = "\"'”’»)]}"
OPENING = "\"'“‘«([{„"
STOPS = ".,;:!?…"
PUNCTUATION = f"{OPENING}{CLOSING}{STOPS}-–—/"
_ENDS = "!", "?", "。", "！", "？", "؟", "।"
_PAUSES = ",", ";", ":", "…", "...", "–", "—", "，", "；", "、"
_ABBREVIATIONS = """
    mr mrs ms dr prof st mt vs jr sr etc fig nos vol pp ca cf al inc ltd co corp gen col capt sgt rev hon approx
    dept jan feb mar apr jun jul aug sep sept oct nov dec bzw usw nr str ggf tp ths gs
"""
_KNOWN = frozenset(_ABBREVIATIONS.split())


def normalise(word: str) -> str:
    """The word case-folded and without punctuation around it, unless it is only punctuation."""
    return word.strip(PUNCTUATION).casefold() or word


def ends_sentence(word: str) -> bool:
    """Whether a sentence ends with this word. Waiting for the next word would cost a word of latency.

    In ambiguous cases (Mr. J. 3. e.g. …) the sentence goes on: joining two does less harm than cutting one.
    """
    word = word.rstrip(CLOSING)
    if not word.endswith("."):
        return word.endswith(_ENDS)
    stem = word[:-1].lstrip(OPENING)
    if not stem:
        return True
    if stem.isdecimal():
        return len(stem) > 2  # a year, not an ordinal
    dotted = stem.endswith(".") or ("." in stem and any(letter.isalpha() for letter in stem))
    return not (dotted or len(stem) == 1 or stem.lower() in _KNOWN)


def is_clause_end(word: str) -> bool:
    """Whether a long sentence may be cut after this word."""
    return word.rstrip(CLOSING).endswith(_PAUSES)


def never_ends(word: str) -> bool:  # noqa: ARG001
    """Replaces `ends_sentence` for text with one sentence per line."""
    return False
