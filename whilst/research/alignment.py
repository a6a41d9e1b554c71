"""Word alignments, and what they ask of a policy: to write a word only after reading those that it translates.

A link joins a source word and a reference word, both counted from 1. Sufficiency is the share of the reference's
aligned words that were begun when the farthest source word linked to them had been read to its last unit. Knows
reads and places of units; nothing of models.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """The links of each line: `9-8` for a sure one, `25p22` for a possible one. `reverse`: target first."""
    sentences = []
    for number, line in enumerate(read_lines(path), start=1):
        links = []
        for item in line.split():
            match = _LINK.fullmatch(item)
            if match is None:
                raise UserError(f"{path}:{number}: {item!r} is no link; write 9-8 (sure) or 25p22 (possible)")
            left, right = int(match[1]), int(match[3])
            links.append(Link(right, left, match[2] == "-") if reverse else Link(left, right, match[2] == "-"))
        sentences.append(links)
    return sentences


def farthest(links: Sequence[Link], possible: bool) -> dict[int, int]:
    """For each aligned target word, the last source word linked to it; by sure links only, or possible ones too."""
    found: dict[int, int] = {}
    for link in links:
        if link.sure or possible:
            found[link.target] = max(link.source, found.get(link.target, 0))
    return found


@dataclass(frozen=True)
class Units:
    """A sentence's units, and where each word of the aligned text ends among them."""

    ids: list[int]
    ends: list[int]  # of each word: units up to its end; a word that cleaning took away ends where it begins

    def begin(self, word: int) -> int:
        """Units before this word, counted from 1."""
        return self.ends[word - 2] if word > 1 else 0


def encode(line: str, clean: Callable[[str], str], language: Language) -> Units:
    """Units by the words of the alignment. Each is cleaned by itself: parts it falls into are still that word."""
    ids: list[int] = []
    ends = []
    for word in line.split():
        ids += language.encode(clean(word).split())[0]
        ends.append(len(ids))
    return Units(ids, ends)


def needs(source: Units, target: Units, aligned: Mapping[int, int]) -> list[tuple[int, int]]:
    """For each aligned word that has units: its first one (from 0), and the reads that it should wait for."""
    return [
        (target.begin(word), source.ends[last - 1])
        for word, last in sorted(aligned.items())
        if target.ends[word - 1] > target.begin(word)
    ]


def sufficient(reads: Sequence[int], needed: Sequence[tuple[int, int]]) -> int:
    """How many of these needs the reads of a sentence meet."""
    return sum(reads[unit] >= wanted for unit, wanted in needed)
