"""The paper's tables with our figures beside.

Every number comes from a record or from paper.json. A difference is at equal latency: BLEU on straight lines
between our points at the AL that the paper prints, minus the paper's. An ablation is compared with the default on
the same text, so it is of use on other text than the paper's too.
"""

from collections.abc import Sequence
from statistics import fmean

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.compare import minus
from whilst.evaluation.curves import DEFAULTS, Curve, Point, above, differences, joined
from whilst.evaluation.paper_numbers import BASE, BEST, FULL, ORACLE
from whilst.evaluation.tables import NONE, Grid, figure, signed
from whilst.research.paper.markdown import bullets
from whilst.research.paper.systems import (
    DIAGONAL,
    NOT_RUN,
    Both,
    Collection,
    difference,
    or_none,
    our_cells,
    paper_cells,
    record_link,
    side_by_side,
    training_text,
)

ABLATED = "iwslt14.de-en"  # the task of the paper's ablations
DEFAULT_LABELS = ("[3,7]", "[5,9]")  # the default's points in the ablation tables
# By table: what is varied, and the name in paper.json of each value but the default.
ABLATIONS = {
    "Table 1": ("length", {"3": "interval length 3", "7": "interval length 7"}),
    "Table 2": ("reference", {"ground-truth": "agent trained on ground truth"}),
    "Table 4": ("condition", {"ground-truth": "search condition GT"}),
    "Table 5": ("base", {"full-sentence": "base model full-sentence", "scratch": "base model none"}),
    "Table 6": ("agent", {"gru": "agent GRU", "linear": "agent Linear"}),
}
BOTH = "paper AL", "paper BLEU", "our AL", "our BLEU", "seeds"


def summary(ours: Collection) -> str:
    """A row for each system of each task: how it compares."""
    rows = []
    for task in paper.pairs():
        for system in paper.systems(task):
            theirs, curves = paper.curve(task, system), ours.of_task(task, system)
            if not curves:
                rows.append([task, paper.title(system), NOT_RUN, *[NONE] * 5])
            for curve in curves:
                gains = [difference(curve, point, system)[1] for point in theirs]
                found = [gain for gain in gains if gain is not None]
                figures = [fmean(found), min(found), max(found)] if found else [None, None, None]
                counts = sorted({len(result.records) for result in curve.results})
                seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
                compared = f"{len(found)} of {len(theirs)}"
                rows.append([task, curve.name, training_text(curve), compared, *map(signed, figures), seeds])
    texts = "task", "system", "our training text"
    headings = *texts, "points compared", "mean difference", "least", "most", "seeds"
    return Grid(headings, rows, len(texts)).to_markdown()


def main_table(task: str, ours: Collection) -> list[str]:
    """All systems of one task, point by point, but the oracle, which has a table of its own."""
    rows: list[list[str]] = []
    notes: list[str] = []
    after: list[str] = []
    names = [name for name in paper.systems(task) if name != ORACLE]
    names.insert(names.index(BASE) + 1, DIAGONAL)
    for system in names:
        theirs = [] if system == DIAGONAL else paper.curve(task, system)
        curves = ours.of_task(task, system)
        for curve in or_none(curves):
            rows += _rows(system, theirs, curve, ours)
        after += [ours.made(curve, curve.name) for curve in curves]
        notes += differences(curves)
    texts = "system", "point", "our training text"
    headings = *texts, *BOTH, "ours at the paper's AL", "difference", "over the diagonal"
    parts = [Grid(headings, rows, len(texts)).to_markdown()]
    if notes:
        parts += ["Measured with several recipes, which differ in:", bullets(notes)]
    return [*parts, *after]


def _rows(system: str, theirs: Sequence[Point], curve: Curve | None, ours: Collection) -> list[list[str]]:
    has_control = curve is not None and curve.kind not in ("full", "diagonal")
    control = curve.closest(ours.of_system(DIAGONAL)) if curve and has_control else None
    name, text = (curve.name, training_text(curve)) if curve else (paper.title(system), NONE)
    rows = []
    for both in side_by_side(theirs, curve):
        at, gain = difference(curve, both.theirs, system)
        over_diagonal = above(both.ours, control.points) if control else None
        compared = [NONE if system == FULL else figure(at), signed(gain), signed(over_diagonal)]
        rows.append([name, both.label or NONE, text, *both.cells, *compared])
    return rows


def ablation(name: str, ours: Collection) -> list[str]:
    """One of the paper's ablation tables. Ours is compared with the default whose other settings differ least."""
    feature, values = ABLATIONS[name]
    everywhere, paper_default = ours.of_system(BEST), paper.curve(ABLATED, BEST)
    rows: list[list[str]] = []
    after: list[str] = []
    defaults: list[Curve | None] = []
    for value, key in values.items():
        for curve in or_none(ours.of_system(BEST, {feature: value})):
            default = curve.closest(everywhere) if curve else None
            rows += _ablation_rows(value, paper.ablations()[key], curve, default, paper_default)
            if curve:
                defaults.append(default)
                after.append(ours.made(curve, f"{curve.name}, on {curve.pair}"))
    shown = [curve for curve in everywhere if any(curve is default for default in defaults)]
    theirs = [point for point in paper_default if point.label in DEFAULT_LABELS]
    first: list[list[str]] = []
    for curve in or_none(shown if defaults else ours.of_task(ABLATED, BEST)):
        first += _ablation_rows(DEFAULTS[feature], theirs, curve, None, [])
    texts = feature, "interval", "our pair"
    headings = *texts, *BOTH, "paper over default", "ours over default", "difference to the paper"
    return [Grid(headings, first + rows, len(texts)).to_markdown(), *after]


def _ablation_rows(
    name: str, theirs: Sequence[Point], curve: Curve | None, default: Curve | None, paper_default: Sequence[Point]
) -> list[list[str]]:
    is_same_task = curve is not None and paper.task(curve.pair) == ABLATED
    rows = []
    for both in side_by_side(theirs, curve):
        compared = [
            above(both.theirs, paper_default),
            above(both.ours, default.points) if default else None,
            difference(curve, both.theirs, BEST)[1] if is_same_task else None,
        ]
        rows.append([name, both.label, curve.pair if curve else NONE, *both.cells, *map(signed, compared)])
    return rows


def oracle_table(ours: Collection) -> list[str]:
    """Table 3, and the same for the other tasks where we have an oracle."""
    rows: list[list[str]] = []
    after: list[str] = []
    for task in sorted(paper.pairs(), key=lambda task: task != ABLATED):
        theirs = paper.curve(task, ORACLE) if ORACLE in paper.systems(task) else []
        curves = ours.of_task(task, ORACLE)
        for curve in or_none(curves):
            rows += _oracle_rows(task, theirs, curve, curve.closest(ours.of_system(BEST)) if curve else None)
        after += [ours.made(curve, f"{curve.name} on {curve.pair}") for curve in curves]
    texts = "pair", "interval"
    names = "agent AL", "agent BLEU", "oracle AL", "oracle BLEU", "gap"
    headings = [*texts, *(f"{whose} {name}" for whose in ("paper", "our") for name in names)]
    return [Grid(headings, rows, len(texts)).to_markdown(), *after]


def _oracle_rows(task: str, theirs: Sequence[Point], oracle: Curve | None, agent: Curve | None) -> list[list[str]]:
    """The gap is the oracle's BLEU at the agent's AL, minus the agent's."""
    agents = {both.label: both for both in side_by_side(paper.curve(task, BEST) if theirs else [], agent)}
    rows = []
    for both in side_by_side(theirs, oracle):
        one = agents.get(both.label, Both(both.label, None, None))
        their_gap = minus(0.0, above(one.theirs, theirs))
        our_gap = minus(0.0, above(one.ours, oracle.points)) if oracle else None
        their_cells = *paper_cells(one.theirs), *paper_cells(both.theirs), signed(their_gap)
        our_own = *our_cells(one.result)[:2], *our_cells(both.result)[:2], signed(our_gap)
        rows.append([oracle.pair if oracle else task, both.label, *their_cells, *our_own])
    return rows


def other_results(ours: Collection) -> str:
    """What is in none of the paper's tables."""
    rows = []
    for curve in ours.left:
        changed = [
            f"{name} {value} (not {DEFAULTS.get(name, NONE)})" for name, value in curve.first.changes.items()
        ]
        changes = joined(*changed, curve.first.agreement) or NONE
        for result in curve.results:
            record = record_link(result.first, ours.folder)
            rows.append([result.pair, result.first.split, str(result.system), record, changes, *our_cells(result)])
    if not rows:
        return "Nothing: every record is in a table above."
    headings = "pair", "split", "system", "record", "changes", "AL", "BLEU", "seeds"
    return f"Changes: of what the paper's ablations vary.\n\n{Grid(headings, rows, 5).to_markdown()}"
