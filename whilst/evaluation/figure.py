"""The quality/latency figure as PNG and SVG, and the style of all figures. The same input gives the same bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from whilst.core.files import writing
from whilst.evaluation.curves import Point
from whilst.evaluation.identity import System

MAX_LINES = 6
# Okabe and Ito's colours, which colour-blind readers can tell apart, without those that are hard to see as lines,
# and two darker ones.
COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B", "#D55E00", "#7B4B94")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<")
# The systems of a figure, the most important first. Each has the same colour in every figure.
RANKED = "bs-simt", "multi-path", "mma", "translation-based", "wait-k", "full-sentence", "diagonal", "oracle"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "whilst",
    "font.size": 11,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ececec",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
}


@dataclass(frozen=True)
class Line:
    """A curve, or a height if its points have no AL."""

    name: str
    points: Sequence[Point]
    role: str = ""  # one of RANKED; others come last
    is_variant: bool = False  # comes after the others
    is_reference: bool = False  # of the paper: dashed

    @property
    def rank(self) -> tuple[bool, bool, int]:
        is_dot = len(self.points) == 1 and self.points[0].al is not None
        return self.is_variant, is_dot, RANKED.index(self.role) if self.role in RANKED else len(RANKED)


def role_of(system: System) -> str:
    return system.policy if system.policy in ("diagonal", "oracle") else system.name


def choose(lines: Sequence[Line]) -> list[Line]:
    """The most important lines, ours first; one of the paper always."""
    ordered = sorted(lines, key=lambda line: line.rank)
    ours, references = ([line for line in ordered if line.is_reference is side] for side in (False, True))
    ours = ours[: MAX_LINES - bool(references)]
    return ours + references[: MAX_LINES - len(ours)]


def draw(
    lines: Sequence[Line],
    title: str,
    stem: Path,
    names: tuple[str, str] = ("average lagging (source units)", "BLEU (tokenised, lower-cased)"),
) -> list[Line]:
    """Write `stem`.png and `stem`.svg with the most important lines, which are returned. `names`: of the axes."""
    chosen = choose(lines)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.4, 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_title(title)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
        drawn = [_draw(axes, line, colour) for line, colour in zip(chosen, _colours(chosen), strict=True)]
        axes.legend(handles=drawn, handlelength=2.6)
        if chosen:
            _label(axes, chosen[0], drawn)
        save(figure, stem)
    return chosen


def _colours(lines: Sequence[Line]) -> list[str]:
    """Of its role for the first line that has it, then what is left; references begin with grey."""
    own = dict(zip(RANKED, COLOURS, strict=True))
    given: dict[int, str] = {}
    for number, line in enumerate(lines):
        colour = own.get(line.role)
        if colour and colour not in given.values() and not line.is_reference:
            given[number] = colour
    left = [colour for colour in COLOURS if colour not in given.values()]
    left.sort(key=lambda colour: colour == own["full-sentence"])  # grey last
    for number, line in enumerate(lines):
        if number not in given:
            given[number] = left.pop(-1 if line.is_reference else 0)
    return [given[number] for number in range(len(lines))]


def _draw(axes: Axes, line: Line, colour: str) -> Line2D:
    marker = MARKERS[COLOURS.index(colour)]
    dashes = "--" if line.is_reference else "-"
    curve = [(point.al, point.bleu) for point in line.points if point.al is not None]
    if not curve:
        heights = [axes.axhline(p.bleu, color=colour, linestyle=":", linewidth=1.8) for p in line.points]
        heights[0].set_label(line.name)
        return heights[0]
    als, bleus = zip(*curve, strict=True)
    face = "white" if line.is_reference else colour
    (drawn,) = axes.plot(als, bleus, color=colour, linestyle=dashes, linewidth=1.8, marker=marker, markersize=6)
    drawn.set(markerfacecolor=face, markeredgecolor=colour if line.is_reference else "white", label=line.name)
    return drawn


def _label(axes: Axes, line: Line, drawn: Sequence[Line2D]) -> None:
    """Label the points of a line, unless labels would overlap each other or a line."""
    style: dict[str, Any] = {"fontsize": 8.5, "color": "#6b6b6b", "ha": "right", "in_layout": False}
    texts = [
        axes.annotate(point.label, (point.al, point.bleu), (-4, 5), textcoords="offset points", **style)
        for point in line.points
        if point.al is not None
    ]
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    boxes = [text.get_window_extent() for text in texts]
    paths = [one.get_path().transformed(one.get_transform()) for one in drawn]
    overlaps = any(a.overlaps(b) for number, a in enumerate(boxes) for b in boxes[:number])
    if overlaps or any(path.intersects_bbox(box, filled=False) for path in paths for box in boxes):
        for text in texts:
            text.remove()


def save(figure: Figure, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg, without dates and versions."""
    for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
        with writing(stem.with_name(stem.name + suffix)) as temporary:
            figure.savefig(temporary, format=suffix[1:], dpi=160, metadata=metadata)
