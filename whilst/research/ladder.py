"""From the paper's system to ours in single steps: what each is worth at equal latency, as a table and a figure.

The rungs are runs of recipes/paper/ladder.toml, each with one setting more of ours than the one before. BLEU is
read off the straight lines between the points of each seed, so that it has a mean and a deviation.
"""

import typing
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure

from whilst.core.settings import Rung
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import Curve, Point, interpolate, seeds_of
from whilst.evaluation.figure import MARKERS, STYLE, save
from whilst.evaluation.identity import System
from whilst.evaluation.tables import NONE, Grid, signed

Latency = Literal["al", "dal"]
OURS = System("bs-simt", "multi-path")
THRESHOLD = "threshold-0.7"
CHANGES: dict[Rung, str] = {
    "paper": "the paper's text: slope 1",
    "shared": "one model and agent for all intervals",
    "slope": "slope J/I",
    "target": "search by the prediction given the whole source",
    "tolerance": "search with a tolerance",
    "inputs": "lookahead state as input of the agent",
    "not-fine-tuned": "model not fine-tuned on searched reads",
    "copying": "names copied for unknown words",
    "draw": "multi-path with one k for each sentence",
    "schedule": "learning rate, clipping and batches of ours",
    "longest": "multi-path with a largest k",
    "whole": "multi-path with whole sources",
    "": "teacher: ours",
}


@dataclass(frozen=True)
class Measured:
    """A rung that was measured."""

    name: str
    change: str
    curve: Curve

    def at(self, latency: Latency, place: float) -> list[float]:
        """BLEU of each seed at this latency; none if a seed has no points on both sides of it."""
        seeds: defaultdict[object, list[Point]] = defaultdict(list)
        for result in self.curve.results:
            for record in result.records:
                scores = record.scores
                if scores.bleu is not None:
                    seeds[seeds_of(record)].append(Point(result.label, vars(scores)[latency], scores.bleu))
        found = [interpolate(sorted(points, key=lambda point: point.al or 0.0), place) for points in seeds.values()]
        return [] if None in found else [value for value in found if value is not None]

    def shown(self, latency: Latency, place: float) -> str:
        values = self.at(latency, place)
        spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        return f"{fmean(values):.2f}{spread}" if values else NONE


def rungs(curves: Sequence[Curve]) -> list[Measured]:
    """Of the curves of one pair those of the ladder, from the paper's system to ours."""
    agents = [one for one in curves if one.kind == "agent" and one.first.first.split == "test"]
    found = []
    for rung in (rung for rung in typing.get_args(Rung) if rung not in ("", "authors")):
        found += [Measured(rung, CHANGES[rung], one) for one in agents if one.system.rung == rung][:1]
    usual = [one for one in agents if one.system == OURS and not one.first.change]
    ours = {one.first.decoding: one for one in sorted(usual, key=lambda one: len(one.first.records))}
    if "" in ours:
        found.append(Measured("ours", CHANGES[""], ours[""]))
    if THRESHOLD in ours:
        found.append(Measured(THRESHOLD, "WRITE at 0.7", ours[THRESHOLD]))
    return found


def places(found: Sequence[Measured], pair: str) -> dict[Latency, list[float]]:
    """The latencies at which rungs are compared: the paper's AL; DAL of the last rung at its intervals."""
    last = next(rung for rung in reversed(found) if rung.name != THRESHOLD).curve.results
    theirs = [point.al for point in paper.curve(pair, paper.BEST) if point.al is not None]
    dal = [value for result in last if (value := result.mean("dal")) is not None]
    return {"al": theirs or [result.al for result in last], "dal": dal}


def ladder(curves: Sequence[Curve], pair: str, folder: Path) -> list[str]:
    """The section of one pair, with its figure in `folder`; nothing if the ladder was not measured."""
    found = rungs([curve for curve in curves if curve.pair == pair])
    if not any(rung.curve.system.is_between for rung in found):
        return []
    grid = places(found, pair)
    columns = [(latency, place) for latency, values in grid.items() for place in values]
    rows = []
    for before, rung in zip([None, *found], found, strict=False):
        cells = [rung.shown(latency, place) for latency, place in columns]
        gain = [gained(rung, before, latency, grid[latency]) if before else None for latency in grid]
        rows.append([rung.name, rung.change, str(len(rung.curve.first.records)), *cells, *map(signed, gain)])
    texts = "rung", "change", "seeds"
    headings = [*texts, *(f"{latency.upper()} {place:.2f}" for latency, place in columns)]
    headings += [f"over the rung before, {latency.upper()}" for latency in grid]
    stem = folder / f"ladder.{pair}"
    draw(found, grid["al"], f"{pair}: from the paper's system to ours", stem)
    picture = f"![BLEU of each rung at equal AL]({stem.name}.svg)"
    return [f"### {pair}", Grid(headings, rows, len(texts)).to_markdown(), picture]


def gained(rung: Measured, before: Measured, latency: Latency, grid: Sequence[float]) -> float | None:
    """Mean difference to the rung before, where both have a figure."""
    both = [(rung.at(latency, place), before.at(latency, place)) for place in grid]
    gains = [fmean(now) - fmean(then) for now, then in both if now and then]
    return fmean(gains) if gains else None


def draw(found: Sequence[Measured], grid: Sequence[float], title: str, stem: Path) -> None:
    """One line for each AL, over the rungs."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 4.8), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        axes.set_ylabel("BLEU (tokenised, lower-cased)")
        axes.set_xticks(range(len(found)), [rung.name for rung in found], rotation=40, ha="right")
        for place, (colour, marker) in zip(grid, MARKERS.items(), strict=False):
            shown = {number: values for number, rung in enumerate(found) if (values := rung.at("al", place))}
            heights = list(map(fmean, shown.values()))
            spread = [stdev(values) if len(values) > 1 else 0.0 for values in shown.values()]
            axes.errorbar(list(shown), heights, spread, color=colour, marker=marker, label=f"AL {place:.2f}")
        axes.legend()
        save(figure, stem)
