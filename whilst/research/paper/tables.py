"""The paper's main results with ours beside: a table and a figure for each task, and all of it in one table.

Every number comes from a record or from paper.json. A difference is at equal latency: BLEU read off the straight
lines between our points at the AL that the paper prints, less the paper's.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from whilst.core.errors import UserError
from whilst.core.files import read_json
from whilst.decoding.monotonic_heads import FAR, Head
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import DEFAULTS, Curve, Point, above, joined
from whilst.evaluation.figure import Line, draw, role_of
from whilst.evaluation.identity import NO_LABEL
from whilst.evaluation.paper_numbers import FULL, ORACLE
from whilst.evaluation.report import reference_lines
from whilst.evaluation.tables import NONE, Column, Grid, figure, signed
from whilst.research.paper.document import Block, Items, Picture, Table, Text
from whilst.research.paper.provenance import link, missing
from whilst.research.paper.shelf import (
    DIAGONAL,
    NOT_RUN,
    OURS,
    TRIED,
    Shelf,
    apart,
    beside,
    call,
    cells,
    difference,
    is_tried,
    over_control,
    printed,
    text_of,
)

OVER = "over the diagonal"
TRANSLATING = "translation-based"


def _systems(task: str) -> list[str]:
    """The paper's, less the oracle, which has a table of its own; after multi-path our control on it."""
    names = [name for name in paper.systems(task) if name != ORACLE]
    after = names.index("multi-path") + 1
    return [*names[:after], DIAGONAL, *names[after:]]


def _theirs(task: str, system: str) -> list[Point]:
    return [] if system == DIAGONAL else paper.curve(task, system)


def main_table(task: str, shelf: Shelf) -> list[Block]:
    """All systems of one task, point by point."""
    rows: list[list[str]] = []
    notes: list[str] = []
    after: list[Block] = []
    for system in _systems(task):
        theirs, group, ours = _theirs(task, system), shelf.of_task(task, system), OURS.get(system, system)
        called = call(group, ours)
        for family, name in zip(group, called, strict=True):
            rows += _rows(task, system, name, family, over_control(family, shelf))
            after += alone(task, family, name, shelf) if system == TRANSLATING else []
            after += [*heads(family, name, shelf), shelf.show(family, name)]
        if not group:
            rows += _rows(task, system, ours, None, {})
        notes += apart(group, called)
        wanted = theirs or ([] if group else paper.curve(task, "multi-path"))
        absent = [point.label for point in wanted if not any(family.result(point.label) for family in group)]
        after += missing(task, ours, absent)
    texts = [Column(name, is_text=True) for name in ("system", "point", "our training text")]
    headings = ("our AL", "our BLEU", "seeds", "ours at the paper's AL", "difference", OVER)
    blocks: list[Block] = [Table(Grid([*texts, *map(Column, ("paper AL", "paper BLEU", *headings))], rows))]
    if notes:
        blocks += [Text("Measured with several recipes, which differ in:"), Items(notes)]
    return [*blocks, *after]


def _rows(
    task: str, system: str, name: str, family: Curve | None, over_diagonal: Mapping[str, float]
) -> list[list[str]]:
    rows = []
    for label, point in beside(_theirs(task, system), family):
        at, gain = difference(family, point, system)
        text = text_of(family) if family else NONE
        own = cells(family.result(label) if family else None)
        matched = [NONE if system == FULL else figure(at), signed(gain), signed(over_diagonal.get(label))]
        rows.append([name, label or NONE, text, *printed(point), *own, *matched])
    return rows


def alone(task: str, family: Curve, name: str, shelf: Shelf) -> list[Block]:
    """The usual point of what may have no other: itself beside the paper's, and at its AL what all curves have."""
    point = next((one for one in family.points if one.label == NO_LABEL), None)
    if point is None:
        return []
    theirs = paper.curve(task, TRANSLATING)[0]
    al, their_al = point.al or 0.0, theirs.al or 0.0
    about = (
        f"{name}, WRITE at 0.5: ours {point.bleu:.2f} at AL {al:.2f},"
        f" the paper's {theirs.bleu:.2f} at {their_al:.2f};"
        f" {signed(point.bleu - theirs.bleu)} BLEU and {signed(al - their_al)} AL. At AL {al:.2f} the others have:"
    )
    lines = [(f"the paper's {system}", paper.curve(task, system)) for system in paper.systems(task)]
    for system in _systems(task):
        group = [other for other in shelf.of_task(task, system) if other.pair == family.pair]
        both = zip(call(group, system), group, strict=True)
        lines += [(f"our {one}", other.points) for one, other in both if other is not family]
    rows = []
    for one, curve in lines:
        gain = above(point, curve) if len(curve) > 1 else None
        if gain is not None:
            rows.append([one, figure(point.bleu - gain), signed(gain)])
    columns = [Column("curve", is_text=True), Column("BLEU at this AL"), Column(f"our {name} over it")]
    if not rows:
        return [Text(f"{about} nothing, this AL lies outside of every curve.")]
    return [Text(about), Table(Grid(columns, rows))]


def heads(family: Curve, name: str, shelf: Shelf) -> list[Block]:
    """Of MMA the heads that keep the others waiting, by the files beside the traces."""
    rows = []
    for point in family.results:
        for record in point.records:
            path = record.path.with_name(f"{record.path.stem}.heads.json") if record.path else None
            if path and path.is_file():
                rows.append([point.label, *_latest(path), f"[{path.name}]({link(path, shelf.folder)})"])
    names = ("λ", "heads", "outliers", "latest head", "tokens behind the others", "waited for alone")
    texts = ("λ", "latest head", "file")
    columns = [Column(heading, is_text=heading in texts) for heading in (*names, "file")]
    about = f"{name}, the heads that stop latest. An outlier is more than {FAR:g} source tokens behind the others."
    return [Text(about), Table(Grid(columns, rows))] if rows else []


def _latest(path: Path) -> list[str]:
    """How many heads and outliers a file has, and the head that stops latest."""
    try:
        found = [Head(**row) for row in read_json(path)["heads"]]
        last = max(found, key=lambda head: head.behind)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: damaged; `whilst evaluate` under mma writes it again") from None
    outliers = str(sum(head.is_outlier for head in found))
    where = f"layer {last.layer}, head {last.head}"
    return [str(len(found)), outliers, where, f"{last.behind:+.2f}", f"{last.last:.0%}"]


def curves(task: str, shelf: Shelf) -> Picture:
    """Figure 4 for one task: all our systems over the paper's."""
    lines: list[Line] = []
    texts = set()
    for system in _systems(task):
        group = shelf.of_task(task, system)
        usual = [family for family in group if not family.first.agreement] or group
        for family, name in zip(group, call(group, OURS.get(system, system)), strict=True):
            points = [Point("", None, point.bleu) if system == FULL else point for point in family.points]
            lines.append(Line(name, points, role_of(family.first.system), is_variant=family is not usual[0]))
            texts.add(family.pair)
    stem = shelf.folder / f"curve.{task}"
    title = f"{task} · test" + (" · ours on other training text" if texts - {task} else "")
    draw(lines + reference_lines(task), title, stem)
    return Picture(stem.with_name(f"{stem.name}.svg"), f"{stem.name}.svg", f"BLEU against average lagging, {task}")


def summary(shelf: Shelf) -> Grid:
    """Every system of every task in a line: at how many points it compares, and how."""
    rows = []
    for task in paper.pairs():
        for system in paper.systems(task):
            theirs, group, ours = paper.curve(task, system), shelf.of_task(task, system), OURS.get(system, system)
            if not group:
                rows.append([task, ours, NOT_RUN, *[NONE] * 5])
            for family, name in zip(group, call(group, ours), strict=True):
                found = [one for point in theirs if (one := difference(family, point, system)[1]) is not None]
                figures = [fmean(found), min(found), max(found)] if found else [None, None, None]
                counts = {len(point.records) for point in family.results}
                seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
                is_alone = system == TRANSLATING and len(family.points) < 2
                compared = "no curve" if is_alone else f"{len(found)} of {len(theirs)}"
                rows.append([task, name, text_of(family), compared, *map(signed, figures), seeds])
    texts = [Column(name, is_text=True) for name in ("task", "system", "our training text")]
    names = ("points compared", "mean difference", "least", "most", "seeds")
    return Grid([*texts, *map(Column, names)], rows)


def others(shelf: Shelf) -> list[Block]:
    """What was measured and stands in none of the paper's tables."""
    columns = [Column(name, is_text=True) for name in ("pair", "split", "system", "policy", "changes")]
    rows = []
    for family in shelf.left:
        result = family.first
        ablated = [f"{name} {value} (not {DEFAULTS.get(name, NONE)})" for name, value in result.changes.items()]
        changed = joined(*ablated, result.agreement)
        for point in family.results:
            path = point.first.path
            policy = f"[{point.first.policy}]({link(path, shelf.folder)})" if path else point.first.policy
            place = [point.pair, point.first.split, str(point.system), policy, changed or NONE]
            rows.append([*place, *cells(point), TRIED if is_tried(family) else NONE])
    if not rows:
        return [Text("Nothing: every record stands in a table above.")]
    about = (
        "Changes: of what the paper's ablations vary. What was tried on the way may differ in anything else too"
        " (steps, teacher, regularisers): its records hold every setting. bs-simt (multi-path): not fine-tuned."
    )
    figures = [*map(Column, ("AL", "BLEU", "seeds")), Column("standing", is_text=True)]
    return [Text(about), Table(Grid([*columns, *figures], rows))]
