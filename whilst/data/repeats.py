"""A guard against loops: no phrase stands in a row more often in the translation than any does in the source.

A phrase has one to four words, compared without case and punctuation. Units that would complete a further
repetition are banned before the most likely one is chosen, so no word is ever taken back. Knows no models.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from whilst.data.sentences import PUNCTUATION, normalise
from whilst.data.vocabulary import SPECIALS, UNK, Language

LONGEST = 4  # words of a phrase
# Words that stand twice by the rules of a language, such as Vietnamese "vân vân" (and so on), German "die die".
_DOUBLED = """
    luôn vân dần mãi từ tinh song chằm khăng chuồn thường xa kền chăm đều cào die der das sie that had nous vous
"""
DOUBLED = frozenset(_DOUBLED.split())


def count_in_row(words: Sequence[str], length: int) -> int:
    """How often the last `length` words stand in a row at the end."""
    count, start = 1, len(words) - 2 * length
    while start >= 0 and words[start : start + length] == words[len(words) - length :]:
        count, start = count + 1, start - length
    return count


def most_in_row(words: Sequence[str]) -> int:
    """How often any phrase stands in a row at most, but for words that stand twice."""
    words, most = [normalise(word) for word in words], 1
    for end in range(1, len(words) + 1):
        for length in range(1, LONGEST + 1):
            count = count_in_row(words[:end], length)
            if length > 1 or count > 2 or words[end - 1] not in DOUBLED:
                most = max(most, count)
    return most


class CompletingUnits:
    """The units of a language by the word that they complete, without case and punctuation."""

    def __init__(self, language: Language) -> None:
        segmenter = language.segmenter
        self.whole = defaultdict[str, list[int]](list)  # units that are a word, where no word has begun
        self.first = defaultdict[str, list[int]](list)  # those that also end the word before
        self.rest = defaultdict[str, list[int]](list)  # by what they add to a word that has begun
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
    """Of one sentence: which units would repeat too much."""

    def __init__(self, units: CompletingUnits) -> None:
        self._units = units
        self._source: list[str] = []
        self._target: list[str] = []
        self._most = 1  # repetitions in a row of any phrase of the source so far

    def read(self, word: str) -> None:
        self._source.append(normalise(word))
        counts = (count_in_row(self._source, length) for length in range(1, LONGEST + 1))
        self._most = max(self._most, *counts)

    def write(self, words: Sequence[str]) -> None:
        """Whole target words."""
        self._target += map(normalise, words)

    def banned(self, begun: str, unknown: str = "") -> list[int]:
        """The units that must not be written next.

        `begun`: the part of a word that has been written; `unknown`: what the unknown unit would write.
        """
        following = list(self._completions([*self._target, normalise(begun)] if begun else self._target))
        units = self._units.first if begun else self._units.whole
        ids = [id for word in following for id in units.get(word, ())]
        if unknown and normalise(unknown) in following:
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
        """The words with which these would repeat a phrase too often."""
        for length in range(1, min(LONGEST, len(words)) + 1):
            word = words[-length]
            most = max(self._most, 2) if length == 1 and word in DOUBLED else self._most
            if count_in_row([*words[-length * (most + 1) :], word], length) > most:
                yield word
