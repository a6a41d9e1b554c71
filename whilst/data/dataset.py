"""Read a dataset folder: memory-mapped units, both languages, the text of valid and test. prepare.py writes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from whilst.core.config import build, to_table
from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256, sha256_lines, writing
from whilst.core.settings import Data, Role, names_with
from whilst.data.text import read_pairs
from whilst.data.vocabulary import Language

FORMAT = 1
MANIFEST = "manifest.json"
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class TokenSequences:
    """Sentences of different lengths in one array, each closed by EOS."""

    tokens: npt.NDArray[Any]  # (units of all sentences,) uint16 or int32
    offsets: npt.NDArray[np.int64]  # (sentences + 1,)

    @classmethod
    def open(cls, folder: Path, name: str) -> "TokenSequences":
        """Map `name.tokens.npy` and read `name.offsets.npy`."""
        try:
            tokens = np.load(folder / f"{name}.tokens.npy", mmap_mode="r")
            offsets = np.load(folder / f"{name}.offsets.npy")
        except (OSError, ValueError, EOFError) as error:
            raise UserError(
                f"{folder}: {name} is missing or damaged ({error}); run `whilst prepare` again"
            ) from None
        if offsets[-1] != len(tokens):
            raise UserError(f"{folder}: {name} is cut off; run `whilst prepare` again")
        return cls(tokens, offsets)

    @classmethod
    def from_lists(
        cls, sentences: Sequence[Sequence[int]], dtype: type[np.integer[Any]] = np.int32
    ) -> "TokenSequences":
        offsets = np.cumsum([0, *map(len, sentences)]).astype(np.int64)
        units = (unit for sentence in sentences for unit in sentence)
        return cls(np.fromiter(units, dtype), offsets)

    @classmethod
    def concatenate(cls, first: "TokenSequences", second: "TokenSequences") -> "TokenSequences":
        offsets = np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]])
        return cls(np.concatenate([first.tokens, second.tokens]), offsets)

    def save(self, folder: Path, name: str) -> None:
        for kind, values in (("tokens", self.tokens), ("offsets", self.offsets)):
            with writing(folder / f"{name}.{kind}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, values)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def to_lists(self) -> list[list[int]]:
        return [self[number].tolist() for number in range(len(self))]

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(sentences) number of units in each sentence, EOS counted."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Split:
    source: TokenSequences
    target: TokenSequences

    def select(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> "Split":
        """A split with the pairs at these indices, in this order."""
        sides = ([side[row].tolist() for row in rows] for side in (self.source, self.target))
        return Split(*map(TokenSequences.from_lists, sides))


@dataclass(frozen=True, eq=False)
class Dataset:
    """An opened dataset folder."""

    path: Path
    manifest: dict[str, Any]
    source: Language
    target: Language
    splits: dict[str, Split] = field(default_factory=dict)  # replace those in the folder

    @classmethod
    def open(cls, path: Path) -> "Dataset":
        manifest = read_manifest(path)
        return cls(path, manifest, Language.load(path, "source"), Language.load(path, "target"))

    @cached_property
    def checksum(self) -> str:
        """The checksum of units and text; the manifest, which depends on version and input files, is left out."""
        files = sorted(path for path in self.path.iterdir() if path.name != MANIFEST and path.is_file())
        return sha256_lines([f"{path.name} {sha256(path)}" for path in files])

    def split(self, name: str) -> Split:
        self._require(name)
        if name in self.splits:
            return self.splits[name]
        return Split(*(TokenSequences.open(self.path, f"{name}.{side}") for side in ("source", "target")))

    def with_splits(self, splits: dict[str, Split]) -> "Dataset":
        """The same dataset with other units in these splits, such as translations as targets. The text stays."""
        return replace(self, splits=self.splits | splits)

    def require_units(self, what: str, run: Path) -> None:
        """Raise an error if a run has other vocabularies: the same ids would be other units there."""
        for side, verb, language in (("source", "reads", self.source), ("target", "writes", self.target)):
            if Language.load(run, side).units != language.units:
                advice = "it must be the same dataset, or one prepared with data.like"
                raise UserError(f"{what}: {run} {verb} other units than {self.path}; {advice}")

    def require_languages(self, what: str, run: Path, settings: Data) -> None:
        """Raise an error if a run with these settings translates between other languages."""
        source, target = self.source.name, self.target.name
        if (source, target) != (settings.source, settings.target):
            raise UserError(
                f"{what}: {self.path} is {source} to {target}, "
                f"but {run} translates {settings.source} to {settings.target}"
            )

    def cleaning_settings(self, settings: Data) -> Data:
        """The settings with the cleaning of this dataset, which may differ from that of the run's own text."""
        stored = self.manifest["settings"]
        names = names_with(Role.CLEANING, Data) & stored.keys()
        return build(Data, to_table(settings) | {name: stored[name] for name in names})

    def text(self, name: str) -> tuple[list[str], list[str]]:
        """The cleaned source lines and target lines of a split other than train."""
        self._require(name)
        if name == "train":
            raise UserError(f"{self.path}: the training text is stored as units only; choose valid or test")
        return read_pairs((self.path / f"{name}.source.txt", self.path / f"{name}.target.txt"))

    def _require(self, name: str) -> None:
        splits = self.manifest["splits"]
        if name not in splits:
            raise UserError(f"{self.path}: there is no split {name!r}, only {', '.join(splits)}")


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a dataset folder, checked."""
    if not path.is_dir():
        raise UserError(f"{path}: no such dataset; make it with `whilst prepare`")
    if not (path / MANIFEST).is_file():
        raise UserError(f"{path}: not a dataset (no manifest.json); make one with `whilst prepare`")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or not {"format", "splits", "settings", "inputs"} <= manifest.keys():
        raise UserError(f"{path}: manifest.json is damaged; run `whilst prepare --overwrite`")
    if manifest["format"] != FORMAT:
        raise UserError(
            f"{path}: dataset format {manifest['format']}, but this version reads {FORMAT}; "
            "run `whilst prepare --overwrite`"
        )
    return manifest


def length_ratio(manifest: dict[str, Any]) -> tuple[int, int]:
    """Total J and I of the training text, eos counted."""
    train = manifest["splits"]["train"]
    source, target = (train[side]["units"] + train["pairs"] for side in ("source", "target"))
    return source, target
