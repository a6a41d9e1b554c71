"""Word alignments, and the reads that they require.

A link joins a source word and a reference word, both counted from 1. A word of the reference is written in time if
the last source word linked to it was read to its last unit when the word's first unit is written. Knows no models.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from whilst.core.errors import UserError
from whilst.data.text import read_lines
from whilst.data.vocabulary import Language

_LINK = re.compile(r"([1-9][0-9]*)([-p])([1-9][0-9]*)")


class Link(NamedTuple):
    source: int
    target: int
    sure: bool


def read_alignment(path: Path, reverse: bool = False) -> list[list[Link]]:
    """The links of each line: `9-8` for a sure link, `25p22` for a possible one. `reverse`: target first."""
    sentences = []
    for number, line in enumerate(read_lines(path), start=1):
        links = []
        for item in line.split():
            match = _LINK.fullmatch(item)
            if match is None:
                raise UserError(f"{path}:{number}: {item!r} is no link; write 9-8 (sure) or 25p22 (possible)")
            source, target = int(match[1]), int(match[3])
            if reverse:
                source, target = target, source
            links.append(Link(source, target, match[2] == "-"))
        sentences.append(links)
    return sentences


def farthest(links: Sequence[Link], possible: bool) -> dict[int, int]:
    """For each aligned target word, the last source word linked to it by sure links, or also by possible ones."""
    found: dict[int, int] = {}
    for link in links:
        if link.sure or possible:
            found[link.target] = max(link.source, found.get(link.target, 0))
    return found


class Units(NamedTuple):
    """A sentence's units, and where the words of the aligned text are in them."""

    ids: list[int]
    ends: list[int]  # units up to the end of each word, after a 0; the same twice for a word that cleaning removed


def encode(line: str, clean: Callable[[str], str], language: Language) -> Units:
    """Encode word by word, each cleaned by itself: parts of a word still belong to it."""
    ids, ends = [], [0]
    for word in line.split():
        ids += language.encode(clean(word).split())[0]
        ends.append(len(ids))
    return Units(ids, ends)


def needs(source: Units, target: Units, aligned: Mapping[int, int]) -> list[tuple[int, int]]:
    """For each aligned word with units: its first unit (from 0), and the reads that it needs."""
    return [
        (target.ends[word - 1], source.ends[last])
        for word, last in sorted(aligned.items())
        if target.ends[word - 1] < target.ends[word]
    ]


def sufficient(reads: Sequence[int], needed: Sequence[tuple[int, int]]) -> int:
    """How many of these words have the reads that they need."""
    return sum(reads[unit] >= wanted for unit, wanted in needed)
