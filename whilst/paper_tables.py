"""The paper's main results with ours beside: a table and a figure for each task, and all of it in one table.

Every number comes from a record or from paper.json. A difference is at equal latency: BLEU read off the straight
lines between our points at the AL that the paper prints, less the paper's.
"""

from statistics import fmean

from whilst import paper
from whilst.document import Block, Items, Picture, Table, Text
from whilst.families import DEFAULTS, Family
from whilst.figure import draw
from whilst.lines import Line
from whilst.paper import FULL
from whilst.provenance import link, missing
from whilst.report import PAPER, reference_lines
from whilst.shelf import NOT_RUN, ORACLE, OURS, Shelf, apart, beside, call, cells, difference, printed, text_of
from whilst.tables import NONE, Column, Grid, figure, signed


def _systems(task: str) -> list[str]:
    """The oracle has a table of its own."""
    return [name for name in paper.systems(task) if name != ORACLE]


def main_table(task: str, shelf: Shelf) -> list[Block]:
    """All systems of one task, point by point."""
    rows: list[list[str]] = []
    notes: list[str] = []
    after: list[Block] = []
    for system in _systems(task):
        theirs, group, ours = paper.curve(task, system), shelf.of_task(task, system), OURS.get(system, system)
        called = call(group, ours)
        for family, name in zip(group, called, strict=True):
            rows += _rows(task, system, name, family)
            after.append(shelf.show(family, name))
        if not group:
            rows += _rows(task, system, ours, None)
        notes += apart(group, called)
        absent = [point.label for point in theirs if not any(family.point(point.label) for family in group)]
        if absent:
            after.append(missing(task, ours, absent, shelf.known))
    texts = [Column(name, is_text=True) for name in ("system", "point", "our training text")]
    headings = ("paper AL", "paper BLEU", "our AL", "our BLEU", "seeds", "ours at the paper's AL", "difference")
    blocks: list[Block] = [Table(Grid([*texts, *map(Column, headings)], rows))]
    if notes:
        blocks += [Text("Measured with several recipes, which differ in:"), Items(notes)]
    return [*blocks, *after]


def _rows(task: str, system: str, name: str, family: Family | None) -> list[list[str]]:
    rows = []
    for label, point in beside(paper.curve(task, system), family):
        at, above = difference(family, point, system)
        text = text_of(family) if family else NONE
        own = cells(family.point(label) if family else None)
        matched = [NONE if system == FULL else figure(at), signed(above)]
        rows.append([name, label or NONE, text, *printed(point), *own, *matched])
    return rows


def curves(task: str, shelf: Shelf) -> Picture:
    """Figure 4 for one task: all our systems over the paper's."""
    lines, texts = [], set()
    for system in _systems(task):
        group = shelf.of_task(task, system)
        for family, name in zip(group, call(group, OURS.get(system, system)), strict=True):
            points = [(point.label, None if system == FULL else point.al, point.bleu) for point in family.curve]
            lines.append(Line(name, points))
            texts.add(family.pair)
    references = [line for line in reference_lines(task) if line.name != ORACLE]
    stem = shelf.folder / f"curve.{task}"
    title = f"{task} · test" + (" · ours on other training text" if texts - {task} else "")
    draw(lines, references, title, PAPER, stem)
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
                found = [above for point in theirs if (above := difference(family, point, system)[1]) is not None]
                figures = [fmean(found), min(found), max(found)] if found else [None] * 3
                seeds = str(min(len(point.filed) for point in family.points))
                compared = f"{len(found)} of {len(theirs)}"
                rows.append([task, name, text_of(family), compared, *map(signed, figures), seeds])
    texts = [Column(name, is_text=True) for name in ("task", "system", "our training text")]
    return Grid([*texts, *map(Column, ("points compared", "mean difference", "least", "most", "seeds"))], rows)


def others(shelf: Shelf) -> list[Block]:
    """What was measured and stands in none of the paper's tables."""
    columns = [Column(name, is_text=True) for name in ("pair", "split", "system", "policy", "changes")]
    rows = []
    for family in shelf.left:
        changed = ", ".join(f"{name} {value} (not {DEFAULTS[name]})" for name, value in family.changes.items())
        for point in family.points:
            policy = f"[{point.result.policy}]({link(point.filed[0].path, shelf.folder)})"
            place = [family.pair, family.first.split, family.system, policy, changed or NONE]
            rows.append([*place, *cells(point), "tried" if family.is_tried else NONE])
    if not rows:
        return [Text("Nothing: every record stands in a table above.")]
    return [Table(Grid([*columns, *map(Column, ("AL", "BLEU", "seeds")), Column("standing", is_text=True)], rows))]
