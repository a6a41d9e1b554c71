"""Make the paper's tables as Markdown, with our results beside the paper's numbers.

Every number comes from a record or from paper.json. A difference is at equal latency: BLEU on straight lines
between our points at the AL that the paper prints, minus the paper's. An ablation is compared with the default on
the same text, so it is also useful on other text than the paper's.
"""

import html
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import DEFAULTS, Curve, Point, Result, above, differences, joined, minus, seeds_of
from whilst.evaluation.paper_numbers import BASE, BEST, FULL, ORACLE
from whilst.evaluation.record import ARCHIVED, Record
from whilst.evaluation.tables import NONE, Grid, figure, signed

NOT_RUN = "not run"
TEACHER = "+ teacher"
DIAGONAL = "multi-path, diagonal"  # our control: reads rise by J/I, without an agent
SYSTEMS = paper.SYSTEMS | {DIAGONAL: (paper.BASE, "diagonal")}
UNKNOWN = {"keep": "`<unk>`", "copy": "names of the source in their place"}
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


def bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def details(summary: str, text: str) -> str:
    return f"<details>\n<summary>{html.escape(summary)}</summary>\n\n{text}\n\n</details>"


def link(text: str, path: Path, folder: Path) -> str:
    """A Markdown link to a file, from a document in `folder`."""
    return f"[{text}]({Path(os.path.relpath(path, folder)).as_posix()})"


@dataclass(frozen=True)
class Collection:
    """Our curves, for a document in `folder`."""

    curves: Sequence[Curve]
    folder: Path
    shown: list[Curve] = field(default_factory=list)  # in a table of the document

    def of_system(self, system: str, changes: dict[str, str] | None = None) -> list[Curve]:
        """Our curves of a system of the paper, on any text, with exactly these changes of the paper's choices."""
        return [
            curve
            for curve in self.curves
            if (curve.system.name, curve.kind) == SYSTEMS[system]
            and curve.first.changes == (changes or {})
            and not curve.system.is_between
            and curve.first.first.split == "test"
            and not curve.first.decoding
        ]

    def of_task(self, task: str, system: str) -> list[Curve]:
        """Our curves of a system of the paper, without changes, on the test set of one of the paper's tasks."""
        return [curve for curve in self.of_system(system) if paper.task(curve.pair) == task]

    def made(self, curve: Curve, name: str) -> str:
        """The part of the document that says how a curve was made. Adds the curve to `shown`."""
        self.shown.append(curve)
        return details(f"How it was made: {name}", bullets(_origin(curve, self.folder)))

    @property
    def left(self) -> list[Curve]:
        return [curve for curve in self.curves if curve not in self.shown]


def training_text(curve: Curve) -> str:
    is_same = curve.pair == paper.task(curve.pair)
    text = "the paper's" if is_same else f"**other**: {curve.pair.rpartition('.')[0]}"
    return f"{text} {TEACHER}" if curve.settings["teacher"] else text


@dataclass(frozen=True)
class Both:
    """The paper's point and our result with the same label; None where there is none."""

    label: str
    theirs: Point | None
    result: Result | None

    @property
    def ours(self) -> Point | None:
        if self.result is None or self.result.bleu is None:
            return None
        return Point(self.label, self.result.al, self.result.bleu)

    @property
    def cells(self) -> list[str]:
        return [*paper_cells(self.theirs), *our_cells(self.result)]


def paper_cells(point: Point | None) -> list[str]:
    """The paper's AL and BLEU."""
    return [figure(point.al), figure(point.bleu)] if point else [NONE, NONE]


def our_cells(result: Result | None) -> list[str]:
    """Our AL, BLEU and number of seeds."""
    if result is None:
        return [NOT_RUN, NOT_RUN, NONE]
    return [result.shown("al"), result.shown("bleu"), str(len(result.records))]


def side_by_side(theirs: Sequence[Point], curve: Curve | None) -> list[Both]:
    """The paper's points, each with ours of the same label, then our points with other labels."""
    points = {point.label: point for point in theirs}
    results = {result.label: result for result in curve.results} if curve else {}
    return [Both(label, points.get(label), results.get(label)) for label in dict.fromkeys([*points, *results])]


def difference(curve: Curve | None, point: Point | None, system: str) -> tuple[float | None, float | None]:
    """Our BLEU at the AL of the paper's point, and its difference from the paper's; any AL if `system` is FULL."""
    if curve is None or point is None:
        return None, None
    ours = curve.first.bleu if system == FULL else curve.at(point.al)
    return ours, minus(ours, point.bleu)


def _origin(curve: Curve, folder: Path) -> list[str]:
    records = [record for result in curve.results for record in result.records]
    first, settings = records[0], curve.settings
    recipes = sorted({record.settings.get("file", "") for record in records} - {""})
    starts, teachers = ([record.settings.get(name, "") for record in records] for name in ("start", "teacher"))
    seeds = _distinct("/".join(map(str, seeds_of(record))) for record in records)
    machines = (f"{record.device}, torch {record.versions.get('torch', '?')}" for record in records)
    lines = [
        "recipe: " + (", ".join(link(recipe, Path(recipe), folder) for recipe in recipes) or "in the records"),
        f"started from: {_distinct(f'`{run}`' if run else 'random weights' for run in starts)};"
        f" teacher: {_distinct(f'`{run}`' if run else 'none' for run in teachers)}",
        f"seeds: {seeds}" + (" (one for each stage)" if "/" in seeds else ""),
        "machine: " + _distinct(machines, "; "),
        f"text: {first.pair}, {first.split}, {first.scores.sentences:,} sentences; SHA-256 of the source"
        f" `{first.source_sha256[:12]}`, of the reference `{first.reference_sha256[:12]}`",
        f"weights: SHA-256 {_distinct(f'`{record.model_sha256[:12]}`' for record in records)}",
        f"BLEU: `{first.scores.signatures.get('bleu', 'no signature')}`",
        f"unknown words: {UNKNOWN[settings['evaluate.unknown']]}",
        f"end mark before the whole source is read: {settings['evaluate.ending']}",
    ]
    if "search.target" in settings:
        search = [f"{name} {settings[f'search.{name}']}" for name in ("target", "tolerance", "slope", "condition")]
        inputs = f"; agent input: {settings['agent.inputs']}" if "agent.inputs" in settings else ""
        lines.append(f"search: {', '.join(search)}{inputs}")
    lines += [f"decoded with `{command}`" for command in sorted({record.command for record in records})]
    return [*lines, "records: " + ", ".join(record_link(record, folder) for record in records)]


def _distinct(values: Iterable[str], separator: str = ", ") -> str:
    return separator.join(sorted(set(values)))


def record_link(record: Record, folder: Path) -> str:
    """A link to the record's file, or to the archive that contains the record."""
    assert record.path is not None  # records of a folder have one
    if record.path.is_file():
        return link(record.policy, record.path, folder)
    archive = next(above / ARCHIVED for above in record.path.parents if (above / ARCHIVED).is_file())
    return link(record.path.relative_to(archive.parent).with_suffix("").as_posix(), archive, folder)


def summary(ours: Collection) -> str:
    """A row for each system of each task: our differences to the paper at equal latency."""
    rows = []
    for task in paper.pairs():
        for system in paper.systems(task):
            theirs, curves = paper.curve(task, system), ours.of_task(task, system)
            if not curves:
                rows.append([task, paper.title(system), NOT_RUN, *[NONE] * 5])
            for curve in curves:
                gains = [difference(curve, point, system)[1] for point in theirs]
                known = [gain for gain in gains if gain is not None]
                figures = [fmean(known), min(known), max(known)] if known else [None, None, None]
                counts = [len(result.records) for result in curve.results]
                seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
                compared = f"{len(known)} of {len(theirs)}"
                rows.append([task, curve.name, training_text(curve), compared, *map(signed, figures), seeds])
    texts = "task", "system", "our training text"
    headings = *texts, "points compared", "mean difference", "least", "most", "seeds"
    return Grid(headings, rows, len(texts)).to_markdown()


def main_table(task: str, ours: Collection) -> list[str]:
    """All systems of one task, point by point, except the oracle, which has a table of its own."""
    rows: list[list[str]] = []
    notes: list[str] = []
    after: list[str] = []
    names = [name for name in paper.systems(task) if name != ORACLE]
    names.insert(names.index(BASE) + 1, DIAGONAL)
    for system in names:
        theirs = [] if system == DIAGONAL else paper.curve(task, system)
        curves = ours.of_task(task, system)
        for curve in curves or (None,):
            rows += _rows(system, theirs, curve, ours)
        after += [ours.made(curve, curve.name) for curve in curves]
        notes += differences(curves)
    texts = "system", "point", "our training text"
    compared = "ours at the paper's AL", "difference", "at the same point", "length", "over the diagonal"
    headings = *texts, *BOTH, *compared
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
        same = minus(both.ours.bleu, both.theirs.bleu) if both.ours and both.theirs else None
        length = both.result.mean("length") if both.result else None
        over_diagonal = above(both.ours, control.points) if control else None
        compared = [NONE if system == FULL else figure(at), signed(gain), signed(same), figure(length)]
        compared.append(signed(over_diagonal))
        rows.append([name, both.label or NONE, text, *both.cells, *compared])
    return rows


def ablation(name: str, ours: Collection) -> list[str]:
    """One of the paper's ablation tables. Our curve is compared with our default whose settings differ least."""
    feature, values = ABLATIONS[name]
    our_defaults, paper_default = ours.of_system(BEST), paper.curve(ABLATED, BEST)
    rows: list[list[str]] = []
    after: list[str] = []
    defaults: list[Curve | None] = []
    for value, key in values.items():
        for curve in ours.of_system(BEST, {feature: value}) or (None,):
            default = curve.closest(our_defaults) if curve else None
            rows += _ablation_rows(value, paper.ablations()[key], curve, default, paper_default)
            if curve:
                defaults.append(default)
                after.append(ours.made(curve, f"{curve.name}, on {curve.pair}"))
    shown = [curve for curve in our_defaults if curve in defaults]
    theirs = [point for point in paper_default if point.label in DEFAULT_LABELS]
    default_rows: list[list[str]] = []
    for curve in (shown if defaults else ours.of_task(ABLATED, BEST)) or (None,):
        default_rows += _ablation_rows(DEFAULTS[feature], theirs, curve, None, [])
    texts = feature, "interval", "our pair"
    headings = *texts, *BOTH, "paper over default", "ours over default", "difference to the paper"
    return [Grid(headings, default_rows + rows, len(texts)).to_markdown(), *after]


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
        for curve in curves or (None,):
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
        of_agent = agents.get(both.label, Both(both.label, None, None))
        their_gap = minus(0.0, above(of_agent.theirs, theirs))
        our_gap = minus(0.0, above(of_agent.ours, oracle.points)) if oracle else None
        their_row = *paper_cells(of_agent.theirs), *paper_cells(both.theirs), signed(their_gap)
        our_row = *our_cells(of_agent.result)[:2], *our_cells(both.result)[:2], signed(our_gap)
        rows.append([oracle.pair if oracle else task, both.label, *their_row, *our_row])
    return rows


def other_results(ours: Collection) -> str:
    """Our results that are in none of the paper's tables."""
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
