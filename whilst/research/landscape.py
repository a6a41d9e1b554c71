"""The picture of an explanation: chances as shades, the search interval, the found reads and the agent's path."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from rich.text import Text

from whilst.core.console import console
from whilst.core.files import writing
from whilst.research.explain import Explanation

FOUND, AGENT = "#D55E00", "#009E73"
SHADES = " ░▒▓█"


def draw(explanation: Explanation, out: Path) -> None:
    """Write the picture; its kind follows from the name (.png, .svg, .pdf)."""
    rows, columns = explanation.chances.shape
    figure = Figure(figsize=(2.4 + 0.5 * columns, 2.2 + 0.36 * rows), layout="constrained")
    axes = figure.add_subplot()
    shades = axes.imshow(explanation.chances, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    figure.colorbar(shades, ax=axes, label="probability of the target token", shrink=0.8)
    for row, (low, high) in enumerate(zip(explanation.low, explanation.high, strict=True)):
        box = Rectangle((low - 1.5, row - 0.5), high - low + 1, 1, fill=False, edgecolor="#8c8c8c", linewidth=0.8)
        axes.add_patch(box)
    places = range(rows)
    # READs go to the right, WRITEs go down.
    points = [g - 1 for g in explanation.found]
    axes.plot(points, places, "o-", color=FOUND, drawstyle="steps-post", label="found by search")
    if explanation.agent is not None:
        points = [g - 1 for g in explanation.agent]
        axes.plot(points, places, "D--", color=AGENT, markersize=5, drawstyle="steps-post", label="agent")
    axes.plot([], [], color="#8c8c8c", linewidth=0.8, label="search interval")
    axes.set_xticks(range(columns), [_plain(unit) for unit in explanation.source], rotation=50, ha="right")
    axes.set_yticks(range(rows), [_plain(unit) for unit in explanation.target])
    axes.set_xlabel("last source token read")
    axes.set_ylabel("target token")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    with mpl.rc_context({"svg.hashsalt": "whilst"}), writing(out) as temporary:
        figure.savefig(temporary, dpi=150, format=out.suffix.removeprefix(".") or "png")


def _plain(unit: str) -> str:
    """A unit as matplotlib should print it: `$` would begin a formula."""
    return unit.replace("$", r"\$")


def print_landscape(explanation: Explanation) -> None:
    """The same for the terminal: a column for each number of reads."""
    wide = max(map(len, explanation.target))
    agent = explanation.agent
    for row, unit in enumerate(explanation.target):
        line = Text(f"{unit:>{wide}} ")
        for column, chance in enumerate(explanation.chances[row].tolist()):
            reads = column + 1
            inside = explanation.low[row] <= reads <= explanation.high[row]
            mark = SHADES[min(int(chance * len(SHADES)), len(SHADES) - 1)] * 2
            style = "blue" if inside else "bright_black"
            if reads == explanation.found[row]:
                mark, style = mark[0] + "●", "bold dark_orange"
            if agent is not None and reads == agent[row]:
                mark, style = "◆" + mark[1], "bold green"
            line.append(mark, style=style)
        before = explanation.found[row - 1] if row else 0
        line.append(f"  {' '.join(explanation.source[before : explanation.found[row]])}", style="dim")
        console.print(line, soft_wrap=True)
    shades = "  ".join(f"{shade}{shade} {i / len(SHADES):.0%}+" for i, shade in enumerate(SHADES) if i)
    console.print(f"{shades}   ● found by search   ◆ agent   blue: search interval", style="dim", soft_wrap=True)
