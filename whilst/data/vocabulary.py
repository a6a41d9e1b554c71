"""Convert words to unit ids (`Language`, a segmenter with a vocabulary) and units to words (`WordBuffer`)."""

import functools
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.files import read_json, write_json
from whilst.data.segment import SEGMENTERS, Segmenter

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
_CACHED_WORDS = 1 << 18  # bounds the memory of servers that run for long


class Language:
    """The segmenter and the units of one side of a translation. The id of a unit is its index.

    If the name of a special unit, such as </s>, occurs in a text, it is an unknown unit.
    """

    def __init__(self, name: str, segmenter: Segmenter, units: Iterable[str]) -> None:
        self.name = name
        self.segmenter = segmenter
        self.units: tuple[str, ...] = (*SPECIALS, *units)
        self._ids = {unit: id for id, unit in enumerate(self.units) if id >= len(SPECIALS)}
        if len(self._ids) + len(SPECIALS) != len(self.units) or not self._ids.keys().isdisjoint(SPECIALS):
            raise ValueError("units must be distinct and none may be named like a special")
        self._word_ids = functools.lru_cache(maxsize=_CACHED_WORDS)(self._encode_word)

    @classmethod
    def count(cls, name: str, segmenter: Segmenter, words: Mapping[str, int], minimum: int) -> "Language":
        """A language with the units that occur at least `minimum` times in `words`, which maps words to counts.

        The most frequent unit comes first; ties are ordered by spelling.
        """
        counts: Counter[str] = Counter()
        for word, times in words.items():
            for unit in segmenter.split(word):
                counts[unit] += times
        kept = (unit for unit, times in counts.items() if times >= minimum and unit not in SPECIALS)
        return cls(name, segmenter, sorted(kept, key=lambda unit: (-counts[unit], unit)))

    def __len__(self) -> int:
        return len(self.units)

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(self._ids.get(unit, UNK) for unit in self.segmenter.split(word))

    def encode(self, words: Iterable[str]) -> list[int]:
        """The unit ids of these words, without eos."""
        return [id for word in words for id in self._word_ids(word)]

    def characters(self) -> frozenset[str]:
        """All characters in the units."""
        return frozenset("".join(self.units[len(SPECIALS) :]))

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The whole words of these units, without pad, bos and eos."""
        buffer = WordBuffer(self)
        return [word for id in ids for word in buffer.feed(id)] + buffer.flush()

    def whole_words(self, ids: Iterable[int]) -> list[str]:
        """The words of these units that no further unit can change."""
        buffer = WordBuffer(self)
        return [word for id in ids for word in buffer.feed(id)]

    def save(self, folder: Path, side: str) -> None:
        """Write `side.json` and, for sub-words, the segmentation model `side.split`."""
        self.segmenter.save(folder / f"{side}.split")
        units = self.units[len(SPECIALS) :]
        write_json(folder / f"{side}.json", {"name": self.name, "segmenter": self.segmenter.kind, "units": units})

    @classmethod
    def load(cls, folder: Path, side: str) -> "Language":
        table = read_json(folder / f"{side}.json")
        try:
            segmenter = SEGMENTERS[table["segmenter"]].load(folder / f"{side}.split")
            return cls(table["name"], segmenter, table["units"])
        except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
            reason = repr(error).replace("\n", " ")
            raise UserError(f"{folder}: the {side} vocabulary is damaged ({reason})") from None


class WordBuffer:
    """Joins the units of one sentence into words, and returns each word as soon as it is complete.

    With `copy`, an unknown unit becomes the first unknown source word (`add_unknown`) that was not copied yet, or
    nothing: names are similar in most languages, and their order seldom changes.
    """

    def __init__(self, language: Language, copy: bool = False) -> None:
        self._units = language.units
        self._segmenter = language.segmenter
        self._copy = copy
        self._unknown_words: deque[str] = deque()
        self.begun = ""  # the written part of an unfinished word

    def add_unknown(self, word: str) -> None:
        self._unknown_words.append(word)

    def feed(self, id: int) -> list[str]:
        """The words that this unit completes: none, one or two."""
        if id in (PAD, BOS, EOS):
            return []
        if id == UNK:  # always a word of its own
            words = [*self.flush(), *filter(None, [self.unknown])]
            if self._unknown_words:
                self._unknown_words.popleft()
            return words
        unit = self._units[id]
        words = self.flush() if self._segmenter.starts_word(unit) else []
        self.begun += self._segmenter.text(unit)
        if self._segmenter.ends_word(unit):
            words += self.flush()
        return words

    @property
    def unknown(self) -> str:
        """The word that an unknown unit would write now, or ""."""
        if not self._copy:
            return SPECIALS[UNK]
        return self._unknown_words[0] if self._unknown_words else ""

    def flush(self) -> list[str]:
        """The unfinished word, if any; the end of the sentence completes it."""
        words = [self.begun] if self.begun else []
        self.begun = ""
        return words
