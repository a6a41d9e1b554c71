"""The paper's ablations and its table of agent and oracle, with ours beside.

An ablation compares with the default on the same text at equal latency: its BLEU, less what stands on the default's
curve at its AL. So it says something on other text than the paper's, too.
"""

from collections.abc import Sequence

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import Curve, Point, above
from whilst.evaluation.paper_numbers import BEST, ORACLE
from whilst.evaluation.tables import NONE, Column, Grid, signed
from whilst.research.paper.document import Block, Table
from whilst.research.paper.provenance import missing
from whilst.research.paper.shelf import Shelf, beside, call, cells, difference, most_alike, printed

ABLATED = "iwslt14.de-en"  # where the paper's ablations are measured
SHOWN = ("[3,7]", "[5,9]")  # the default's points in its ablation tables
# Of each table: what is varied, and what paper.json calls each value; nothing for the paper's own choice.
ABLATIONS = {
    "Table 1": ("length", {"5": "", "3": "interval length 3", "7": "interval length 7"}),
    "Table 2": ("reference", {"translation": "", "ground-truth": "agent trained on ground truth"}),
    "Table 4": ("condition", {"concavity": "", "ground-truth": "search condition GT"}),
    "Table 5": (
        "base",
        {"multi-path": "", "full-sentence": "base model full-sentence", "scratch": "base model none"},
    ),
    "Table 6": ("agent", {"lstm": "", "gru": "agent GRU", "linear": "agent Linear"}),
}


def ablation(name: str, shelf: Shelf) -> list[Block]:
    """One of the paper's ablation tables."""
    feature, values = ABLATIONS[name]
    defaults = _defaults([f for value in values for f in shelf.of_system(BEST, {feature: value})], shelf)
    rows: list[list[str]] = []
    after: list[Block] = []
    for value, key in values.items():
        changed = {feature: value} if key else {}
        theirs = _theirs(key)
        group = shelf.of_system(BEST, changed) if key else defaults
        for family, called in zip(group, call(group, value), strict=True):
            rows += _rows(called, theirs, family, nearest_default(family, shelf) if key else None)
            if key:  # the default stands in the main tables
                after.append(shelf.show(family, f"{feature} {called} on {family.pair}"))
        if not group:
            rows += _rows(value, theirs, None, None)
        if key and not any(paper.task(family.pair) == ABLATED for family in group):
            after += missing(ABLATED, BEST, [point.label for point in theirs], changed)
    texts = [Column(heading, is_text=True) for heading in (feature, "interval", "our pair")]
    headings = ("paper AL", "paper BLEU", "our AL", "our BLEU", "seeds")
    compared = ("paper over default", "ours over default", "difference to the paper")
    return [Table(Grid([*texts, *map(Column, (*headings, *compared))], rows)), *after]


def _defaults(changed: Sequence[Curve], shelf: Shelf) -> list[Curve]:
    """What the changed ones compare with; while there are none, all that the paper's default compares with."""
    if not changed:
        return shelf.of_task(ABLATED, BEST)
    wanted = [nearest_default(family, shelf) for family in changed]
    return [family for family in shelf.of_system(BEST) if any(family is one for one in wanted)]


def _theirs(key: str) -> list[Point]:
    if key:
        return paper.ablations()[key]
    return [point for point in paper.curve(ABLATED, BEST) if point.label in SHOWN]


def _rows(called: str, theirs: Sequence[Point], family: Curve | None, normal: Curve | None) -> list[list[str]]:
    default = paper.curve(ABLATED, BEST)
    is_default = all(point in default for point in theirs)
    rows = []
    for label, point in beside(theirs, family):
        measured = family.result(label) if family else None
        own = None if measured is None else Point(label, measured.al, measured.bleu or 0.0)
        same = family is not None and paper.task(family.pair) == ABLATED
        compared = [
            None if is_default else above(point, default),
            above(own, normal.points) if normal else None,
            difference(family, point, BEST)[1] if same else None,
        ]
        pair = family.pair if family else NONE
        rows.append([called, label, pair, *printed(point), *cells(measured), *map(signed, compared)])
    return rows


def nearest_default(family: Curve, shelf: Shelf) -> Curve | None:
    """Of the systems with the paper's choices on the same text, the one whose other settings are most alike."""
    return most_alike(family, shelf.of_system(BEST))


def oracle_table(shelf: Shelf) -> list[Block]:
    """Table 3, and the same for the other tasks where there is an oracle of ours."""
    agents = shelf.of_system(BEST)
    rows: list[list[str]] = []
    after: list[Block] = []
    for task in sorted(paper.pairs(), key=lambda task: task != ABLATED):
        theirs = paper.curve(task, ORACLE) if ORACLE in paper.systems(task) else []
        group = shelf.of_task(task, ORACLE)
        for family, name in zip(group, call(group, ORACLE), strict=True):
            rows += _oracle_rows(family.pair, theirs, family, most_alike(family, agents))
            after.append(shelf.show(family, f"{name} on {family.pair}"))
        if theirs and not group:
            rows += _oracle_rows(task, theirs, None, None)
            after += missing(task, ORACLE, [point.label for point in theirs])
    texts = [Column(name, is_text=True) for name in ("pair", "interval")]
    headings = []
    for whose in ("paper", "our"):
        headings += [f"{whose} {who} {what}" for who in ("agent", "oracle") for what in ("AL", "BLEU")]
        headings.append(f"{whose} gap")
    return [Table(Grid([*texts, *map(Column, headings)], rows)), *after]


def _oracle_rows(pair: str, theirs: Sequence[Point], oracle: Curve | None, agent: Curve | None) -> list[list[str]]:
    """A row an interval. The gap is the oracle's BLEU at the agent's AL, less the agent's."""
    learnt = {point.label: point for point in paper.curve(pair, BEST)} if theirs else {}
    rows = []
    for label, point in beside(theirs, oracle):
        row = [pair, label, *printed(learnt.get(label)), *printed(point), signed(_gap(learnt.get(label), theirs))]
        own = agent.result(label) if agent else None
        row += [*cells(own)[:2], *cells(oracle.result(label) if oracle else None)[:2]]
        mine = None if own is None or own.bleu is None else Point(label, own.al, own.bleu)
        rows.append([*row, signed(_gap(mine, oracle.points if oracle else []))])
    return rows


def _gap(agent: Point | None, oracle: Sequence[Point]) -> float | None:
    gain = above(agent, oracle)
    return None if gain is None else -gain
