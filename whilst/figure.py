"""The quality/latency curve as PNG and SVG: ours solid and coloured, references dashed and muted.

Draws what it is given; where the numbers come from is report.py's business, and where labels go is placing.py's.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from whilst.files import writing
from whilst.placing import AROUND, Array, Box, Label, place

# Okabe and Ito's colours, which stay apart for colour-blind readers; black and yellow read badly as lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "D", "^", "v", "P")
# References: the same eye for hues, but pale; a reference with the name of one of ours takes its colour, paler.
MUTED = ("#8c8c8c", "#b39b6d", "#7fa894", "#7f9bb0", "#c08e85", "#a78bb5")
DASHES = ((4, 2), (1, 1.5), (6, 2, 1, 2), (3, 1, 1, 1, 1, 1), (8, 3), (2, 2))
REFERENCE_MARKERS = ("x", "s", "^", "v", "D", "P")
GREY = "#6b6b6b"
ENDS = ((1, 1), (1, -1), (4, 1), (4, -1))  # at the left end, above or below, or a label further to the right
MARKER = np.array([(-4, 0), (0, 4), (4, 0), (0, -4), (-4, 0)])  # pixels
HALO = [withStroke(linewidth=2.5, foreground="white")]


@dataclass(frozen=True)
class Line:
    """One system. `points` are (label, AL, BLEU); an AL of None is a system that reads everything first."""

    name: str
    points: Sequence[tuple[str, float | None, float]]

    @property
    def curve(self) -> list[tuple[str, float, float]]:
        known = [(label, al, bleu) for label, al, bleu in self.points if al is not None]
        return sorted(known, key=lambda point: point[1])

    @property
    def heights(self) -> list[float]:
        return [bleu for _, al, bleu in self.points if al is None]


def draw(ours: Sequence[Line], references: Sequence[Line], title: str, reference_title: str, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg; the same input gives the same bytes."""
    settings: Any = {
        "svg.hashsalt": "whilst",
        "font.size": 11,
        "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(settings):
        height = 5.4 + 0.2 * max(0, len(ours) - 3) * bool(references)  # or a long legend would squeeze the axes
        figure = Figure(figsize=(8.4, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        limits = _limits(ours, references)
        axes.set_xlim(*limits[0])
        axes.set_ylim(*limits[1])
        colours = {line.name: COLOURS[number % len(COLOURS)] for number, line in enumerate(ours)}
        muted = [
            _draw_reference(axes, line, number, colours.get(line.name, MUTED[number % len(MUTED)]))
            for number, line in enumerate(references)
        ]
        solid = [_draw_ours(axes, line, number) for number, line in enumerate(ours)]
        axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=12)
        axes.set_xlabel("average lagging (source units)")
        axes.set_ylabel("BLEU (tokenised, lower-cased)")
        axes.grid(color="#ececec", linewidth=0.8)
        axes.set_axisbelow(True)
        _legends(figure, solid, muted, reference_title)
        figure.draw_without_rendering()  # the legend sets the size of the axes, and that the place of labels
        _label(axes, ours, references)
        for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
            path = stem.with_name(stem.name + suffix)
            with writing(path) as temporary:
                figure.savefig(temporary, format=suffix[1:], dpi=160, metadata=metadata)


def _limits(ours: Sequence[Line], references: Sequence[Line]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Room for all of ours, and for the curves and heights of references: a lone point of theirs may be far off."""
    curves = [line.curve for line in ours] + [line.curve for line in references if len(line.curve) > 1]
    als = [al for curve in curves for _, al, _ in curve] or [0.0, 1.0]
    bleus = [bleu for curve in curves for _, _, bleu in curve]
    bleus += [bleu for line in (*ours, *references) for bleu in line.heights]
    wide = max(max(als) - min(als), 1.0)
    high = max(max(bleus) - min(bleus), 1.0)
    return (min(als) - 0.06 * wide, max(als) + 0.06 * wide), (min(bleus) - 0.08 * high, max(bleus) + 0.1 * high)


def _draw_ours(axes: Axes, line: Line, number: int) -> Line2D:
    colour, marker, curve = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], line.curve
    for bleu in line.heights:
        # Beside its own curve it is only where that curve leads to.
        axes.axhline(bleu, color=colour, linewidth=1 if curve else 2, linestyle="--" if curve else "-")
    axes.plot(
        [al for _, al, _ in curve],
        [bleu for _, _, bleu in curve],
        color=colour,
        linewidth=2.2,
        marker=marker,
        markersize=7,
        markeredgecolor="white",
        zorder=3,
    )
    shown = marker if curve else ""
    return Line2D([], [], color=colour, linewidth=2.2, marker=shown, markeredgecolor="white", label=line.name)


def _draw_reference(axes: Axes, line: Line, number: int, strong: str) -> Line2D:
    colour = _pale(strong) if strong in COLOURS else strong
    dashes = DASHES[number % len(DASHES)]
    marker = REFERENCE_MARKERS[number % len(REFERENCE_MARKERS)] if line.curve else ""
    label = line.name
    for bleu in line.heights:
        axes.axhline(bleu, color=colour, linewidth=1.2, dashes=dashes, zorder=1)
    als, bleus = [al for _, al, _ in line.curve], [bleu for _, _, bleu in line.curve]
    drawn = Line2D(als, bleus, zorder=2)
    axes.add_line(drawn)
    if len(line.curve) == 1 and not _is_inside(axes, als[0], bleus[0]):
        label += f" ({bleus[0]:.1f} at {als[0]:.1f}: outside)"
    key = Line2D([], [], label=label)
    for artist in (drawn, key):
        artist.set(color=colour, linewidth=1.4, marker=marker, markersize=5, markerfacecolor="white")
        artist.set_dashes(dashes)
    return key


def _pale(colour: str) -> str:
    red, green, blue = to_rgb(colour)
    return to_hex((0.5 + red / 2, 0.5 + green / 2, 0.5 + blue / 2))


def _is_inside(axes: Axes, al: float, bleu: float) -> bool:
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return left <= al <= right and low <= bleu <= high


def _label(axes: Axes, ours: Sequence[Line], references: Sequence[Line]) -> None:
    """Name our points and all heights, as far off lines and each other as there is room."""
    (left, right), low, high = axes.get_xlim(), *axes.get_ylim()
    start = left + 0.006 * (right - left)  # off the axis
    # text, AL, BLEU, colour, sides; heights first, since they have the fewest places to go to
    wanted: list[tuple[str, float, float, str, Sequence[tuple[int, int]]]] = []
    for line, colour in [(line, GREY) for line in references] + list(zip(ours, itertools.cycle(COLOURS))):
        wanted += [(f"{bleu:.1f}", start, bleu, colour, ENDS) for bleu in line.heights]
    for line, colour in zip(ours, itertools.cycle(COLOURS)):
        wanted += [(label, al, bleu, colour, AROUND) for label, al, bleu in line.curve]
    texts = [
        axes.annotate(
            text,
            (al, bleu),
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9.5,
            color=colour,
            fontweight="bold" if sides is AROUND else "normal",
            path_effects=HALO,
            zorder=4,
            in_layout=False,  # or the axes would change their size once more
        )
        for text, al, bleu, colour, sides in wanted
    ]
    labels = []
    for text, (_, al, bleu, _, sides) in zip(texts, wanted, strict=True):
        x, y = axes.transData.transform((al, bleu))
        extent = text.get_window_extent()
        labels.append(Label(x, y, extent.width, extent.height, sides))
    corners = axes.transData.transform([(left, low), (right, high)])
    boxes = place(labels, _obstacles(axes, ours, references), Box(*corners[0], *corners[1]))
    for text, label, box in zip(texts, labels, boxes, strict=True):
        points = 72 / axes.figure.dpi  # in a pixel
        middle = (box.left + box.right) / 2 - label.x, (box.low + box.high) / 2 - label.y
        text.set_position((middle[0] * points, middle[1] * points))


def _obstacles(axes: Axes, ours: Sequence[Line], references: Sequence[Line]) -> list[tuple[Array, float]]:
    """All lines and markers in pixels; a label hides more of a solid line than of a pale, dashed one."""
    found = []
    for line, weight in [(line, 3.0) for line in ours] + [(line, 1.0) for line in references]:
        curve = np.array([(al, bleu) for _, al, bleu in line.curve]).reshape(-1, 2)
        drawn = axes.transData.transform(curve)
        found += [(drawn, weight), *((point + MARKER, weight) for point in drawn)]
        ends = [[(al, bleu) for al in axes.get_xlim()] for bleu in line.heights]
        found += [(axes.transData.transform(end), weight) for end in ends]
    return found


def _legends(figure: Figure, ours: list[Line2D], references: list[Line2D], reference_title: str) -> None:
    """Below the axes, so that no curve is covered."""
    columns, handles = min(4, len(ours)), list(ours)
    if references:  # one column of ours, two of theirs, each group under its name
        middle = -(-len(references) // 2)
        rows, half = max(len(ours), middle), (references[:middle], references[middle:])
        handles = [_text("whilst"), *ours, *[_text("")] * (rows - len(ours))] if ours else []
        columns = 3 if ours else 2
        handles += [_text(reference_title), *half[0], *[_text("")] * (rows - len(half[0]))]
        handles += [_text(""), *half[1], *[_text("")] * (rows - len(half[1]))]
    legend = figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=10, handlelength=2.6
    )
    for text in legend.get_texts():
        if text.get_text() in ("whilst", reference_title):
            text.set_fontweight("bold")


def _text(label: str) -> Line2D:
    """An entry of the legend without a line."""
    return Line2D([], [], linestyle="", label=label)
