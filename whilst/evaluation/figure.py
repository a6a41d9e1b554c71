"""The quality/latency curve as PNG and SVG: ours solid and coloured, variants thinner, references dashed and muted.

Draws what it is given; where the numbers come from is report.py's business, and where labels go is placing.py's.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation

from whilst.core.files import writing
from whilst.evaluation.identity import NAMELESS
from whilst.evaluation.lines import Line, Stroke, pale, strokes, system_colour
from whilst.evaluation.placing import AROUND, Array, Box, Label, place

# References: a system of the field has its own colour, paler; others are muted.
MUTED = ("#8c8c8c", "#b39b6d", "#7fa894", "#7f9bb0", "#c08e85", "#a78bb5")
DASHES = ((4, 2), (1, 1.5), (6, 2, 1, 2), (3, 1, 1, 1, 1, 1), (8, 3), (2, 2))
REFERENCE_MARKERS = ("x", "s", "^", "v", "D", "P")
GREY = "#6b6b6b"
ENDS = ((1, 1), (1, -1), (4, 1), (4, -1))  # at the left end, above or below, or a label further to the right
MARKER = np.array([(-4, 0), (0, 4), (4, 0), (0, -4), (-4, 0)])  # pixels
WIDE, KEY = 96, 8  # characters of the legend that fit beside each other; the line before a name takes so many
VARIANT = "   … "  # before its name in the legend, where it stands under its system
FAR = 10.0  # pixels between a point and its label, from which on a thin line leads from one to the other
STYLE: Any = {
    "svg.hashsalt": "whilst",
    "font.size": 11,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "axes.spines.top": False,
    "axes.spines.right": False,
}
HALO = [withStroke(linewidth=2.5, foreground="white")]


def draw(
    ours: Sequence[Line],
    references: Sequence[Line],
    title: str,
    reference_title: str,
    stem: Path,
    names: tuple[str, str] = ("average lagging (source units)", "BLEU (words as they stand, lower-cased)"),
) -> None:
    """Write `stem`.png and `stem`.svg; the same input gives the same bytes. `names` are those of the axes."""
    with mpl.rc_context(STYLE):
        drawn = list(strokes(ours))
        height = 5.4 + 0.25 * max(0, len(drawn) - 3) * bool(references)  # or a long legend would squeeze the axes
        figure = Figure(figsize=(8.4, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        limits = _limits([line for line, _ in drawn], references)
        axes.set_xlim(*limits[0])
        axes.set_ylim(*limits[1])
        muted = [_draw_reference(axes, line, number) for number, line in enumerate(references)]
        solid = [_draw_ours(axes, line, stroke) for line, stroke in drawn]
        axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=12)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
        axes.grid(color="#ececec", linewidth=0.8)
        axes.set_axisbelow(True)
        _legends(figure, solid, muted, reference_title)
        figure.draw_without_rendering()  # the legend sets the size of the axes, and that the place of labels
        _label(axes, drawn, references)
        save(figure, stem)


def save(figure: Figure, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg without dates or versions."""
    for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
        with writing(stem.with_name(stem.name + suffix)) as temporary:
            figure.savefig(temporary, format=suffix[1:], dpi=160, metadata=metadata)


def _limits(ours: Sequence[Line], references: Sequence[Line]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Room for all of ours, and for the curves and heights of references: a lone point of theirs may be far off."""
    curves = [line.curve for line in ours] + [line.curve for line in references if len(line.curve) > 1]
    als = [al for curve in curves for _, al, _ in curve] or [0.0, 1.0]
    bleus = [bleu for curve in curves for _, _, bleu in curve]
    bleus = bleus + [bleu for line in (*ours, *references) for bleu in line.heights] or [0.0, 1.0]
    wide = max(max(als) - min(als), 1.0)
    high = max(max(bleus) - min(bleus), 1.0)
    return (min(als) - 0.06 * wide, max(als) + 0.06 * wide), (min(bleus) - 0.08 * high, max(bleus) + 0.1 * high)


def _draw_ours(axes: Axes, line: Line, stroke: Stroke) -> Line2D:
    colour, curve = stroke.colour, line.curve
    for bleu in line.heights:
        # Beside its own curve it is only where that curve leads to.
        is_aside = bool(curve) or stroke.is_variant
        axes.axhline(bleu, color=colour, linewidth=1 if is_aside else 2, linestyle="--" if is_aside else "-")
    drawn = Line2D([al for _, al, _ in curve], [bleu for _, _, bleu in curve], zorder=3 - 0.5 * stroke.is_variant)
    axes.add_line(drawn)
    key = Line2D([], [], label=f"{VARIANT}{line.name}" if stroke.is_variant else line.name)
    for artist in (drawn, key):
        artist.set(color=colour, linewidth=stroke.width, marker=stroke.marker if curve else "")
        artist.set(markersize=stroke.size, markeredgecolor=colour if stroke.is_variant else "white")
    if stroke.is_variant and not curve:
        key.set_linestyle("--")
    return key


def _draw_reference(axes: Axes, line: Line, number: int) -> Line2D:
    strong = system_colour(line.name)
    colour = pale(strong) if strong else MUTED[number % len(MUTED)]
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


def _is_inside(axes: Axes, al: float, bleu: float) -> bool:
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return left <= al <= right and low <= bleu <= high


def _label(axes: Axes, ours: Sequence[tuple[Line, Stroke]], references: Sequence[Line]) -> None:
    """Name our systems' points and all heights but variants', as far off lines as there is room.

    Where points crowd, some have no name; those beside them on their curve tell which they are.
    """
    (left, right), low, high = axes.get_xlim(), *axes.get_ylim()
    start = left + 0.006 * (right - left)  # off the axis
    # text, AL, BLEU, colour, sides; heights first, since they have the fewest places to go to
    wanted: list[tuple[str, float, float, str, Sequence[tuple[int, int]]]] = []
    systems = [(line, stroke.colour) for line, stroke in ours if not stroke.is_variant]
    for line, colour in [(line, GREY) for line in references] + systems:
        wanted += [(f"{bleu:.1f}", start, bleu, colour, ENDS) for bleu in line.heights]
    for line, colour in systems:
        wanted += [(label, al, bleu, colour, AROUND) for label, al, bleu in line.curve if label != NAMELESS]
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
        labels.append(Label(x, y, extent.width + 4, extent.height + 2, sides))  # its halo, and room to the next
    corners = axes.transData.transform([(left, low), (right, high)])
    boxes = place(labels, _obstacles(axes, ours, references), Box(*corners[0], *corners[1]))
    for text, label, box in zip(texts, labels, boxes, strict=True):
        if box is None:
            text.remove()
            continue
        points = 72 / axes.figure.dpi  # in a pixel
        middle = (box.left + box.right) / 2 - label.x, (box.low + box.high) / 2 - label.y
        text.set_position((middle[0] * points, middle[1] * points))
        if label.sides is AROUND:
            _lead(axes, text, box, label)


def _lead(axes: Axes, text: Annotation, box: Box, label: Label) -> None:
    """A thin line from a label that had to go far to its point."""
    x, y = np.clip((label.x, label.y), (box.left, box.low), (box.right, box.high)) - (label.x, label.y)
    if np.hypot(x, y) < FAR:
        return
    points = 72 / axes.figure.dpi
    stroke = {"arrowstyle": "-", "color": text.get_color(), "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
    offset: Any = {"xytext": (x * points, y * points), "textcoords": "offset points", "arrowprops": stroke}
    axes.annotate("", text.xy, **offset, zorder=3.5, in_layout=False)


def _obstacles(
    axes: Axes, ours: Sequence[tuple[Line, Stroke]], references: Sequence[Line]
) -> list[tuple[Array, float]]:
    """All lines and markers in pixels; a label hides more of a solid line than of a pale, dashed one."""
    found = []
    for line, weight in [(line, stroke.weight) for line, stroke in ours] + [(line, 1.0) for line in references]:
        curve = np.array([(al, bleu) for _, al, bleu in line.curve]).reshape(-1, 2)
        drawn = axes.transData.transform(curve)
        found += [(drawn, weight), *((point + MARKER, weight) for point in drawn)]
        ends = [[(al, bleu) for al in axes.get_xlim()] for bleu in line.heights]
        found += [(axes.transData.transform(end), weight) for end in ends]
    return found


def _legends(figure: Figure, ours: list[Line2D], references: list[Line2D], reference_title: str) -> None:
    """Below the axes, so that no curve is covered."""
    if references:  # one column of ours, two of theirs, each group under its name
        middle = -(-len(references) // 2)
        columns = [[_text(reference_title), *references[:middle]], [_text(""), *references[middle:]]]
        columns = [[_text("whilst"), *ours], *columns] if ours else columns
    else:
        columns = _side_by_side(_by_system(ours))
    rows = max(map(len, columns))
    handles = [key for column in columns for key in (*column, *[_text("")] * (rows - len(column)))]
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(columns),
        frameon=False,
        fontsize=10,
        handlelength=2.6,
        labelspacing=0.35,
    )
    for text in legend.get_texts():
        if text.get_text() in ("whilst", reference_title):
            text.set_fontweight("bold")
        elif text.get_text().startswith(VARIANT):
            text.set_fontsize(9)


def _side_by_side(systems: Sequence[Sequence[Line2D]]) -> list[list[Line2D]]:
    """In as many columns as the figure is wide enough for, at most four."""
    for count in range(min(4, len(systems)), 0, -1):
        columns = [list(itertools.chain(*systems[place::count])) for place in range(count)]
        if sum(KEY + max(len(str(key.get_label())) for key in column) for column in columns) <= WIDE:
            break
    return columns


def _by_system(keys: Sequence[Line2D]) -> list[list[Line2D]]:
    """Each system's key, with those of its variants after it."""
    found: list[list[Line2D]] = []
    for key in keys:
        if str(key.get_label()).startswith(VARIANT):
            found[-1].append(key)
        else:
            found.append([key])
    return found


def _text(label: str) -> Line2D:
    """An entry of the legend without a line."""
    return Line2D([], [], linestyle="", label=label)
