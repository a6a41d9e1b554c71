"""Draw the quality/latency figure as PNG and SVG, reproducible byte by byte; the style of all figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from whilst.core.files import writing
from whilst.evaluation.curves import Point
from whilst.evaluation.identity import System

MAX_LINES = 6
# The systems of a figure, the most important first. A system has the same colour in every figure; most colours are
# those of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = {
    "bs-simt": "#0072B2",
    "multi-path": "#009E73",
    "mma": "#CC79A7",
    "translation-based": "#E69F00",
    "wait-k": "#56B4E9",
    "full-sentence": "#8C6D31",
    "diagonal": "#D55E00",
    "oracle": "#7B4B94",
    "local-agreement": "#44AA99",
    "align-att": "#882255",
}
GREY = "#5B5B5B"  # the first of the paper's curves
MARKERS = dict(zip((*COLOURS.values(), GREY), "osD^vhX<>*P", strict=True))
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "whilst",
    "font.size": 11,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that figures are the same on every machine
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
    """A curve, or a horizontal line at a BLEU if its points have no AL."""

    name: str
    points: Sequence[Point]
    role: str = ""  # a key of COLOURS; any other role is the least important
    is_variant: bool = False  # less important than the usual curve of the system
    is_reference: bool = False  # a dashed line of the paper

    @property
    def rank(self) -> tuple[bool, bool, int]:
        is_dot = len(self.points) == 1 and self.points[0].al is not None
        return self.is_variant, is_dot, [*COLOURS, self.role].index(self.role)


def role_of(system: System) -> str:
    return system.policy if system.policy in COLOURS else system.name


def choose(lines: Sequence[Line]) -> list[Line]:
    """At most MAX_LINES, ours first, the most important first; at least one of the paper's if there is any."""
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
        axes = figure.add_subplot()
        axes.set_title(title)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
        drawn = [_draw(axes, line, colour) for line, colour in zip(chosen, _colours(chosen), strict=True)]
        axes.legend(handles=drawn, handlelength=2.6)
        save(figure, stem)
    return chosen


def _colours(lines: Sequence[Line]) -> list[str]:
    """The first line of ours with a role has the colour of the role; other lines have colours that are left."""
    roles = {line.role for line in lines if not line.is_reference}
    by_role = {role: colour for role, colour in COLOURS.items() if role in roles}
    left = [*(colour for role, colour in COLOURS.items() if role not in roles), GREY]
    return [left.pop() if line.is_reference else by_role.pop(line.role, "") or left.pop(0) for line in lines]


def _draw(axes: Axes, line: Line, colour: str) -> Line2D:
    curve = [(point.al, point.bleu) for point in line.points if point.al is not None]
    if not curve:
        heights = [axes.axhline(p.bleu, color=colour, linestyle=":", linewidth=1.8) for p in line.points]
        heights[0].set_label(line.name)
        return heights[0]
    als, bleus = zip(*curve, strict=True)
    face, edge, dashes = ("white", colour, "--") if line.is_reference else (colour, "white", "-")
    (drawn,) = axes.plot(als, bleus, color=colour, linestyle=dashes, linewidth=1.8, marker=MARKERS[colour])
    spread = [point.deviation for point in line.points if point.al is not None]
    if any(spread):  # mean ± deviation over seeds
        axes.errorbar(als, bleus, spread, fmt="none", ecolor=colour, elinewidth=1.2, capsize=2.5)
    drawn.set(markersize=6, markerfacecolor=face, markeredgecolor=edge, label=line.name)
    return drawn


def save(figure: Figure, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg, without dates and versions of programs."""
    for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
        with writing(stem.with_name(stem.name + suffix)) as temporary:
            figure.savefig(temporary, format=suffix[1:], dpi=160, metadata=metadata)
