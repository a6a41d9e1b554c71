"""Plain line charts, one panel or some side by side, as PNG and SVG. Draws what it is given."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from whilst.core.files import writing
from whilst.evaluation.lines import COLOURS, MARKERS

MANY = 40  # points, from which on markers would hide the line; a line over another is dashed then


@dataclass(frozen=True)
class Curve:
    name: str  # empty: not in the legend
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str | None = None  # None: the next of the usual ones, with markers if there are few points


@dataclass(frozen=True)
class Panel:
    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    from_zero: bool = False  # whether heights begin there, so that they compare as lengths


def chart(panels: Sequence[Panel], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg; the same input gives the same bytes."""
    settings: Any = {
        "svg.hashsalt": "whilst",
        "font.size": 11,
        "font.family": "DejaVu Sans",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(max(7.0, 5.8 * len(panels)), 4.6), layout="constrained")
        for number, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(1, len(panels), number)
            for place, curve in enumerate(panel.curves):
                plain, many = curve.colour is None, len(curve.xs) > MANY
                axes.plot(
                    curve.xs,
                    curve.ys,
                    color=curve.colour or COLOURS[place % len(COLOURS)],
                    linewidth=2.2 if plain and not many else 1.6,
                    linestyle="--" if plain and many and place else "-",
                    marker=MARKERS[place % len(MARKERS)] if plain and not many else None,
                    markeredgecolor="white",
                    label=curve.name or None,
                )
            axes.set_title(panel.title, loc="left", fontsize=11, fontweight="bold")
            axes.set_xlabel(panel.x)
            axes.set_ylabel(panel.y)
            axes.grid(color="#ececec", linewidth=0.8)
            axes.set_axisbelow(True)
            if panel.from_zero:
                axes.set_ylim(bottom=0)
            if any(curve.name for curve in panel.curves):
                axes.legend(frameon=False, fontsize=9.5)
        for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
            with writing(stem.with_name(stem.name + suffix)) as temporary:
                figure.savefig(temporary, format=suffix[1:], dpi=160, metadata=metadata)
