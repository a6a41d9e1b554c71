"""The lines of a quality/latency figure, and how ours are told apart: a colour a system, paler for its variants.

Knows colours and markers, but nothing of how they are drawn.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.colors import to_hex, to_rgb

from whilst.evaluation.identity import bare

# Okabe and Ito's colours, which stay apart for colour-blind readers; black and yellow read badly as lines. Then two
# darker ones: all systems of the paper in one figure are eight.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7B4B94", "#5B5B5B")
# The same in every figure, ours and the paper's.
KINDS = "bs-simt", "bs-simt oracle", "diagonal", "mma", "multi-path", "translation-based", "wait-k", "full-sentence"
SYSTEMS = dict(zip(KINDS, COLOURS, strict=True))
# More than colours, so that the ninth system is not the first again, and enough for all ablations of one system.
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "p", "h")


@dataclass(frozen=True)
class Line:
    """One system. `points` are (label, AL, BLEU); an AL of None is a system that reads everything first."""

    name: str
    points: Sequence[tuple[str, float | None, float]]
    variants: Sequence["Line"] = ()  # the same system otherwise decoded, such as threshold-0.6

    @property
    def curve(self) -> list[tuple[str, float, float]]:
        known = [(label, al, bleu) for label, al, bleu in self.points if al is not None]
        return sorted(known, key=lambda point: point[1])

    @property
    def heights(self) -> list[float]:
        return [bleu for _, al, bleu in self.points if al is None]


@dataclass(frozen=True)
class Stroke:
    """How a line of ours looks."""

    colour: str
    marker: str
    is_variant: bool = False

    @property
    def width(self) -> float:
        return 1.2 if self.is_variant else 2.2

    @property
    def size(self) -> float:
        """Of the marker."""
        return 4.5 if self.is_variant else 7

    @property
    def weight(self) -> float:
        """How bad it is to cover it, where a reference is 1."""
        return 1 if self.is_variant else 3


def system_colour(name: str) -> str | None:
    """The colour of a system of the field, whatever it was made from and whatever it changes."""
    return SYSTEMS.get("diagonal" if "(diagonal)" in name else bare(name.partition(",")[0]))


def strokes(systems: Sequence[Line]) -> Iterator[tuple[Line, Stroke]]:
    """Every line of ours with its look, each system before its variants."""
    known = [system_colour(system.name) for system in systems]
    others = itertools.cycle([colour for colour in COLOURS if colour not in known] or COLOURS)
    for number, system in enumerate(systems):
        own = known[number]
        colour = own if own and own not in known[:number] else next(others)
        marker = MARKERS[number % len(MARKERS)]
        yield system, Stroke(colour, marker)
        rest = [other for other in MARKERS if other != marker]
        for place, variant in enumerate(system.variants):
            yield variant, Stroke(pale(colour, 0.4), rest[place % len(rest)], is_variant=True)


def pale(colour: str, share: float = 0.5) -> str:
    """With this share of white."""
    red, green, blue = (share + (1 - share) * part for part in to_rgb(colour))
    return to_hex((red, green, blue))
