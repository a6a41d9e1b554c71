"""Segmentation of words into units: whole words, byte pair encoding, SentencePiece.

Every word is split by itself, not as part of a sentence: a live source arrives word by word and must get the same
units as in training.
"""

import abc
import io
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from whilst.core.errors import UserError
from whilst.core.files import read_json, require_file, write_json, writing
from whilst.data.text import read_lines


class Segmenter(abc.ABC):
    """Splits words into units. Either the first or the last unit of a word carries a mark."""

    kind: str
    first_mark = ""  # prefix of a word's first unit
    last_mark = ""  # suffix of a word's last unit

    @classmethod
    def learn(cls, lines: Sequence[str], size: int) -> Self:  # noqa: ARG003
        """Learn a segmenter with at most `size` merges or pieces from this text."""
        return cls()

    @classmethod
    def given(cls, path: Path) -> Self:
        """Load a segmenter from a file of another program."""
        raise UserError(f'data.segmentation: {path}: data.units = "{cls.kind}" needs no file; leave it out')

    @classmethod
    def listed_unit(cls, entry: str) -> str:
        """The unit that an entry of another program's vocabulary stands for."""
        return entry

    def units(self) -> list[str]:
        """All units, if they are known without text."""
        return []

    @abc.abstractmethod
    def split(self, word: str) -> list[str]:
        """Split a word, which has no white space, into one or more units."""

    def starts_word(self, unit: str) -> bool:
        """Whether the unit shows that the word before it is complete."""
        return bool(self.first_mark) and unit.startswith(self.first_mark)

    def ends_word(self, unit: str) -> bool:
        """Whether a word is complete with this unit."""
        return not self.first_mark and unit.endswith(self.last_mark)

    def text(self, unit: str) -> str:
        """The unit without its mark."""
        return unit.removeprefix(self.first_mark).removesuffix(self.last_mark)

    def save(self, path: Path) -> None:  # noqa: B027
        """Write what `load` needs, if anything, to `path`."""

    @classmethod
    def load(cls, path: Path) -> Self:  # noqa: ARG003
        """Read what `save` wrote."""
        return cls()


class WordSegmenter(Segmenter):
    """Every word is a unit."""

    kind = "word"

    def split(self, word: str) -> list[str]:
        return [word]


class BPESegmenter(Segmenter):
    """Byte pair encoding on characters."""

    kind = "bpe"
    last_mark = "</w>"
    LONGEST = 500  # letters merged at once: time is quadratic in their number, and live input is untrusted

    def __init__(self, merges: Iterable[tuple[str, str]]) -> None:
        self.merges = tuple(dict.fromkeys(merges))
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}

    @classmethod
    def learn(cls, lines: Sequence[str], size: int) -> Self:
        """Learn at most `size` merges of pairs that are seen at least twice."""
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE(end_of_word_suffix=cls.last_mark))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        letters = sorted(set[str]().union(*lines))
        trainer = trainers.BpeTrainer(
            # The library counts letters, with and without the mark, into the size; `size` counts merges only.
            vocab_size=size + 2 * len(letters),
            min_frequency=2,
            end_of_word_suffix=cls.last_mark,
            # Makes merges reproducible: ties between pairs are broken by the ids of their units. The library gives
            # letters random ids, but special tokens ids in this order.
            special_tokens=[*letters, *(letter + cls.last_mark for letter in letters)],
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        return cls((left, right) for left, right in merges[:size])

    @classmethod
    def given(cls, path: Path) -> Self:
        """Codes of subword-nmt, version 0.2, or of fastBPE, which have counts instead of a version."""
        lines = list(enumerate(read_lines(path), start=1))
        versioned = lines[0][1].startswith("#version: 0.2")
        merges = []
        for number, line in lines[versioned:]:
            parts = line.strip("\r ").split(" ")
            if len(parts) != (2 if versioned else 3) or not (versioned or parts[2].isdigit()):
                formats = "codes of subword-nmt, version 0.2, or of fastBPE"
                raise UserError(f"{path}:{number}: {line!r} is not a merge; give {formats} in data.segmentation")
            merges.append((parts[0], parts[1]))
        return cls(merges)

    @classmethod
    def listed_unit(cls, entry: str) -> str:
        return entry.removesuffix("@@") if entry.endswith("@@") else entry + cls.last_mark

    def split(self, word: str) -> list[str]:
        letters = [*word[:-1], word[-1] + self.last_mark]
        pieces = (letters[start : start + self.LONGEST] for start in range(0, len(letters), self.LONGEST))
        return [unit for piece in pieces for unit in self._merged(piece)]

    def _merged(self, units: list[str]) -> list[str]:
        """Apply the earliest learnt merge that occurs, everywhere from the left; repeat until none occurs."""
        last = len(self._ranks)
        while len(units) > 1:
            pairs = list(itertools.pairwise(units))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, last))
            if best not in self._ranks:
                break
            merged, index = [], 0
            while index < len(units):
                if index < len(pairs) and pairs[index] == best:
                    merged.append(best[0] + best[1])
                    index += 2
                else:
                    merged.append(units[index])
                    index += 1
            units = merged
        return units

    def save(self, path: Path) -> None:
        write_json(path, self.merges)

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls((left, right) for left, right in read_json(path))


class PieceSegmenter(Segmenter):
    """A SentencePiece model: a learnt unigram model without normalisation, or a given model."""

    kind = "sentencepiece"
    first_mark = "\u2581"

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        self._model = model
        self._processor = SentencePieceProcessor(model_proto=model)

    @classmethod
    def learn(cls, lines: Sequence[str], size: int) -> Self:
        """Learn about `size` pieces, or fewer if the text does not have so many.

        Repeated lines count once, since SentencePiece does not terminate on long texts that are repeated.
        """
        from sentencepiece import SentencePieceTrainer

        model = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=(line.replace(cls.first_mark, "_") for line in dict.fromkeys(lines)),
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

    @classmethod
    def given(cls, path: Path) -> Self:
        require_file(path)
        try:
            segmenter = cls(path.read_bytes())
        except RuntimeError:
            raise UserError(f"{path}: not a SentencePiece model; give one in data.segmentation") from None
        processor = segmenter._processor
        if any(map(processor.is_byte, range(len(processor)))):
            raise UserError(f"{path}: has pieces for bytes, which cannot be words; train it without byte_fallback")
        if not segmenter.split("a")[0].startswith(cls.first_mark):
            raise UserError(f"{path}: does not mark where a word begins; train it with add_dummy_prefix")
        return segmenter

    def units(self) -> list[str]:
        model = self._processor
        special = (model.is_control, model.is_unknown, model.is_unused)
        return [model.id_to_piece(id) for id in range(len(model)) if not any(check(id) for check in special)]

    def split(self, word: str) -> list[str]:
        # The mark inside a word would look like the start of a word. A given model may normalise a word to nothing.
        return list(self._processor.encode(word.replace(self.first_mark, "_"), out_type=str)) or [word]

    def save(self, path: Path) -> None:
        with writing(path) as temporary:
            temporary.write_bytes(self._model)

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(path.read_bytes())


SEGMENTERS: dict[str, type[Segmenter]] = {kind.kind: kind for kind in (WordSegmenter, BPESegmenter, PieceSegmenter)}
