"""A guard against loops: the translation repeats no phrase in a row more often than the source repeats any phrase.

A phrase has one to four words, which are compared without case and punctuation. Units that would complete one
repetition too many are banned before the most likely unit is chosen, so no word is ever taken back.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from whilst.data.sentences import PUNCTUATION, normalise
from whilst.data.vocabulary import SPECIALS, UNK, Language

LONGEST = 4  # words of a phrase
# Words that may be doubled in correct text, such as Vietnamese "vân vân" (and so on) or German "die die".
_DOUBLED = """
    luôn vân dần mãi từ tinh song chằm khăng chuồn thường xa kền chăm đều cào die der das sie that had nous vous
"""
DOUBLED = frozenset(_DOUBLED.split())


def count_in_row(words: Sequence[str], length: int) -> int:
    """How often the phrase of the last `length` words stands in a row at the end: 1 if it is not repeated."""
    count, start = 1, len(words) - 2 * length
    while start >= 0 and words[start : start + length] == words[len(words) - length :]:
        count, start = count + 1, start - length
    return count


def most_in_row(words: Sequence[str]) -> int:
    """The largest count in a row of any phrase; a word of DOUBLED that stands twice is not counted."""
    words, most = [normalise(word) for word in words], 1
    for end in range(1, len(words) + 1):
        for length in range(1, LONGEST + 1):
            count = count_in_row(words[:end], length)
            if length > 1 or count > 2 or words[end - 1] not in DOUBLED:
                most = max(most, count)
    return most


class CompletingUnits:
    """The units of a language by the normalised word that they complete."""

    def __init__(self, language: Language) -> None:
        segmenter = language.segmenter
        self.whole = defaultdict[str, list[int]](list)  # word -> units that are the word, if no word has begun
        self.first = defaultdict[str, list[int]](list)  # word -> the units of `whole` that end the word before
        self.rest = defaultdict[str, list[int]](list)  # end of a word -> units that add it to a word that has begun
        for id, unit in enumerate(language.units[len(SPECIALS) :], start=len(SPECIALS)):
            if not segmenter.first_mark and not segmenter.ends_word(unit):
                continue
            text = segmenter.text(unit)
            self.whole[normalise(text)].append(id)
            if segmenter.starts_word(unit):
                self.first[normalise(text)].append(id)
            else:
                folded = text.casefold()
                # Punctuation may end any word, or continue a word that is punctuation.
                for key in {folded.rstrip(PUNCTUATION), folded.rstrip(PUNCTUATION) or folded}:
                    self.rest[key].append(id)


class RepeatGuard:
    """Finds the units that would repeat a phrase too often in one sentence."""

    def __init__(self, units: CompletingUnits) -> None:
        self._units = units
        self._source: list[str] = []
        self._target: list[str] = []
        self._most = 1  # largest count in a row of any phrase of the source so far

    def read(self, word: str) -> None:
        self._source.append(normalise(word))
        counts = (count_in_row(self._source, length) for length in range(1, LONGEST + 1))
        self._most = max(self._most, *counts)

    def write(self, words: Sequence[str]) -> None:
        """Add whole target words."""
        self._target += map(normalise, words)

    def banned(self, begun: str, unknown: str = "") -> list[int]:
        """The units that must not be written next.

        `begun`: the written part of an unfinished word; `unknown`: the word that the unknown unit would write.
        """
        next_words = list(self._completions([*self._target, normalise(begun)] if begun else self._target))
        units = self._units.first if begun else self._units.whole
        ids = [id for word in next_words for id in units.get(word, ())]
        if unknown and normalise(unknown) in next_words:
            ids.append(UNK)
        if not begun:
            return ids
        for word in self._completions(self._target):
            folded = begun.casefold()
            stem = folded if word.startswith(folded) else folded.lstrip(PUNCTUATION)
            if stem and word.startswith(stem):
                ids += self._units.rest.get(word[len(stem) :], ())
            elif not stem and word.strip(PUNCTUATION):
                ids += set(self._units.whole.get(word, ())).difference(self._units.first.get(word, ()))
        return ids

    def would_repeat(self, word: str) -> bool:
        """Whether this word would repeat a phrase too often."""
        return normalise(word) in self._completions(self._target)

    def _completions(self, words: list[str]) -> Iterator[str]:
        """The words that, after these, would repeat a phrase too often."""
        for length in range(1, min(LONGEST, len(words)) + 1):
            word = words[-length]
            most = max(self._most, 2) if length == 1 and word in DOUBLED else self._most
            if count_in_row([*words[-length * (most + 1) :], word], length) > most:
                yield word
