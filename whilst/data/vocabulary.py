"""Units and their numbers; whole words out of a stream of units. How a word is split stands in segment.py.

Knows words; nothing of files of text, batches or models.
"""

import functools
import itertools
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.files import read_json, write_json
from whilst.data.segment import SEGMENTERS, BPESegmenter, PieceSegmenter, Segmenter, WordSegmenter

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "BPESegmenter",
    "Language",
    "PieceSegmenter",
    "Segmenter",
    "Vocabulary",
    "WordBuffer",
    "WordSegmenter",
]

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
_CACHED_WORDS = 1 << 18  # words are few and repeat; the bound is for servers that never stop


class Vocabulary:
    """Units and their numbers. A special's name met in text is no special: its number is UNK."""

    def __init__(self, units: Iterable[str]) -> None:
        self.units: tuple[str, ...] = (*SPECIALS, *units)
        self._ids = {unit: number for number, unit in enumerate(self.units) if number >= len(SPECIALS)}
        if len(self._ids) + len(SPECIALS) != len(self.units) or not self._ids.keys().isdisjoint(SPECIALS):
            raise ValueError("units must be distinct and none may be named like a special")

    @classmethod
    def count(cls, units: Mapping[str, int], minimum: int = 1) -> "Vocabulary":
        """Units seen at least `minimum` times, the frequent first, ties by spelling."""
        kept = (unit for unit, times in units.items() if times >= minimum and unit not in SPECIALS)
        return cls(sorted(kept, key=lambda unit: (-units[unit], unit)))

    def __len__(self) -> int:
        return len(self.units)

    def id(self, unit: str) -> int:
        return self._ids.get(unit, UNK)


class Language:
    """One side of a translation: how its words are split, and the numbers of the units."""

    def __init__(self, name: str, segmenter: Segmenter, vocabulary: Vocabulary) -> None:
        self.name = name
        self.segmenter = segmenter
        self.vocabulary = vocabulary
        self._word_ids = functools.lru_cache(maxsize=_CACHED_WORDS)(self._encode_word)

    @classmethod
    def count(cls, name: str, segmenter: Segmenter, words: Mapping[str, int], minimum: int) -> "Language":
        """A language whose vocabulary holds the units that these words (with their counts) consist of."""
        units: Counter[str] = Counter()
        for word, times in words.items():
            for unit in segmenter.split(word):
                units[unit] += times
        return cls(name, segmenter, Vocabulary.count(units, minimum))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(map(self.vocabulary.id, self.segmenter.split(word)))

    def encode(self, words: Sequence[str]) -> tuple[list[int], list[int]]:
        """The ids of all units, without eos, and for each the 1-based number of its word."""
        ids: list[int] = []
        numbers: list[int] = []
        for number, word in enumerate(words, start=1):
            units = self._word_ids(word)
            ids.extend(units)
            numbers.extend([number] * len(units))
        return ids, numbers

    def characters(self) -> frozenset[str]:
        """All that its units are written with."""
        return frozenset("".join(self.vocabulary.units[len(SPECIALS) :]))

    def unknown_words(self, words: Sequence[str]) -> list[tuple[int, str]]:
        """The words that no units stand for, mostly names, each with the number of units up to its end."""
        ends = itertools.accumulate(len(self._word_ids(word)) for word in words)
        return [(end, word) for end, word in zip(ends, words, strict=True) if UNK in self._word_ids(word)]

    def word_buffer(self, copy: bool = False) -> "WordBuffer":
        return WordBuffer(self, copy)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The whole words of these units; pad, bos and eos are passed over."""
        buffer = self.word_buffer()
        return [word for id in ids for word in buffer.feed(id)] + buffer.flush()

    def save(self, folder: Path, side: str) -> None:
        """Write `side.json` and, for sub-words, the splitting model `side.split`."""
        self.segmenter.save(folder / f"{side}.split")
        write_json(
            folder / f"{side}.json",
            {
                "name": self.name,
                "segmenter": self.segmenter.kind,
                "units": self.vocabulary.units[len(SPECIALS) :],
            },
        )

    @classmethod
    def load(cls, folder: Path, side: str) -> "Language":
        table = read_json(folder / f"{side}.json")
        try:
            segmenter = SEGMENTERS[table["segmenter"]].load(folder / f"{side}.split")
            return cls(table["name"], segmenter, Vocabulary(table["units"]))
        except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
            reason = repr(error).replace("\n", " ")
            raise UserError(f"{folder}: the {side} vocabulary is damaged ({reason})") from None


class WordBuffer:
    """Collects one sentence's units and hands out words as soon as they are whole.

    With `copy`, an unknown word is the first name of the source (`Language.names`) that has been heard and not been
    used yet; without one nothing is written. Names are alike in most languages, and seldom change places.
    """

    def __init__(self, language: Language, copy: bool = False) -> None:
        self._units = language.vocabulary.units
        self._segmenter = language.segmenter
        self._copy = copy
        self._names: deque[str] = deque()
        self._pending = ""

    def add_unknown(self, name: str) -> None:
        self._names.append(name)

    def feed(self, id: int) -> list[str]:
        """The words that this unit makes whole: none, one or two."""
        if id in (PAD, BOS, EOS):
            return []
        if id == UNK:  # nothing tells what it would join with, so it is a word of its own
            return [*self.flush(), *self._unknown()]
        unit = self._units[id]
        words = self.flush() if self._segmenter.starts_word(unit) else []
        self._pending += self._segmenter.text(unit)
        if self._segmenter.ends_word(unit):
            words += self.flush()
        return words

    def _unknown(self) -> list[str]:
        if not self._copy:
            return [SPECIALS[UNK]]
        return [self._names.popleft()] if self._names else []

    def flush(self) -> list[str]:
        """The unfinished word, if there is one: at the end of the sentence it counts as whole."""
        words = [self._pending] if self._pending else []
        self._pending = ""
        return words
