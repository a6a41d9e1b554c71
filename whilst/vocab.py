"""Words to units and back: vocabularies, three ways to split words, whole words out of a stream of units.

Every word is split by itself, never the sentence as a whole: a live source arrives word by word and must
get the units it had in training. Knows words; nothing of files of text, batches or models.
"""

import abc
import functools
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from whilst.errors import UserError
from whilst.files import read_json, write_json, writing

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


class Segmenter(abc.ABC):
    """How a word becomes units, and how units show where words begin or end."""

    kind: str

    @abc.abstractmethod
    def split(self, word: str) -> list[str]:
        """The units of one word without white space; at least one."""

    @abc.abstractmethod
    def starts_word(self, unit: str) -> bool:
        """Whether the unit shows that what came before it was a whole word."""

    @abc.abstractmethod
    def ends_word(self, unit: str) -> bool:
        """Whether a word is whole with this unit."""

    @abc.abstractmethod
    def text(self, unit: str) -> str:
        """The unit's letters, without the mark of a word's border."""

    @abc.abstractmethod
    def save(self, path: Path) -> None:
        """Write what `load` needs to `path`; nothing where nothing is needed."""

    @classmethod
    @abc.abstractmethod
    def load(cls, path: Path) -> "Segmenter":
        """Read what `save` wrote."""


class WordSegmenter(Segmenter):
    """A word is a unit."""

    kind = "word"

    def split(self, word: str) -> list[str]:
        return [word]

    def starts_word(self, unit: str) -> bool:  # noqa: ARG002
        return False

    def ends_word(self, unit: str) -> bool:  # noqa: ARG002
        return True

    def text(self, unit: str) -> str:
        return unit

    def save(self, path: Path) -> None:
        pass

    @classmethod
    def load(cls, path: Path) -> "WordSegmenter":  # noqa: ARG003
        return cls()


class BPESegmenter(Segmenter):
    """Byte pair encoding on characters; the last unit of a word carries `</w>`."""

    kind = "bpe"
    END = "</w>"

    def __init__(self, merges: Iterable[tuple[str, str]]) -> None:
        self.merges = tuple(dict.fromkeys(merges))
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}

    @classmethod
    def learn(cls, lines: Sequence[str], size: int) -> "BPESegmenter":
        """Learn at most `size` merges of pairs that are seen at least twice."""
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE(end_of_word_suffix=cls.END))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        letters = len(set[str]().union(*lines))
        trainer = trainers.BpeTrainer(
            # the library counts letters, with and without the mark, into the size; we count merges only
            vocab_size=size + 2 * letters,
            min_frequency=2,
            end_of_word_suffix=cls.END,
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        return cls((left, right) for left, right in merges[:size])

    @classmethod
    def from_codes(cls, path: Path) -> "BPESegmenter":
        """Import the codes of subword-nmt, version 0.2."""
        if not path.is_file():
            raise UserError(
                f"{path}: no such file; data.codes names subword-nmt codes, relative to data.folder"
            )
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        if not lines[0].startswith("#version: 0.2"):
            raise UserError(
                f"{path}:1: not subword-nmt codes of version 0.2; learn them anew or leave data.codes empty"
            )
        merges = []
        for number, line in enumerate(lines[1:], start=2):
            pair = line.strip("\r ").split(" ")
            if len(pair) != 2:
                raise UserError(f"{path}:{number}: a merge is two units with a space between, not {line!r}")
            merges.append((pair[0], pair[1]))
        return cls(merges)

    def split(self, word: str) -> list[str]:
        """Apply the earliest learnt merge everywhere from the left, again and again."""
        units = [*word[:-1], word[-1] + self.END]
        last = len(self._ranks)
        while len(units) > 1:
            pairs = list(itertools.pairwise(units))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, last))
            if best not in self._ranks:
                break
            merged, place = [], 0
            while place < len(units):
                if place < len(pairs) and pairs[place] == best:
                    merged.append(best[0] + best[1])
                    place += 2
                else:
                    merged.append(units[place])
                    place += 1
            units = merged
        return units

    def starts_word(self, unit: str) -> bool:  # noqa: ARG002
        return False

    def ends_word(self, unit: str) -> bool:
        return unit.endswith(self.END)

    def text(self, unit: str) -> str:
        return unit.removesuffix(self.END)

    def save(self, path: Path) -> None:
        write_json(path, self.merges)

    @classmethod
    def load(cls, path: Path) -> "BPESegmenter":
        return cls((left, right) for left, right in read_json(path))


class PieceSegmenter(Segmenter):
    """SentencePiece's unigram model without any normalisation; a word's first unit carries `▁`."""

    kind = "sentencepiece"
    START = "\u2581"

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        self._model = model
        self._processor = SentencePieceProcessor(model_proto=model)

    @classmethod
    def learn(cls, lines: Sequence[str], size: int) -> "PieceSegmenter":
        """Learn about `size` pieces; fewer where the text does not offer so many."""
        from sentencepiece import SentencePieceTrainer

        model = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=(line.replace(cls.START, "_") for line in lines),
                model_writer=model,
                vocab_size=size,
                hard_vocab_limit=False,
                normalization_rule_name="identity",
                character_coverage=1.0,
                max_sentence_length=1 << 20,
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).splitlines()[-1]
            raise UserError(
                f"data.size: SentencePiece cannot learn {size} pieces from this text ({reason})"
            ) from None
        return cls(model.getvalue())

    def split(self, word: str) -> list[str]:
        # the mark itself in a text would look like a word's start
        return list(self._processor.encode(word.replace(self.START, "_"), out_type=str))

    def starts_word(self, unit: str) -> bool:
        return unit.startswith(self.START)

    def ends_word(self, unit: str) -> bool:  # noqa: ARG002
        return False

    def text(self, unit: str) -> str:
        return unit.removeprefix(self.START)

    def save(self, path: Path) -> None:
        with writing(path) as temporary:
            temporary.write_bytes(self._model)

    @classmethod
    def load(cls, path: Path) -> "PieceSegmenter":
        return cls(path.read_bytes())


SEGMENTERS: dict[str, type[Segmenter]] = {
    kind.kind: kind for kind in (WordSegmenter, BPESegmenter, PieceSegmenter)
}


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

    def word_buffer(self) -> "WordBuffer":
        return WordBuffer(self)

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
        segmenter = SEGMENTERS[table["segmenter"]].load(folder / f"{side}.split")
        return cls(table["name"], segmenter, Vocabulary(table["units"]))


class WordBuffer:
    """Collects one sentence's units and hands out words as soon as they are whole."""

    def __init__(self, language: Language) -> None:
        self._units = language.vocabulary.units
        self._segmenter = language.segmenter
        self._pending = ""

    def feed(self, id: int) -> list[str]:
        """The words that this unit makes whole: none, one or two."""
        if id in (PAD, BOS, EOS):
            return []
        if id == UNK:  # nothing tells what it would join with, so it is a word of its own
            return [*self.flush(), SPECIALS[UNK]]
        unit = self._units[id]
        words = self.flush() if self._segmenter.starts_word(unit) else []
        self._pending += self._segmenter.text(unit)
        if self._segmenter.ends_word(unit):
            words += self.flush()
        return words

    def flush(self) -> list[str]:
        """The unfinished word, if there is one: at the end of the sentence it counts as whole."""
        words = [self._pending] if self._pending else []
        self._pending = ""
        return words
