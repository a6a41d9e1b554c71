"""The quality/latency curve as PNG and SVG: ours solid and coloured, references dashed and muted.

Draws what it is given; where the numbers come from is report.py's business.
"""

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

# Okabe and Ito's colours, which stay apart for colour-blind readers; black and yellow read badly as lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "D", "^", "v", "P")
# References: the same eye for hues, but pale; a reference with the name of one of ours takes its colour, paler.
MUTED = ("#8c8c8c", "#b39b6d", "#7fa894", "#7f9bb0", "#c08e85", "#a78bb5")
DASHES = ((4, 2), (1, 1.5), (6, 2, 1, 2), (3, 1, 1, 1, 1, 1), (8, 3), (2, 2))
REFERENCE_MARKERS = ("x", "s", "^", "v", "D", "P")
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

    def at(self, al: float) -> float:
        """BLEU of the curve at this AL, level beyond its ends."""
        _, als, bleus = zip(*self.curve, strict=True)
        return float(np.interp(al, als, bleus))

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
        figure = Figure(figsize=(8.4, 5.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
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
        solid = [_draw_ours(axes, line, number, ours) for number, line in enumerate(ours)]
        axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=12)
        axes.set_xlabel("average lagging (source units)")
        axes.set_ylabel("BLEU (tokenised, lower-cased)")
        axes.grid(color="#ececec", linewidth=0.8)
        axes.set_axisbelow(True)
        _legends(figure, solid, muted, reference_title)
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


def _draw_ours(axes: Axes, line: Line, number: int, ours: Sequence[Line]) -> Line2D:
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    curve, others = line.curve, [other for other in ours if other is not line]
    for bleu in line.heights:
        # Beside its own curve it is only where that curve leads to.
        axes.axhline(bleu, color=colour, linewidth=1 if curve else 2, linestyle="--" if curve else "-")
        _annotate_height(axes, bleu, colour)
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
    for label, al, bleu in curve:
        # curves rise to the right, so there is room above on the left, or below on the right if a curve is above
        is_top = all(other.at(al) <= bleu for other in others if other.curve)
        axes.annotate(
            label,
            (al, bleu),
            xytext=(4, 7) if is_top else (-4, -7),
            textcoords="offset points",
            ha="right" if is_top else "left",
            va="bottom" if is_top else "top",
            fontsize=9.5,
            color=colour,
            fontweight="bold",
            path_effects=HALO,
            zorder=4,
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
        _annotate_height(axes, bleu, "#6b6b6b")
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


def _annotate_height(axes: Axes, bleu: float, colour: str) -> None:
    """The value at the left end, where curves are low."""
    axes.annotate(
        f"{bleu:.1f}",
        (0, bleu),
        xycoords=axes.get_yaxis_transform(),
        xytext=(5, 4),
        textcoords="offset points",
        fontsize=9.5,
        color=colour,
        path_effects=HALO,
    )


def _legends(figure: Figure, ours: list[Line2D], references: list[Line2D], reference_title: str) -> None:
    """Below the axes, so that no curve is covered."""
    columns, handles = min(4, len(ours)), list(ours)
    if references:  # one column of ours, two of theirs, each group under its name
        columns, rows = 3, max(len(ours), -(-len(references) // 2))
        half = references[:rows], references[rows:]
        handles = [_text("whilst"), *ours, *[_text("")] * (rows - len(ours))]
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
