"""Read, check and clean parallel text. Every error names the file and the line."""

import functools
import html
import html.entities
import lzma
import re
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path

from whilst.core.errors import UserError, name_missing_extra
from whilst.core.files import read_bytes
from whilst.core.settings import Data

# Matches whole entities with their semicolon: html.unescape would also replace parts of "&copy2" and "&nothing;".
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")


def read_lines(path: Path) -> list[str]:
    """The lines of a plain, .gz or .xz file. Only "\\n" ends a line, so that counts agree with `wc -l`."""
    try:
        content = read_bytes(path)
    except (lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise UserError(f"{path}: cannot be read, damaged or not what its name says ({error})") from None
    lines = split_lines(content, str(path))
    if not any(map(str.strip, lines)):
        raise UserError(f"{path}: the file is empty; give a file with one sentence a line")
    return lines


def split_lines(content: bytes, name: str) -> list[str]:
    """The lines of the content of a file or stream. `name`: its name in messages."""
    try:
        # All byte order marks are removed; if one stayed, reading the written lines again would remove it.
        text = content.decode("utf-8").lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{content[error.start]:02x}"
        raise UserError(
            f"{name}:{line}: not valid UTF-8 ({byte}); convert it, for example with iconv -t UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{name}:{line}: has a NUL byte, so it is no text; convert or clean it first")
    return text.removesuffix("\n").split("\n") if text else []


def read_pairs(files: tuple[Path, ...]) -> tuple[list[str], list[str]]:
    """The lines of two aligned files (source, target), or the columns of one TSV, uncleaned."""
    if len(files) == 1:
        rows = [line.split("\t") for line in read_lines(files[0])]
        for number, columns in enumerate(rows, start=1):
            if len(columns) != 2:
                count = f"{len(columns)} column{'s' * (len(columns) != 1)}"
                raise UserError(f"{files[0]}:{number}: {count} instead of 2; write source, one tab, target")
        return [source for source, _ in rows], [target for _, target in rows]
    source, target = map(read_lines, files)
    if len(source) != len(target):
        raise UserError(
            f"{files[0]} has {len(source)} lines but {files[1]} has {len(target)}; "
            "line i of one must be the translation of line i of the other"
        )
    return source, target


def unescape(text: str) -> str:
    """Replace HTML entities such as &apos; &quot; &amp; &#91; by their characters."""
    return _ENTITY.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    entity = match[0]
    return html.unescape(entity) if entity[1] == "#" else html.entities.html5.get(entity[1:], entity)


def cleaner(settings: Data, language: str, from_corpus: bool = False) -> Callable[[str], str]:
    """The function that cleans a line. Its result is words joined by one space.

    Training text, test text and live input are cleaned in the same way. `from_corpus`: for lines of the recipe's
    files, which may have to be detokenised, unlike live input.
    """
    normalise = functools.partial(unicodedata.normalize, "NFC")
    steps: list[Callable[[str], str]] = [unescape, normalise] if settings.unescape else [normalise]
    if settings.detokenise and from_corpus:
        steps.append(detokeniser(language))
    if settings.moses:
        steps.append(moses(language))
    if settings.lowercase:
        steps += [str.lower, normalise]  # lower-casing can decompose letters

    def clean(line: str) -> str:
        for step in steps:
            line = step(line)
        return " ".join(line.split())

    return clean


def moses(language: str, escape: bool = False) -> Callable[[str], str]:
    """The Moses tokeniser. With `escape` it writes entities like the original script."""
    with name_missing_extra():
        from sacremoses import MosesTokenizer
    tokeniser = MosesTokenizer(lang=language)
    return lambda line: str(tokeniser.tokenize(line, return_str=True, escape=escape))


# Tokens of the Penn Treebank that the Moses detokeniser does not convert.
_TREEBANK = ((" n't", "n't"), ("``", '"'), ("''", '"'))


def detokeniser(language: str) -> Callable[[str], str]:
    """The Moses detokeniser, also for tokens such as "do n't" and quotation marks such as ``."""
    with name_missing_extra():
        from sacremoses import MosesDetokenizer
    detokeniser = MosesDetokenizer(lang=language)

    def detokenise(line: str) -> str:
        for token, plain in _TREEBANK:
            line = line.replace(token, plain)
        return str(detokeniser.detokenize(line.split(), unescape=False))

    return detokenise
