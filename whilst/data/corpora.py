"""Find the text of a recipe: the user's files, the toy corpus, or a known corpus, local or downloaded."""

import re
import tarfile
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from whilst.core.console import notes, progress_bar
from whilst.core.errors import UserError, name_missing_extra
from whilst.core.files import sha256, write_lines, writing, writing_folder
from whilst.core.settings import Data
from whilst.data import toy
from whilst.data.dataset import SPLITS
from whilst.data.text import moses

IWSLT15_SITE = "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi"
IWSLT14_ARCHIVE = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
IWSLT14_TEST = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
_CHUNK = 1 << 16

# Split -> its files: pairs of aligned files (source, target, …) or one TSV; none if there is no such split.
Files = dict[str, tuple[Path, ...]]


def locate(settings: Data) -> Files:
    """Find the files of each split; those of a known corpus are downloaded or generated if necessary."""
    given: dict[str, tuple[str, ...]] = {split: getattr(settings, split) for split in SPLITS}
    if not settings.corpus and settings.hub:
        return from_hub(settings, given)
    if not settings.corpus:
        for split in ("train",) if settings.held_out else ("train", "valid"):
            if not given[split]:
                other = "set data.corpus" if split == "train" else "take pairs of train with data.held_out=500"
                raise UserError(f"data.{split}: name two aligned files or one TSV, or {other}")
        return {split: tuple(folder_of(settings) / file for file in files) for split, files in given.items()}
    if named := [name for name, value in (given | {"hub": settings.hub}).items() if value]:
        raise UserError(f"data.{named[0]}: data.corpus={settings.corpus} names its files itself; remove one")
    languages, find = CORPORA[settings.corpus]
    if {settings.source, settings.target} != set(languages):
        raise UserError(
            f"data.source, data.target: {settings.corpus} is in {languages[0]} and {languages[1]}, "
            f"not {settings.source} and {settings.target}"
        )
    return find(settings)


def folder_of(settings: Data) -> Path:
    """data.folder with ~ expanded, since shells do not expand it in --set data.folder=~/corpora."""
    return Path(settings.folder).expanduser()


def for_file(settings: Data, file: Path) -> Data:
    """The settings for cleaning this file, which depend on whether data.tokenised matches the file."""
    folder = folder_of(settings)
    inside = file.relative_to(folder) if file.is_relative_to(folder) else file
    tokenised = any(fnmatch(str(inside), pattern) for pattern in settings.tokenised)
    moses = settings.moses and not tokenised
    return replace(settings, moses=moses, detokenise=settings.detokenise and (tokenised or not settings.tokenised))


def corpus_folder(settings: Data, name: str) -> Path:
    """The folder of a known corpus: data.folder, or the folder `name` beside the dataset."""
    return folder_of(settings) if settings.folder else Path(settings.dataset).parent / name


def _toy(settings: Data) -> Files:
    folder = corpus_folder(settings, f"toy-{settings.toy_pairs}-{settings.toy_seed}")
    toy.write(folder, settings.toy_pairs, settings.toy_seed)
    return _files(settings, folder)


def _iwslt15(settings: Data) -> Files:
    """English and Vietnamese as prepared by Stanford: tst2012 for development, tst2013 for test."""
    splits, folder = ("train", "tst2012", "tst2013"), corpus_folder(settings, "iwslt15")
    if not settings.folder:
        for name in (f"{split}.{language}" for split in splits for language in ("en", "vi")):
            download(f"{IWSLT15_SITE}/{name}", folder / name)
    return _files(settings, folder, splits)


def _iwslt14(settings: Data) -> Files:
    """German and English: prepared files, or the original archive."""
    folder = corpus_folder(settings, "iwslt14")
    archive = folder / "de-en.tgz"
    if not settings.folder:
        download(IWSLT14_ARCHIVE, archive)
    if archive.is_file():
        # The name has the checksum, so that files from another archive are not used.
        folder = Path(settings.dataset).parent / f"iwslt14-{sha256(archive)[:8]}"
        if not folder.exists():
            unpack_iwslt14(archive, folder)
    return _files(settings, folder)


# Known corpus -> its languages, and the function that finds its files.
CORPORA: dict[str, tuple[tuple[str, str], Callable[[Data], Files]]] = {
    "toy": (("src", "tgt"), _toy),
    "iwslt15": (("en", "vi"), _iwslt15),
    "iwslt14": (("de", "en"), _iwslt14),
}


def _files(settings: Data, folder: Path, names: tuple[str, ...] = SPLITS) -> Files:
    """The files of a known corpus; `names`: its names for train, valid and test."""

    def find(name: str) -> Path:
        for path in (folder / f"{name}{suffix}" for suffix in ("", ".xz", ".gz")):
            if path.is_file():
                return path
        raise UserError(f"{folder}: no {name} (or .xz, .gz) for data.corpus={settings.corpus}")

    languages = settings.source, settings.target
    pairs = (tuple(find(f"{name}.{language}") for language in languages) for name in names)
    return dict(zip(SPLITS, pairs, strict=True))


def from_hub(settings: Data, splits: dict[str, tuple[str, ...]]) -> Files:
    """The text of a data set of the Hugging Face hub, or of a folder in its format, as files beside the dataset."""
    with name_missing_extra():
        from datasets import load_dataset, load_from_disk
    name, languages = settings.hub, (settings.source, settings.target)
    folder = Path(settings.dataset).parent / f"hub-{Path(name).name}-{settings.hub_configuration}".strip("-")
    try:
        if (Path(name) / "dataset_dict.json").is_file():  # written by save_to_disk
            dataset = load_from_disk(name)
        else:
            dataset = load_dataset(name, settings.hub_configuration or None)
    except Exception as error:  # network, access and format errors of several packages
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"data.hub: {name}: {reason}") from None
    files: Files = dict.fromkeys(SPLITS, ())
    for split, default in zip(SPLITS, ("train", "validation", "test"), strict=True):
        hub_split = ", ".join(splits[split]) or default
        if hub_split not in dataset:
            if not splits[split] and (split == "test" or (split == "valid" and settings.held_out)):
                continue
            mistake = f"{name} has no split {hub_split!r}, only {', '.join(dataset)}"
            other = ", or set data.held_out" if split == "valid" else ""
            raise UserError(f"data.{split}: {mistake}; name one{other}")
        rows = dataset[hub_split].flatten()
        text_columns = [field.name for field in rows.data.schema if str(field.type) in ("string", "large_string")]
        columns = settings.hub_columns or tuple(f"translation.{language}" for language in languages)
        if not {*columns} <= {*text_columns}:
            names = ", ".join(text_columns)
            raise UserError(f"data.hub_columns: {name} has the columns {names}; name two of them")
        files[split] = tuple(folder / f"{split}.{language}" for language in languages)
        for file, column in zip(files[split], columns, strict=True):
            write_lines(file, (" ".join((text or "").split()) for text in rows[column][:]))
    return files


def download(url: str, path: Path) -> None:
    """Download a file unless it exists."""
    if path.is_file():
        return
    try:
        with urllib.request.urlopen(url, timeout=30) as answer, writing(path) as temporary:
            length = int(answer.headers.get("Content-Length") or 0)
            with temporary.open("wb") as file, progress_bar(range(0), path.name, "B", length or None) as progress:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    progress.update(len(chunk))
            if length and temporary.stat().st_size != length:
                raise OSError("the connection broke off")
    except OSError as error:
        raise UserError(
            f"{url}: cannot be fetched ({error}); get the files elsewhere and give --set data.folder=FOLDER"
        ) from None


def unpack_iwslt14(archive: Path, folder: Path) -> None:
    """Make train, valid and test from the original archive, as most papers do.

    Text is tokenised by Moses with entities and lower-cased. Training pairs have 1 to 175 words and a length ratio
    up to 1.5; every 23rd pair is for validation. The test set consists of five development and test sets.
    """
    notes.print(f"{archive}: unpacking and tokenising")
    try:
        with tarfile.open(archive) as tar:
            sides = [_tokenised_side(tar, archive, language) for language in ("de", "en")]
    except (tarfile.TarError, EOFError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{archive}: damaged ({error}); remove it and fetch it again") from None
    for part, german, english in zip(("train.tags", "test"), *sides, strict=True):
        if len(german) != len(english):
            raise UserError(f"{archive}: {part} has {len(german)} German but {len(english)} English lines")
    train, test = (list(zip(*both, strict=True)) for both in zip(*sides, strict=True))
    kept = [pair for pair in train if fits(*pair)]
    valid, train = kept[22::23], [pair for number, pair in enumerate(kept, start=1) if number % 23]
    with writing_folder(folder) as new:
        for split, pairs in zip(SPLITS, (train, valid, test), strict=True):
            for language, lines in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
                write_lines(new / f"{split}.{language}", lines)


def _tokenised_side(tar: tarfile.TarFile, archive: Path, language: str) -> tuple[list[str], list[str]]:
    """The tokenised, lower-cased training lines and test lines of one language."""
    tokenise = moses(language, escape=True)

    def lines(name: str) -> list[str]:
        member = next((member for member in tar.getmembers() if Path(member.name).name == name), None)
        file = tar.extractfile(member) if member else None
        if file is None:
            raise UserError(f"{archive}: there is no {name} in it; this is not the IWSLT14 archive")
        return file.read().decode("utf-8").removesuffix("\n").split("\n")

    def tokens(lines: list[str], label: str) -> list[str]:
        return [" ".join(tokenise(line).lower().split()) for line in progress_bar(lines, label, "line")]

    train = talk_lines(lines(f"train.tags.de-en.{language}"))
    test = [line for name in IWSLT14_TEST for line in segments(lines(f"IWSLT14.{name}.de-en.{language}.xml"))]
    return tokens(train, f"train {language}"), tokens(test, f"test {language}")


def talk_lines(lines: list[str]) -> list[str]:
    """The sentences of a file of tagged talks, with titles and descriptions."""
    dropped = ("<url>", "<talkid>", "<keywords>")
    kept = [line for line in lines if not any(tag in line for tag in dropped)]
    return [re.sub(r"</?(?:title|description)>", "", line) for line in kept]


def segments(lines: list[str]) -> list[str]:
    """The sentences of an evaluation file, with plain instead of typographic apostrophes."""
    kept = [line for line in lines if "<seg id" in line]
    return [re.sub(r'<seg id="\d+">|</seg>', "", line).strip().replace("\u2019", "'") for line in kept]


def fits(left: str, right: str) -> bool:
    """Whether a training pair is kept."""
    lengths = len(left.split()), len(right.split())
    return min(lengths) >= 1 and max(lengths) <= 175 and max(lengths) <= 1.5 * min(lengths)
