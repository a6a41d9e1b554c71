"""Find the text of a recipe: the user's files, the toy corpus, or a known corpus, local or downloaded."""

import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from whilst.core.console import notes, progress_bar
from whilst.core.errors import UserError
from whilst.core.files import sha256, writing, writing_text
from whilst.core.settings import Data
from whilst.data.text import moses

IWSLT15_SITE = "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi"
IWSLT14_ARCHIVE = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
IWSLT14_TEST = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Files:
    """The files of each split: aligned files in pairs (source, target, …) or one TSV. `test` may be empty."""

    train: tuple[Path, ...]
    valid: tuple[Path, ...]
    test: tuple[Path, ...]


def locate(settings: Data) -> Files:
    """Find the files; those of a known corpus are downloaded or made if necessary."""
    if settings.corpus:
        for name in ("train", "valid", "test"):
            if getattr(settings, name):
                raise UserError(f"data.{name}: data.corpus={settings.corpus} names its files itself; remove one")
        return CORPORA[settings.corpus](settings)
    for name in ("train", "valid"):
        if not getattr(settings, name):
            raise UserError(f"data.{name}: name two aligned files or one TSV, or set data.corpus")
    folder = folder_of(settings)
    train, valid, test = (
        tuple(folder / file for file in files) for files in (settings.train, settings.valid, settings.test)
    )
    return Files(train, valid, test)


def folder_of(settings: Data) -> Path:
    """With ~ expanded, since shells do not expand it in --set data.folder=~/corpora."""
    return Path(settings.folder).expanduser()


def is_tokenised(settings: Data, file: Path) -> bool:
    """Whether data.tokenised matches this file."""
    folder = folder_of(settings)
    inside = file.relative_to(folder) if file.is_relative_to(folder) else file
    return any(fnmatch(str(inside), pattern) for pattern in settings.tokenised)


def _toy(settings: Data) -> Files:
    from whilst.data import toy

    _require_languages(settings, {"src", "tgt"})
    default = _beside(settings, f"toy-{settings.toy_pairs}-{settings.toy_seed}")
    folder = folder_of(settings) if settings.folder else default
    toy.write(folder, settings.toy_pairs, settings.toy_seed)
    return _files(settings, folder, "train", "valid", "test")


def _iwslt15(settings: Data) -> Files:
    """English and Vietnamese as prepared by Stanford: tst2012 for development, tst2013 for test."""
    _require_languages(settings, {"en", "vi"})
    splits = ("train", "tst2012", "tst2013")
    if settings.folder:
        return _files(settings, folder_of(settings), *splits)
    folder = _beside(settings, "iwslt15")
    for split in splits:
        for language in ("en", "vi"):
            download(f"{IWSLT15_SITE}/{split}.{language}", folder / f"{split}.{language}")
    return _files(settings, folder, *splits)


def _iwslt14(settings: Data) -> Files:
    """German and English: prepared files, or the original archive."""
    _require_languages(settings, {"de", "en"})
    archive = folder_of(settings) / "de-en.tgz"
    if settings.folder and not archive.is_file():
        folder = folder_of(settings)
        if _find(folder, f"train.{settings.source}") is None and _find(folder, f"train.partial.{settings.source}"):
            # Its results would have the name of the whole corpus.
            raise UserError(
                f"{folder}: train.partial is only a part of iwslt14; name its files in data.train, data.valid "
                'and data.test, set data.corpus="" and another data.dataset, as in recipes/german.de-en'
            )
        return _files(settings, folder, "train", "valid", "test")
    if not settings.folder:
        archive = _beside(settings, "iwslt14") / archive.name
        download(IWSLT14_ARCHIVE, archive)
    # The name has the checksum, so that files from another archive are not used.
    folder = _beside(settings, f"iwslt14-{sha256(archive)[:8]}")
    if any(
        _find(folder, f"{split}.{language}") is None
        for split in ("test", "valid", "train")
        for language in ("de", "en")
    ):
        unpack_iwslt14(archive, folder)
    return _files(settings, folder, "train", "valid", "test")


CORPORA: dict[str, Callable[[Data], Files]] = {"toy": _toy, "iwslt15": _iwslt15, "iwslt14": _iwslt14}


def _require_languages(settings: Data, languages: set[str]) -> None:
    if {settings.source, settings.target} != languages:
        first, second = sorted(languages)
        raise UserError(
            f"data.source, data.target: {settings.corpus} is in {first} and {second}, "
            f"not {settings.source} and {settings.target}"
        )


def _beside(settings: Data, name: str) -> Path:
    return Path(settings.dataset).parent / name


def _find(folder: Path, name: str) -> Path | None:
    candidates = (folder / f"{name}{suffix}" for suffix in ("", ".xz", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _files(settings: Data, folder: Path, train: str, valid: str, test: str) -> Files:
    def pair(split: str) -> tuple[Path, ...]:
        paths = []
        for language in (settings.source, settings.target):
            path = _find(folder, f"{split}.{language}")
            if path is None:
                raise UserError(f"{folder}: no {split}.{language} (or .xz, .gz) for data.corpus={settings.corpus}")
            paths.append(path)
        return tuple(paths)

    return Files(pair(train), pair(valid), pair(test))


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
    except (OSError, urllib.error.URLError) as error:
        raise UserError(
            f"{url}: cannot be fetched ({error}); get the files elsewhere and give --set data.folder=FOLDER"
        ) from None


def unpack_iwslt14(archive: Path, folder: Path) -> None:
    """Make train, valid and test from the original archive, as most papers do.

    Moses tokens with entities, in lower case; training pairs of 1 to 175 words with a length ratio up to 1.5, every
    23rd of which is for validation; five development and test sets together are the test set.
    """
    notes.print(f"{archive}: unpacking and tokenising")
    tokenisers = {language: moses(language, escape=True) for language in ("de", "en")}
    sides: dict[str, list[str]] = {}
    tests: dict[str, list[str]] = {}
    try:
        with tarfile.open(archive) as tar:
            members = {Path(member.name).name: member for member in tar.getmembers() if member.isfile()}
            for language, tokenise in tokenisers.items():
                raw = _member(tar, members, archive, f"train.tags.de-en.{language}")
                sides[language] = _tokens(talk_lines(raw), tokenise, f"train {language}")
                raw = [
                    line
                    for name in IWSLT14_TEST
                    for line in segments(_member(tar, members, archive, f"IWSLT14.{name}.de-en.{language}.xml"))
                ]
                tests[language] = _tokens(raw, tokenise, f"test {language}")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(f"{archive}: damaged ({error}); remove it and fetch it again") from None
    for what, both in (("train.tags", sides), ("test", tests)):
        if len(both["de"]) != len(both["en"]):
            raise UserError(f"{archive}: {what} has {len(both['de'])} German but {len(both['en'])} English lines")
    kept = [pair for pair in zip(sides["de"], sides["en"], strict=True) if fits(*pair)]
    splits = {
        "test": list(zip(tests["de"], tests["en"], strict=True)),
        "valid": kept[22::23],
        "train": [pair for number, pair in enumerate(kept, start=1) if number % 23],
    }
    for split, pairs in splits.items():
        for side, language in enumerate(("de", "en")):
            with writing_text(folder / f"{split}.{language}") as file:
                file.writelines(f"{pair[side]}\n" for pair in pairs)


def _member(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], archive: Path, name: str) -> list[str]:
    file = tar.extractfile(members[name]) if name in members else None
    if file is None:
        raise UserError(f"{archive}: there is no {name} in it; this is not the IWSLT14 archive")
    try:
        return file.read().decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{archive}: {name} is not valid UTF-8 ({error})") from None


def _tokens(lines: list[str], tokenise: Callable[[str], str], what: str) -> list[str]:
    return [" ".join(tokenise(line).lower().split()) for line in progress_bar(lines, what, "line", len(lines))]


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
    lengths = len(left.split()), len(right.split())
    return min(lengths) >= 1 and max(lengths) <= 175 and max(lengths) <= 1.5 * min(lengths)
