"""How a word becomes units: whole words, byte pair encoding, SentencePiece. One small class each, one dict.

Every word is split by itself, never the sentence as a whole: a live source arrives word by word and must
get the units it had in training. Knows nothing of numbers, vocabularies or sentences.
"""

import abc
import io
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.files import read_json, write_json, writing
from whilst.data.text import read_lines


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
    LONGEST = 500  # letters that are merged at once: time grows with their square, and whoever sends some decides

    def __init__(self, merges: Iterable[tuple[str, str]]) -> None:
        self.merges = tuple(dict.fromkeys(merges))
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}

    @classmethod
    def learn(cls, lines: Sequence[str], size: int) -> "BPESegmenter":
        """Learn at most `size` merges of pairs that are seen at least twice."""
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE(end_of_word_suffix=cls.END))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        letters = sorted(set[str]().union(*lines))
        trainer = trainers.BpeTrainer(
            # the library counts letters, with and without the mark, into the size; we count merges only
            vocab_size=size + 2 * len(letters),
            min_frequency=2,
            end_of_word_suffix=cls.END,
            # Of pairs that are as frequent the library takes that of the lower numbers, and it numbers letters as
            # chance has it, but special tokens as they stand: the same text must give the same merges.
            special_tokens=[*letters, *(letter + cls.END for letter in letters)],
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        return cls((left, right) for left, right in merges[:size])

    @classmethod
    def from_codes(cls, path: Path) -> "BPESegmenter":
        """Import the codes of subword-nmt, version 0.2."""
        if not path.is_file():
            raise UserError(f"{path}: no such file; data.codes names subword-nmt codes, relative to data.folder")
        lines = "\n".join(read_lines(path)).rstrip("\n").split("\n")
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
        letters = [*word[:-1], word[-1] + self.END]
        pieces = (letters[start : start + self.LONGEST] for start in range(0, len(letters), self.LONGEST))
        return [unit for piece in pieces for unit in self._merged(piece)]

    def _merged(self, units: list[str]) -> list[str]:
        """Apply the earliest learnt merge everywhere from the left, again and again."""
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


SEGMENTERS: dict[str, type[Segmenter]] = {kind.kind: kind for kind in (WordSegmenter, BPESegmenter, PieceSegmenter)}
