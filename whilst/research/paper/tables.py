"""The paper's tables with our figures beside.

Every number comes from a record or from paper.json. A difference is at equal latency: BLEU on straight lines
between our points at the AL that the paper prints, minus the paper's. An ablation is compared with the default on
the same text, so it is of use on other text than the paper's too.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.compare import minus
from whilst.evaluation.curves import DEFAULTS, Curve, Point, above, differences, joined
from whilst.evaluation.paper_numbers import BASE, BEST, FULL, ORACLE
from whilst.evaluation.tables import NONE, figure, signed
from whilst.research.paper.markdown import bullets, table
from whilst.research.paper.systems import (
    DIAGONAL,
    NOT_RUN,
    Collection,
    all_labels,
    difference,
    our_cells,
    over_control,
    paper_cells,
    record_link,
    training_text,
)

ABLATED = "iwslt14.de-en"  # the task of the paper's ablations
DEFAULT_LABELS = ("[3,7]", "[5,9]")  # the default's points in the ablation tables
# By table: what is varied, and the name of each value in paper.json; "" for the paper's own choice.
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


def summary(ours: Collection) -> str:
    """A row for each system of each task: how it compares."""
    rows = []
    for task in paper.pairs():
        for system in paper.systems(task):
            theirs, curves = paper.curve(task, system), ours.of_task(task, system)
            if not curves:
                rows.append([task, paper.title(system), NOT_RUN, *[NONE] * 5])
            for curve in curves:
                found = [gain for point in theirs if (gain := difference(curve, point, system)[1]) is not None]
                figures = [fmean(found), min(found), max(found)] if found else [None, None, None]
                seeds = sorted({len(result.records) for result in curve.results})
                compared = f"{len(found)} of {len(theirs)}"
                row = [task, curve.name, training_text(curve), compared, *map(signed, figures)]
                rows.append([*row, " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))])
    texts = "task", "system", "our training text"
    return table((*texts, "points compared", "mean difference", "least", "most", "seeds"), rows, texts)


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
        for curve in curves:
            rows += _rows(system, curve.name, theirs, curve, over_control(curve, ours))
            after.append(ours.made(curve, curve.name))
        if not curves:
            rows += _rows(system, paper.title(system), theirs, None, {})
        notes += differences(curves)
    texts = "system", "point", "our training text"
    headings = ("paper AL", "paper BLEU", "our AL", "our BLEU", "seeds", "ours at the paper's AL", "difference")
    parts = [table((*texts, *headings, "over the diagonal"), rows, texts)]
    if notes:
        parts += ["Measured with several recipes, which differ in:", bullets(notes)]
    return [*parts, *after]


def _rows(
    system: str, name: str, theirs: Sequence[Point], curve: Curve | None, over_diagonal: Mapping[str, float]
) -> list[list[str]]:
    rows = []
    for label, point in all_labels(theirs, curve):
        at, gain = difference(curve, point, system)
        text = training_text(curve) if curve else NONE
        own = our_cells(curve.result(label) if curve else None)
        compared = [NONE if system == FULL else figure(at), signed(gain), signed(over_diagonal.get(label))]
        rows.append([name, label or NONE, text, *paper_cells(point), *own, *compared])
    return rows


def ablation(name: str, ours: Collection) -> list[str]:
    """One of the paper's ablation tables."""
    feature, values = ABLATIONS[name]
    rows: list[list[str]] = []
    after: list[str] = []
    changed = [curve for value, key in values.items() if key for curve in ours.of_system(BEST, {feature: value})]
    defaults = [_default(curve, ours) for curve in changed] if changed else ours.of_task(ABLATED, BEST)
    for value, key in values.items():
        theirs = paper.ablations()[key] if key else _default_points()
        curves = ours.of_system(BEST, {feature: value} if key else {})
        if not key:
            curves = [curve for curve in curves if any(curve is default for default in defaults)]
        for curve in curves:
            rows += _ablation_rows(value, theirs, curve, _default(curve, ours) if key else None)
            if key:  # the default is in the main tables
                after.append(ours.made(curve, f"{curve.name}, on {curve.pair}"))
        if not curves:
            rows += _ablation_rows(value, theirs, None, None)
    texts = feature, "interval", "our pair"
    headings = ("paper AL", "paper BLEU", "our AL", "our BLEU", "seeds", "paper over default", "ours over default")
    return [table((*texts, *headings, "difference to the paper"), rows, texts), *after]


def _default(curve: Curve, ours: Collection) -> Curve | None:
    """The curve on the same text with the paper's choices whose other settings differ least."""
    return curve.closest(ours.of_system(BEST))


def _default_points() -> list[Point]:
    return [point for point in paper.curve(ABLATED, BEST) if point.label in DEFAULT_LABELS]


def _ablation_rows(
    name: str, theirs: Sequence[Point], curve: Curve | None, default: Curve | None
) -> list[list[str]]:
    rows = []
    for label, point in all_labels(theirs, curve):
        same_task = curve is not None and paper.task(curve.pair) == ABLATED
        compared = [
            None if theirs == _default_points() else above(point, paper.curve(ABLATED, BEST)),
            above(_point(curve, label), default.points) if default else None,
            difference(curve, point, BEST)[1] if same_task else None,
        ]
        own = our_cells(curve.result(label) if curve else None)
        pair = curve.pair if curve else NONE
        rows.append([name, label, pair, *paper_cells(point), *own, *map(signed, compared)])
    return rows


def oracle_table(ours: Collection) -> list[str]:
    """Table 3, and the same for the other tasks where we have an oracle."""
    rows: list[list[str]] = []
    after: list[str] = []
    for task in sorted(paper.pairs(), key=lambda task: task != ABLATED):
        theirs = paper.curve(task, ORACLE) if ORACLE in paper.systems(task) else []
        curves = ours.of_task(task, ORACLE)
        for curve in curves:
            rows += _oracle_rows(curve.pair, theirs, curve, curve.closest(ours.of_system(BEST)))
            after.append(ours.made(curve, f"{curve.name} on {curve.pair}"))
        if theirs and not curves:
            rows += _oracle_rows(task, theirs, None, None)
    texts = "pair", "interval"
    names = [f"{who} {what}" for who in ("agent", "oracle") for what in ("AL", "BLEU")] + ["gap"]
    headings = [f"{whose} {name}" for whose in ("paper", "our") for name in names]
    return [table((*texts, *headings), rows, texts), *after]


def _oracle_rows(pair: str, theirs: Sequence[Point], oracle: Curve | None, agent: Curve | None) -> list[list[str]]:
    """The gap is the oracle's BLEU at the agent's AL, minus the agent's."""
    agents = {point.label: point for point in paper.curve(pair, BEST)} if theirs else {}
    rows = []
    for label, point in all_labels(theirs, oracle):
        row = [pair, label, *paper_cells(agents.get(label)), *paper_cells(point)]
        row.append(signed(minus(0.0, above(agents.get(label), theirs))))
        for curve in (agent, oracle):
            row += our_cells(curve.result(label) if curve else None)[:2]
        rows.append([*row, signed(minus(0.0, above(_point(agent, label), oracle.points if oracle else [])))])
    return rows


def _point(curve: Curve | None, label: str) -> Point | None:
    return next((point for point in curve.points if point.label == label), None) if curve else None


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
    texts = "pair", "split", "system", "record", "changes"
    about = "Changes: of what the paper's ablations vary."
    return f"{about}\n\n{table((*texts, 'AL', 'BLEU', 'seeds'), rows, texts)}"
