"""The `sufficiency` command: policies led along the reference of an aligned text, and what they had read by then.

The alignment joins source words to the reference's words, so the reads must be those of the reference's words too:
the model is given them, and the policy only says when. AL is that of the same reads.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from rich.table import Table

from whilst.alignment import encode, farthest, needs, read_alignment, sufficient
from whilst.chart import Curve, Panel, chart
from whilst.checkpoint import Trained
from whilst.console import console, track
from whilst.dataset import Ragged, Split
from whilst.errors import UserError
from whilst.evaluate import choose, loader, pair_name, policy_name, system_name
from whilst.files import sha256, write_json
from whilst.folders import home
from whilst.metrics import average_lagging
from whilst.policy import Policy
from whilst.processes import describe, pick_device, versions
from whilst.text import cleaner, read_pairs
from whilst.vocab import EOS
from whilst.walk import walk_along


@dataclass(frozen=True)
class Aligned:
    """A text with its gold alignment. Links are by the words of the files, whatever a model's units are."""

    source: list[str]
    target: list[str]
    needs: list[dict[int, int]]  # of each sentence: the farthest source word of each aligned target word

    @classmethod
    def read(cls, source: Path, target: Path, alignment: Path, possible: bool, reverse: bool) -> "Aligned":
        pairs = read_pairs((source, target))
        links = read_alignment(alignment, reverse)
        if len(links) != len(pairs):
            raise UserError(f"{alignment}: has {len(links)} lines, but {source} has {len(pairs)}")
        for number, (left, right, line) in enumerate(zip(pairs.source, pairs.target, links, strict=True), start=1):
            words = len(left.split()), len(right.split())
            for link in line:
                if link.source > words[0] or link.target > words[1]:
                    raise UserError(
                        f"{alignment}:{number}: a link from source word {link.source} to target word {link.target},"
                        f" but they have {words[0]} and {words[1]} words; --reverse if the target comes first"
                    )
        return cls(pairs.source, pairs.target, [farthest(line, possible) for line in links])


@dataclass(frozen=True)
class Point:
    """One policy of one run."""

    system: str
    policy: str
    pair: str
    sufficiency: float  # share of all aligned words
    sentence_mean: float  # of the share in each sentence that has one
    al: float  # units, along the reference
    words: int
    sentences: int
    model_sha256: str


def measure(trained: Trained, text: Aligned, name: str, batch: int) -> Point:
    """Lead a policy along the references."""
    data = trained.recipe.data
    clean = cleaner(data, data.source), cleaner(data, data.target)
    sides = [
        (encode(left, clean[0], trained.source), encode(right, clean[1], trained.target))
        for left, right in zip(text.source, text.target, strict=True)
    ]
    # A side may be nothing but words that cleaning takes away.
    kept = [number for number, (left, right) in enumerate(sides) if left.ids and right.ids]
    pairs = [sides[number] for number in kept]
    split = Split(*(Ragged.of([[*units.ids, EOS] for units in side]) for side in zip(*pairs, strict=True)))
    chosen = choose(name, trained, trained.recipe.evaluate, split)
    reads = walk_all(trained, split, chosen, batch)
    lags, met, wanted = [], [], []
    for number, (left, right), row in zip(kept, pairs, reads, strict=True):
        needed = needs(left, right, text.needs[number])
        met.append(sufficient(row, needed))
        wanted.append(len(needed))
        # Without end marks, as everywhere.
        seen = [min(g, len(left.ids)) for g in row[:-1]]
        lags.append(average_lagging(seen, len(left.ids), len(right.ids)))
    shares = [part / whole for part, whole in zip(met, wanted, strict=True) if whole]
    if not shares:
        raise UserError("not one word is aligned: there is no sufficiency to measure")
    return Point(
        system=system_name(trained.recipe, chosen.name),
        policy=policy_name(chosen.name, trained.recipe.evaluate),
        pair=pair_name(trained.recipe),
        sufficiency=round(sum(met) / sum(wanted), 4),
        sentence_mean=round(fmean(shares), 4),
        al=round(fmean(lags), 4),
        words=sum(wanted),
        sentences=len(shares),
        model_sha256=trained.checksum,
    )


def walk_all(trained: Trained, split: Split, policy: Policy, batch: int) -> list[list[int]]:
    """`walk_along` for a whole split, sentences of similar length together; the order stays."""
    order = np.argsort(split.target.lengths, kind="stable").tolist()
    reads: dict[int, list[int]] = {}
    for start in track(range(0, len(order), batch), policy.name, "batches"):
        numbers = order[start : start + batch]
        sources, targets = ([side[n].tolist() for n in numbers] for side in (split.source, split.target))
        reads |= dict(zip(numbers, walk_along(trained.model, sources, targets, policy, numbers), strict=True))
    return [reads[number] for number in range(len(order))]


def sufficiency(
    runs: Sequence[Path],
    files: tuple[Path, Path, Path],  # source, reference, alignment
    policies: Sequence[str],
    possible: bool,
    reverse: bool,
    out: Path,
    overrides: list[str],
    device: str,
) -> list[Point]:
    """Measure each policy of each run; write `out`/sufficiency.json, .png and .svg."""
    text = Aligned.read(*files, possible, reverse)
    points, load = [], loader(overrides, device)
    for run in runs:
        recipe = load(run).recipe
        for name in policies or recipe.evaluate.policies:
            points.append(measure(load(home(run, name)), text, name, recipe.evaluate.batch))
    links = "sure and possible" if possible else "sure"
    table = {
        "links": links,
        "files": {path.name: sha256(path) for path in files},
        "points": [asdict(point) for point in points],
        "command": shlex.join(["whilst", *sys.argv[1:]]),
        "device": describe(pick_device(device)),
        "versions": versions(),
    }
    write_json(out / "sufficiency.json", table)
    title = f"Sufficiency by {links} links, {points[0].sentences} sentences"
    panel = Panel(title, "average lagging along the reference (units)", "share of aligned words", _curves(points))
    chart([panel], out / "sufficiency")
    return points


def _curves(points: Sequence[Point]) -> list[Curve]:
    systems = list(dict.fromkeys(point.system for point in points))
    curves = []
    for system in systems:
        own = sorted((point for point in points if point.system == system), key=lambda point: point.al)
        curves.append(Curve(system, [point.al for point in own], [point.sufficiency for point in own]))
    return curves


def print_points(points: Sequence[Point]) -> None:
    table = Table()
    for name in ("system", "policy"):
        table.add_column(name)
    for name in ("sufficiency", "sentence mean", "AL", "words", "sentences"):
        table.add_column(name, justify="right")
    for point in points:
        figures = f"{point.sufficiency:.3f}", f"{point.sentence_mean:.3f}", f"{point.al:.2f}"
        table.add_row(point.system, point.policy, *figures, f"{point.words:,}", f"{point.sentences:,}")
    console.print(table)
