"""Make a dataset folder from text: clean, skip and count pairs, learn units, write arrays and a manifest.

The folder is built under a temporary name and renamed at the end, so it is complete or absent.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Column, Table

from whilst import __version__
from whilst.core.config import to_table
from whilst.core.console import console, progress_bar
from whilst.core.errors import UserError
from whilst.core.files import require_file, sha256, sha256_lines, write_json, write_lines, writing_folder
from whilst.core.settings import Data, Role, names_with
from whilst.data.corpora import Files, folder_of, for_file, locate
from whilst.data.dataset import FORMAT, MANIFEST, SPLITS, Dataset, TokenSequences, read_manifest
from whilst.data.segment import SEGMENTERS, Segmenter
from whilst.data.text import cleaner, read_lines, read_pairs
from whilst.data.vocabulary import EOS, SPECIALS, UNK, Language

SIDES = ("source", "target")
APART_LETTERS = 12  # sentences with fewer letters, such as "Thank you.", are too common to be kept for tests


@dataclass
class Cleaned:
    """The cleaned pairs of a split, how many pairs were read, and how many were skipped for each reason."""

    pairs: list[tuple[str, str]]
    read: int
    skipped: Counter[str]


def prepare(settings: Data, overwrite: bool = False) -> Path:
    """Make the dataset folder of these settings unless it exists already."""
    path = Path(settings.dataset)
    files = locate(settings) | _apart_files(settings)
    paths = _text_files(files) | _unit_files(settings)
    for file in paths.values():
        require_file(file)
    inputs = {name: {"file": file.name, "sha256": sha256(file)} for name, file in paths.items()}
    if path.exists() and any(path.iterdir() if path.is_dir() else [path]):
        if not (path / MANIFEST).is_file():  # never deleted, even with --overwrite
            raise UserError(f"{path}: exists and is not a dataset; give data.dataset another name")
        if not overwrite and _is_up_to_date(path, settings, inputs):
            _print(f"{path}: already prepared from these files with these settings, used as it is")
            return path
        if not overwrite:
            raise UserError(
                f"{path}: holds a dataset made from other files or settings; "
                "give data.dataset another name, or add --overwrite"
            )
    with writing_folder(path) as folder:
        manifest = build(folder, files, settings, inputs)
    console.print(_table(manifest))
    _print(f"dataset: {path}")
    _print(f"checksum: {Dataset.open(path).checksum}")
    return path


def _print(line: str) -> None:
    console.print(line, soft_wrap=True, markup=False)  # paths are printed literally


def _content(settings: Data) -> dict[str, Any]:
    """The settings that decide the content of the dataset. Paths do not: files are compared by checksum."""
    paths = names_with(Role.PLACE, Data)
    return {name: value for name, value in to_table(settings).items() if name not in paths}


def _is_up_to_date(path: Path, settings: Data, inputs: dict[str, Any]) -> bool:
    """Whether the dataset in this folder was made from these settings and files."""
    manifest = read_manifest(path)
    sums = {name: entry["sha256"] for name, entry in inputs.items()}
    return (
        # settings that are newer than the dataset had their defaults
        _content(Data()) | manifest["settings"] == _content(settings)
        and {name: entry["sha256"] for name, entry in manifest["inputs"].items()} == sums
    )


def _apart_files(settings: Data) -> Files:
    """The files of each text of data.apart."""
    if used := [name for name, *_ in settings.apart if name in SPLITS]:
        raise UserError(f"data.apart: {used[0]} is a split of its own; give the text another name")
    return {name: tuple(folder_of(settings) / file for file in files) for name, _, *files in settings.apart}


def _text_files(files: Files) -> dict[str, Path]:
    """Name in the manifest -> file, of the files with text."""
    inputs = {}
    for split, paths in files.items():
        for number, file in enumerate(paths):
            side = "pairs" if len(paths) == 1 else SIDES[number % 2]
            suffix = f".{number // 2 + 1}" if number > 1 else ""  # number of the pair of files, from the second on
            inputs[f"{split}{suffix}.{side}"] = file
    return inputs


def _unit_files(settings: Data) -> dict[str, Path]:
    """Name in the manifest -> file, of the files that define the units; empty if these are learnt from the text."""
    if settings.like:
        run = Path(settings.like)
        if not (run / "source.json").is_file():
            raise UserError(f"data.like: {run}: no run folder (no source.json); train that run first")
        return {f"like.{path.name}": path for path in sorted([*run.glob("source.*"), *run.glob("target.*")])}
    given = {"segmentation": settings.segmentation, "vocabulary": settings.vocabulary}
    folder = folder_of(settings)
    return {
        f"{name}.{side}": folder / file
        for name, files in given.items()
        for side, file in zip(SIDES if len(files) > 1 else ["both"], files, strict=False)
    }


def build(folder: Path, files: Files, settings: Data, inputs: dict[str, Any]) -> dict[str, Any]:
    """Write a dataset into an empty folder; returns its manifest."""
    splits = {split: _read(split, files[split], settings) for split in SPLITS if files[split]}
    apart = _choose_apart(files, settings)
    _leave_out(splits["train"], apart)
    if settings.held_out and len(splits) < len(SPLITS):
        splits |= _hold_out(splits["train"], [split for split in SPLITS if split not in splits], settings.held_out)
    splits |= apart
    languages = _languages(splits["train"], settings)
    for side, language in languages.items():
        language.save(folder, side)
    manifest = {
        "format": FORMAT,
        "whilst": __version__,
        "source": settings.source,
        "target": settings.target,
        "vocabulary": {side: len(language) for side, language in languages.items()},
        "splits": {split: _write(folder, split, lines, languages, settings) for split, lines in splits.items()},
        "inputs": inputs,
        "settings": _content(settings),
    }
    write_json(folder / MANIFEST, manifest)
    return manifest


def _read(split: str, paths: tuple[Path, ...], settings: Data) -> Cleaned:
    """Read and clean a split. In valid and test no pair is skipped, and an empty side is an error."""
    cleaned = Cleaned([], 0, Counter())
    for files in [paths] if len(paths) == 1 else zip(paths[::2], paths[1::2], strict=True):
        lines = read_pairs(files)
        cleaned.read += len(lines[0])
        source, target = (
            cleaner(for_file(settings, file), language, True)
            for file, language in ((files[0], settings.source), (files[-1], settings.target))
        )
        pairs = progress_bar(zip(*lines, strict=True), f"read {split}", "pair", len(lines[0]))
        for number, (left, right) in enumerate(pairs, start=1):
            left, right = source(left), target(right)
            reason = _skip_reason(left, right, settings.max_ratio)
            if split not in ("valid", "test") and reason:
                cleaned.skipped[reason] += 1
                continue
            if reason == "empty":
                file, side = (files[-1], "target") if left else (files[0], "source")
                raise UserError(
                    f"{file}:{number}: an empty {side}; "
                    "a development or test pair needs both sides, so remove the line from both"
                )
            cleaned.pairs.append((left, right))
    if not cleaned.pairs:
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(cleaned.skipped.items()))
        raise UserError(f"{paths[0]}: no pair is left of {cleaned.read} ({reasons})")
    return cleaned


def _skip_reason(source: str, target: str, max_ratio: float) -> str:
    if not source or not target:
        return "empty"
    left, right = source.count(" ") + 1, target.count(" ") + 1
    return "ratio" if max_ratio and max(left, right) > max_ratio * min(left, right) else ""


def _letters(text: str) -> str:
    """The letters and digits of a text in lower case. Texts that agree in these count as equal."""
    return re.sub(r"[\W_]+", "", text.lower())


def _choose_apart(files: Files, settings: Data) -> dict[str, Cleaned]:
    """Choose the test sets of data.apart: in each text, the pairs whose letters have the lowest checksums.

    The choice does not depend on the direction of translation or the cleaning. Pairs that have fewer than
    APART_LETTERS letters on a side, or share a side with an earlier choice, are not chosen.
    """
    chosen, taken = dict[str, Cleaned](), set[str]()
    for name, pattern, *_ in settings.apart:
        cleaned = _read(name, files[name], settings)
        try:
            pairs = [pair for pair in cleaned.pairs if any(re.search(pattern, text) for text in pair)]
        except re.error as error:
            raise UserError(f"data.apart: {pattern}: not a regular expression ({error})") from None
        keyed = {pair: tuple(map(_letters, pair)) for pair in pairs}
        checksums = {pair: sha256_lines(sorted(keys)) for pair, keys in keyed.items()}
        cleaned.pairs = []
        for pair in sorted(keyed, key=lambda pair: (checksums[pair], sorted(pair))):
            is_long = min(map(len, keyed[pair])) >= APART_LETTERS
            if is_long and taken.isdisjoint(keyed[pair]) and len(cleaned.pairs) < settings.apart_pairs:
                cleaned.pairs.append(pair)
                taken.update(keyed[pair])
        if len(cleaned.pairs) < settings.apart_pairs:
            raise UserError(f"data.apart: {name} has only {len(cleaned.pairs):,} pairs; lower data.apart_pairs")
        chosen[name] = cleaned
    return chosen


def _leave_out(train: Cleaned, apart: dict[str, Cleaned]) -> None:
    """Remove the training pairs that share a side with a pair of data.apart."""
    taken = {_letters(text) for cleaned in apart.values() for pair in cleaned.pairs for text in pair}
    if taken:
        kept = [pair for pair in train.pairs if taken.isdisjoint(map(_letters, pair))]
        train.skipped["apart"] = len(train.pairs) - len(kept)
        train.pairs = kept


def _hold_out(train: Cleaned, names: list[str], count: int) -> dict[str, Cleaned]:
    """Take `count` evenly spread training pairs for each of these splits; drop other pairs with their sources."""
    pairs, total = train.pairs, count * len(names)
    chosen = [pairs[number * len(pairs) // total] for number in range(total)]
    sources = {source for source, _ in chosen}
    kept = [pair for pair in pairs if pair[0] not in sources]
    if total > len(pairs) or not kept:
        raise UserError(f"data.held_out: {total:,} of {len(pairs):,} pairs leave none to train on; choose less")
    train.skipped["held_out"] = len(pairs) - len(kept)
    train.pairs = kept
    return {name: Cleaned(chosen[start :: len(names)], count, Counter()) for start, name in enumerate(names)}


def _languages(train: Cleaned, settings: Data) -> dict[str, Language]:
    """Side -> language: from the run data.like, with given units, or with units learnt from all training pairs.

    These include pairs that are too long to be trained on.
    """
    if settings.like:
        return _languages_of(Path(settings.like), settings)
    kind, folder = SEGMENTERS[settings.units], folder_of(settings)
    texts = {side: [pair[index] for pair in train.pairs] for index, side in enumerate(SIDES)}
    if settings.segmentation:
        segmenters = [kind.given(folder / file) for file in settings.segmentation]
    else:
        learnt_from = [texts["source"] + texts["target"]] if settings.joint else texts.values()
        segmenters = [kind.learn(lines, settings.size) for lines in learnt_from]
    listed = [_listed_units(folder / file, kind) for file in settings.vocabulary]
    languages = {}
    # If there is only one segmenter or vocabulary, the indices 0 and -1 both select it.
    for index, (side, lines) in zip((0, -1), texts.items(), strict=True):
        name, segmenter = getattr(settings, side), segmenters[index]
        units = listed[index] if listed else segmenter.units() if settings.segmentation else []
        if units:
            languages[side] = Language(name, segmenter, (unit for unit in units if unit not in SPECIALS))
            continue
        words = Counter(word for line in lines for word in line.split(" "))
        languages[side] = Language.count(name, segmenter, words, settings.minimum_frequency)
        if len(languages[side]) == len(SPECIALS):
            minimum = settings.minimum_frequency
            raise UserError(f"data.minimum_frequency: no unit of {name} is seen {minimum} times; lower it")
    return languages


def _languages_of(run: Path, settings: Data) -> dict[str, Language]:
    """Load the languages of a run. Their names and kind of units must be those of the settings."""
    languages = {side: Language.load(run, side) for side in SIDES}
    names, expected = [language.name for language in languages.values()], [settings.source, settings.target]
    if names != expected:
        raise UserError(f"data.like: {run} translates {' to '.join(names)}, not {' to '.join(expected)}")
    kind = languages["source"].segmenter.kind
    if kind != settings.units:
        raise UserError(f'data.units: "{settings.units}", but {run} has "{kind}"; leave it out')
    return languages


def _listed_units(path: Path, kind: type[Segmenter]) -> list[str]:
    """The units in a vocabulary file: its first column, without special units."""
    entries = [line.replace("\t", " ").split(" ")[0] for line in read_lines(path)]
    units = list(dict.fromkeys(kind.listed_unit(entry) for entry in entries if entry and entry not in SPECIALS))
    if not units:
        raise UserError(f"{path}: has no units but special ones; give another file in data.vocabulary")
    return units


def _write(
    folder: Path, split: str, cleaned: Cleaned, languages: dict[str, Language], settings: Data
) -> dict[str, Any]:
    """Encode a split, write its arrays and, unless it is train, its text; return its entry of the manifest."""
    pairs, too_long = [], 0
    for texts in progress_bar(cleaned.pairs, f"encode {split}", "pair"):
        both = zip(languages.values(), texts, strict=True)
        pair = [[*language.encode(text.split(" ")), EOS] for language, text in both]
        if max(map(len, pair)) > settings.max_length + 1:
            too_long += 1
            if split == "train":
                continue
        pairs.append(pair)
    if not pairs:
        raise UserError(f"data.max_length: every {split} pair has more than {settings.max_length} units")
    entry: dict[str, Any] = {"pairs": len(pairs), "read": cleaned.read}
    if split == "train":
        entry["skipped"] = {"empty": 0, "ratio": 0, **cleaned.skipped, "too_long": too_long}
    else:
        entry["too_long_kept"] = too_long
    for index, (side, language) in enumerate(languages.items()):
        dtype = np.uint16 if len(language) <= 1 << 16 else np.int32
        sequences = TokenSequences.from_lists([pair[index] for pair in pairs], dtype)
        sequences.save(folder, f"{split}.{side}")
        units = len(sequences.tokens) - len(sequences)
        entry[side] = {
            "units": units,
            "longest": int(sequences.lengths.max()) - 1,
            "unknown": int((sequences.tokens == UNK).sum()) / units,
        }
        if split != "train":
            text = [pair[index] for pair in cleaned.pairs]
            write_lines(folder / f"{split}.{side}.txt", text)
            entry[side]["text_sha256"] = sha256_lines(text)
    return entry


def _table(manifest: dict[str, Any]) -> Table:
    names = f"{manifest['source']} / {manifest['target']}"
    sizes = " / ".join(f"{size:,}" for size in manifest["vocabulary"].values())
    numbers = (Column(name, justify="right") for name in ("pairs", "skipped", f"units {names}", "unknown"))
    table = Table("split", *numbers, title=f"{names}, vocabulary {sizes}")
    for split, entry in manifest["splits"].items():
        reasons = [f"{count:,} {why}" for why, count in entry.get("skipped", {}).items() if count]
        if entry.get("too_long_kept"):
            reasons = [f"({entry['too_long_kept']:,} too long, kept)"]
        table.add_row(
            split,
            f"{entry['pairs']:,}",
            "\n".join(reasons).replace("_", " ") or "0",
            " / ".join(f"{entry[side]['units']:,}" for side in SIDES),
            " / ".join(f"{entry[side]['unknown']:.2%}" for side in SIDES),
        )
    return table
