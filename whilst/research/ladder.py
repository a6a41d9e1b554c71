"""The ladder from the paper's system to ours: BLEU of each rung at equal latency, as a table and a figure.

The rungs are runs of recipes/paper/ladder.toml; each has one more setting of ours than the rung before. BLEU is
interpolated between the points of each seed, so that it has a mean and a deviation.
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
    """The evaluations of a rung."""

    name: str
    change: str
    curve: Curve

    def at(self, latency: Latency, level: float) -> list[float]:
        """BLEU of each seed at this latency; none if a seed has no points on both sides of it."""
        seeds: defaultdict[object, list[Point]] = defaultdict(list)
        for result in self.curve.results:
            for record in result.records:
                scores = record.scores
                if scores.bleu is not None:
                    seeds[seeds_of(record)].append(Point(result.label, vars(scores)[latency], scores.bleu))
        bleus = [interpolate(sorted(points, key=lambda point: point.al or 0.0), level) for points in seeds.values()]
        return [] if None in bleus else [bleu for bleu in bleus if bleu is not None]

    def shown(self, latency: Latency, level: float) -> str:
        values = self.at(latency, level)
        spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        return f"{fmean(values):.2f}{spread}" if values else NONE


def rungs(curves: Sequence[Curve]) -> list[Measured]:
    """The rungs among the curves of one pair, from the paper's system to ours."""
    agents = [curve for curve in curves if curve.kind == "agent" and curve.first.first.split == "test"]
    found = []
    for rung in (rung for rung in typing.get_args(Rung) if rung not in ("", "authors")):
        found += [Measured(rung, CHANGES[rung], curve) for curve in agents if curve.system.rung == rung][:1]
    usual = [curve for curve in agents if curve.system == OURS and not curve.first.change]
    ours = {curve.first.decoding: curve for curve in sorted(usual, key=lambda curve: len(curve.first.records))}
    if "" in ours:
        found.append(Measured("ours", CHANGES[""], ours[""]))
    if THRESHOLD in ours:
        found.append(Measured(THRESHOLD, "WRITE at 0.7", ours[THRESHOLD]))
    return found


def levels_of(measured: Sequence[Measured], pair: str) -> dict[Latency, list[float]]:
    """The latencies at which rungs are compared: the paper's AL, else the last rung's; the DAL of the last rung."""
    last = next(rung for rung in reversed(measured) if rung.name != THRESHOLD).curve.results
    theirs = [point.al for point in paper.curve(pair, paper.BEST) if point.al is not None]
    dal = [value for result in last if (value := result.mean("dal")) is not None]
    return {"al": theirs or [result.al for result in last], "dal": dal}


def ladder(curves: Sequence[Curve], pair: str, folder: Path) -> list[str]:
    """The section of one pair, with its figure in `folder`; nothing if the ladder was not measured."""
    measured = rungs([curve for curve in curves if curve.pair == pair])
    if not any(rung.curve.system.is_between for rung in measured):
        return []
    levels = levels_of(measured, pair)
    columns = [(latency, level) for latency, values in levels.items() for level in values]
    rows = []
    for before, rung in zip([None, *measured], measured, strict=False):
        cells = [rung.shown(latency, level) for latency, level in columns]
        gain = [gained(rung, before, latency, levels[latency]) if before else None for latency in levels]
        rows.append([rung.name, rung.change, str(len(rung.curve.first.records)), *cells, *map(signed, gain)])
    texts = "rung", "change", "seeds"
    headings = [*texts, *(f"{latency.upper()} {level:.2f}" for latency, level in columns)]
    headings += [f"over the rung before, {latency.upper()}" for latency in levels]
    stem = folder / f"ladder.{pair}"
    draw(measured, levels["al"], f"{pair}: from the paper's system to ours", stem)
    picture = f"![BLEU of each rung at equal AL]({stem.name}.svg)"
    return [f"### {pair}", Grid(headings, rows, len(texts)).to_markdown(), picture]


def gained(rung: Measured, before: Measured, latency: Latency, levels: Sequence[float]) -> float | None:
    """Mean difference in BLEU to the rung before, over the levels at which both have a BLEU."""
    both = [(rung.at(latency, level), before.at(latency, level)) for level in levels]
    gains = [fmean(now) - fmean(then) for now, then in both if now and then]
    return fmean(gains) if gains else None


def draw(measured: Sequence[Measured], levels: Sequence[float], title: str, stem: Path) -> None:
    """Draw BLEU over the rungs, with one line for each AL."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 4.8), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        axes.set_ylabel("BLEU (tokenised, lower-cased)")
        axes.set_xticks(range(len(measured)), [rung.name for rung in measured], rotation=40, ha="right")
        for level, (colour, marker) in zip(levels, MARKERS.items(), strict=False):
            shown = {number: values for number, rung in enumerate(measured) if (values := rung.at("al", level))}
            heights = list(map(fmean, shown.values()))
            spread = [stdev(values) if len(values) > 1 else 0.0 for values in shown.values()]
            axes.errorbar(list(shown), heights, spread, color=colour, marker=marker, label=f"AL {level:.2f}")
        axes.legend()
        save(figure, stem)
