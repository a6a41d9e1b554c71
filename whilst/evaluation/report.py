"""Report evaluations beside the paper's numbers: tables and curves in files, tables on the terminal.

`report` reads only records. Curves are interpolated and never extrapolated; a figure that is missing is None.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from whilst.core.console import console, notes
from whilst.core.errors import UserError
from whilst.core.files import write_text
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import (
    Curve,
    Point,
    Result,
    differences,
    group_seeds,
    interpolate,
    joined,
    minus,
    to_curves,
)
from whilst.evaluation.figure import MAX_LINES, Line, draw, role_of
from whilst.evaluation.identity import TITLES, System
from whilst.evaluation.longform import TIMES, Method, latency, passage_quality, read_talks
from whilst.evaluation.metrics import comet
from whilst.evaluation.passages import Passage, read_passages, with_references, write_omnisteval
from whilst.evaluation.record import Record, Rescored
from whilst.evaluation.tables import NONE, Grid, figure, signed

# heading, score, digits
SCORES = (
    ("AL", "al", 2),
    ("AL word", "al_word", 2),
    ("LAAL", "laal", 2),
    ("AP", "ap", 3),
    ("DAL", "dal", 2),
    ("CW", "cw", 2),
    ("BLEU", "bleu", 2),
    ("sacreBLEU", "sacrebleu", 2),
    ("chrF", "chrf", 2),
)
ALL = tuple(name for _, name, _ in SCORES)
NARROWER = (("al", "laal", "bleu", "sacrebleu"), ("al", "bleu"))  # scores that a narrow terminal shows
MULTI_PATH = System("multi-path")  # BS-SiMT starts from it and is compared with it
FULL_SENTENCE = "full-sentence"  # name of a system
LATENCIES = ("AL", "al"), ("LAAL", "laal"), ("AL with computing", "al_ca")
AGAINST_OFFLINE = f"""\
BLEU of our BS-SiMT at the latency of its own points, and of full-sentence models that are made simultaneous,
interpolated there; {NONE} where that latency is outside of their points. Over …: ours over theirs."""
MARK = "†"  # a gap between two points of different latency
CONVENTIONS = """\
AL and CW: model units, hypothesis length (the paper's convention). AL word, LAAL, AP and DAL:
words, as SimulEval. BLEU: tokenised, lower-cased (the paper's convention). sacreBLEU: 13a, cased."""
VERSUS = f"""\
The paper's columns: its BLEU at our AL, interpolated between the points that it prints, and in
brackets our BLEU minus that; {NONE} where our AL is outside of its points."""
AT_EQUAL_LATENCY = f"""\
BLEU at the AL of each point that the paper prints for BS-SiMT. Ours, multi-path (under wait-k) and
oracle are interpolated between our points; {NONE} where that AL is outside of them.
Over it: ours over our multi-path. Paper over its: the paper's BS-SiMT over the paper's multi-path.
Over diagonal: ours over a fixed diagonal, of the same system if there is one, else of multi-path.
Of variants only rows with a figure of ours are shown."""
GAP = f"""\
Gap: BLEU of the oracle's curve at the agent's AL, minus that of the agent.
{MARK}: that AL is outside of the oracle's points; the difference of the two points."""
FINE_TUNED = (
    "BS-SiMT, ours, runs on the multi-path model as it is; where it says fine-tuned, on one that was fine-tuned on"
    " searched reads."
)


def report(
    records: Sequence[Record],
    out: Path,
    pair: str | None = None,
    split: str = "test",
    times: Mapping[str, float] | None = None,
) -> list[Path]:
    """Write report.md, curve.png and curve.svg into `out`; returns what was written.

    `times`: seconds of each stage that trained the evaluated models.
    """
    curves = to_curves(group_seeds(select(records, pair, split)))
    lines = our_lines(curves) + reference_lines(curves[0].pair)
    drawn = draw(lines, f"{curves[0].pair} · {split}", out / "curve")
    write_text(out / "report.md", to_markdown(curves, len(drawn) < len(lines), times or {}))
    return [out / name for name in ("report.md", "curve.png", "curve.svg")]


def select(records: Sequence[Record], pair: str | None, split: str = "test") -> list[Record]:
    """The records of one pair and split, sorted by system, change and AL; an error if their texts differ."""
    chosen = [record for record in records if pair in (None, record.pair) and record.split == split]
    if not chosen:
        known = ", ".join(sorted({f"{record.pair} {record.split}" for record in records})) or "nothing"
        raise UserError(f"no evaluation of {pair or 'any pair'} {split}; there are evaluations of {known}")
    pairs = sorted({record.pair for record in chosen})
    if len(pairs) > 1:
        raise UserError(f"evaluations of different texts cannot be compared: {', '.join(pairs)}; use --pair")
    if len(texts := {(record.source_sha256, record.reference_sha256) for record in chosen}) > 1:
        raise UserError(f"{pairs[0]} {split}: evaluations of {len(texts)} different texts; name those of one text")
    order = list(dict.fromkeys(record.system for record in chosen))

    def rank(record: Record) -> tuple[bool, int, str, float]:
        result = Result((record,))
        return result.is_full, order.index(record.system), result.change, record.scores.al

    return sorted(chosen, key=rank)


def our_lines(curves: Sequence[Curve]) -> list[Line]:
    """One line for each curve. A full-sentence policy, a height, is drawn only if its system has no curve."""
    names = [curve.first.name for curve in curves if not curve.first.is_full]
    shown = [curve for curve in curves if not curve.first.is_full or curve.first.name not in names]
    shown = [curve for curve in shown if not curve.system.is_between] or shown
    return [
        Line(curve.name, list(map(_point, curve.results)), role_of(curve.system), curve.is_variant)
        for curve in shown
    ]


def _point(result: Result) -> Point:
    if result.bleu is None:
        traces = ", ".join(record.trace for record in result.records)
        raise UserError(f"{traces}: has no BLEU; score it with its reference first")
    al, deviation = None if result.is_full else result.al, result.deviation("bleu") or 0.0
    return Point(result.shown_label, al, result.bleu, deviation)


def reference_lines(pair: str) -> list[Line]:
    """One line for each system of the paper."""
    lines = []
    for system in paper.systems(pair):
        points = paper.curve(pair, system)
        if system == paper.FULL:
            points = [Point("", None, point.bleu) for point in points]
        name, kind = paper.SYSTEMS[system]
        lines.append(Line(paper.title(system), points, kind if kind == "oracle" else name, is_reference=True))
    return lines


def to_markdown(curves: Sequence[Curve], is_partial: bool, times: Mapping[str, float]) -> str:
    """The text of report.md: tables and their conventions. `is_partial`: the figure leaves some curves out."""
    results = [result for curve in curves for result in curve.results]
    first, records = results[0].first, [record for result in results for record in result.records]
    parts = [
        f"# {first.pair}, {first.split}",
        scores_table(curves, ALL).to_markdown(),
        "![BLEU against average lagging](curve.svg)",
    ]
    parts += [f"The figure shows {MAX_LINES} of the curves."] * is_partial
    parts += [CONVENTIONS]
    if paper.systems(first.pair):
        if paper.task(first.pair) != first.pair:
            parts += [f"**Trained on other text than the paper's**, tested as {paper.task(first.pair)}."]
        parts += [VERSUS]
    if len({curve.system.fine_tuned for curve in curves if curve.system.name == paper.BEST}) > 1:
        parts += [FINE_TUNED]
    if len(records) > len(results):
        parts += ["Several seeds: mean ± standard deviation (n - 1). Means are compared."]
    parts += recipes_section(curves)
    if rows := at_equal_latency(curves):
        parts += ["## At equal latency", comparison(rows).to_markdown(), AT_EQUAL_LATENCY]
    if tables := [comparison(rows).to_markdown() for rows in against_offline(curves) if rows]:
        parts += ["## Against offline models", *tables, AGAINST_OFFLINE]
    if rows := gaps(curves):
        parts += ["## Agent and oracle", comparison(rows).to_markdown(), GAP]
    if empty := sum(record.scores.empty for record in records):
        parts += [f"Empty outputs, which count for quality but not for latency: {empty}."]
    signatures = {(name, text) for record in records for name, text in record.scores.signatures.items()}
    parts += ["\n".join(f"- {name}: `{text}`" for name, text in sorted(signatures))]
    if times:
        stages = {**times, "together": sum(times.values())}
        table = Grid(("stage", "seconds"), [(name, f"{seconds:,.1f}") for name, seconds in stages.items()])
        parts += ["## Time", table.to_markdown()]
        parts += ["From the binarised data to the end of each stage, with validation and compilation."]
    return "\n\n".join(filter(None, parts)) + "\n"


def scores_table(curves: Sequence[Curve], names: Sequence[str], is_short: bool = False) -> Grid:
    """One row for each result, with the named scores. `is_short`: without the column for the paper's BS-SiMT."""
    results = [(curve, result) for curve in curves for result in curve.results]
    chosen = [score for score in SCORES if score[1] in names]
    seeds = ["seeds"] * any(len(result.records) > 1 for _, result in results)
    versus = ["paper (diff)"] if is_short else ["paper: same system", paper.title(paper.BEST)]
    versus *= any(paper.systems(curve.pair) for curve in curves)
    rows = []
    for curve, result in results:
        cells = [curve.title, result.point, *(str(len(result.records)) for _ in seeds)]
        cells += [result.shown(name, digits) for _, name, digits in chosen]
        theirs = [_versus(result, system) for system in (paper_system(result), paper.BEST)]
        rows.append(cells + theirs[: len(versus)])
    return Grid(["system", "policy", *seeds, *(heading for heading, _, _ in chosen), *versus], rows, texts=2)


def _versus(result: Result, system: str | None) -> str:
    """The paper's BLEU at our AL, and how far ours is above it."""
    theirs = at_our_latency(result, system)
    difference = minus(result.bleu, theirs)
    return NONE if difference is None else f"{theirs:.2f} ({difference:+.2f})"


def at_our_latency(result: Result, system: str | None) -> float | None:
    """BLEU of the paper's system at our AL; None if `system` is None or has no points on both sides of that AL."""
    points = paper.curve(result.pair, system) if system else []
    if result.is_full:
        return points[0].bleu if points and system == paper.FULL else None
    return interpolate(points, result.al)


def paper_system(result: Result) -> str | None:
    """The paper's name for our system; None if the paper does not have it or made other choices."""
    system = result.system
    if result.change or (system.fine_tuned and system.base != "multi-path"):
        return None
    return next((name for name, ours in paper.SYSTEMS.items() if ours == (system.name, result.kind)), None)


def agents(curves: Sequence[Curve]) -> list[Curve]:
    """The curves of BS-SiMT with an agent, ours and as in the paper, without the rungs between them."""
    found = [curve for curve in curves if curve.kind == "agent" and curve.system.name == paper.BEST]
    return [curve for curve in found if not curve.system.is_between]


def base_of(agent: Curve) -> System:
    """The multi-path system that the agent's model starts from."""
    return replace(MULTI_PATH, rung="paper" if agent.system.rung else "")


@dataclass(frozen=True)
class Row:
    """Figures of one of our BS-SiMTs under one interval; None where a curve would have to be extrapolated."""

    system: str  # ours
    label: str  # the interval
    figures: dict[str, float | None]  # by heading; differences of BLEU are "over …" or "gap"
    mark: str = ""  # written after the last figure


def at_equal_latency(curves: Sequence[Curve]) -> list[Row]:
    """For each of our agents, BLEU of all systems at the AL of each point that the paper prints for BS-SiMT.

    A variant has only the rows with a BLEU of its own.
    """
    rows = []
    for agent in agents(curves):
        base = _closest(curves, agent, base_of(agent), "wait", agent.first.options)
        others = agent, base, _diagonal(curves, agent), _oracle(curves, agent)
        their_base = paper.curve(agent.pair, paper.BASE)
        for point in paper.curve(agent.pair, paper.BEST):
            ours, multi_path, diagonal, oracle = (curve.at(point.al) if curve else None for curve in others)
            figures = {
                "AL": point.al,
                "paper": point.bleu,
                "ours": ours,
                "over paper": minus(ours, point.bleu),
                "multi-path": multi_path,
                "over it": minus(ours, multi_path),
                "over diagonal": minus(ours, diagonal),
                "paper over its": minus(point.bleu, interpolate(their_base, point.al)),
                "oracle": oracle,
            }
            if ours is not None or not agent.is_variant:
                rows.append(Row(agent.name, point.label, figures))
    return rows


def _closest(curves: Sequence[Curve], agent: Curve, system: System, kind: str, variant: str) -> Curve | None:
    """The curve of this system, policy and variant; of several, the one whose recipe is closest to the agent's."""
    wanted = system, kind, variant
    return agent.closest(curve for curve in curves if (curve.system, curve.kind, curve.first.variant) == wanted)


def _diagonal(curves: Sequence[Curve], agent: Curve) -> Curve | None:
    """The control, a fixed diagonal: of the same system with its changes, else without them, else of multi-path."""
    change, options = agent.first.change, agent.first.options
    same, base = (replace(system, policy="diagonal") for system in (agent.system, base_of(agent)))
    choices = (same, joined(change, options)), (same, options), (base, options)
    found = (_closest(curves, agent, system, "diagonal", variant) for system, variant in choices)
    return next(filter(None, found), None)


def _oracle(curves: Sequence[Curve], agent: Curve) -> Curve | None:
    """The oracle of the same system with the same changes."""
    variant = joined(agent.first.change, agent.first.options)
    return _closest(curves, agent, replace(agent.system, policy="oracle"), "oracle", variant)


def gaps(curves: Sequence[Curve]) -> list[Row]:
    """How far each agent is below its oracle in BLEU at the same latency, by rising AL; none without an oracle.

    A variant has only the rows with a gap.
    """
    rows = []
    for curve in agents(curves):
        oracle_curve = _oracle(curves, curve)
        if oracle_curve is None:
            continue
        for agent in curve.results:
            oracle = next((result for result in oracle_curve.results if result.label == agent.label), None)
            bleu = oracle_curve.at(agent.al)
            point = (oracle.al, oracle.bleu) if oracle else (None, None)
            gap = minus(point[1] if bleu is None else bleu, agent.bleu)
            names = "agent AL", "agent BLEU", "oracle AL", "oracle BLEU", "gap"
            figures = dict(zip(names, (agent.al, agent.bleu, *point, gap), strict=True))
            if gap is not None or not curve.is_variant:
                rows.append(Row(curve.name, agent.shown_label, figures, MARK * (gap is not None and bleu is None)))
    return rows


def against_offline(curves: Sequence[Curve]) -> list[list[Row]]:
    """A table for each latency metric: our BS-SiMT at its own points, and offline models interpolated there."""
    offline = [curve for curve in curves if curve.system.name == FULL_SENTENCE and curve.kind != "full"]
    names = [TITLES[curve.kind] for curve in offline]
    if len(set(names)) < len(names):
        names = [curve.name for curve in offline]
    tables = []
    for heading, name in LATENCIES if offline else ():
        rows = []
        for agent in agents(curves):
            for point in agent.along(name):
                figures: dict[str, float | None] = {heading: point.al, "BLEU": point.bleu}
                for title, other in zip(names, offline, strict=True):
                    bleu = interpolate(other.along(name), point.al)
                    figures |= {title: bleu, f"over {title}": minus(point.bleu, bleu)}
                rows.append(Row(agent.name, point.label, figures))
        tables.append(rows)
    return tables


def comparison(rows: Sequence[Row]) -> Grid:
    """The table of these rows, without columns that have no figure."""
    shown = [name for name in rows[0].figures if any(row.figures[name] is not None for row in rows)]
    cells = []
    for row in rows:
        figures = [(signed if "over" in name or name == "gap" else figure)(row.figures[name]) for name in shown]
        cells.append([row.system, row.label, *figures[:-1], figures[-1] + row.mark])
    return Grid(("system", "interval", *shown), cells, texts=2)


def recipes_section(curves: Sequence[Curve]) -> list[str]:
    """The settings in which curves of the same name differ."""
    lettered = [curve for curve in curves if curve.letter]
    parts = []
    for name, kind in dict.fromkeys((curve.first.name, curve.kind) for curve in lettered):
        same_name = [curve for curve in lettered if (curve.first.name, curve.kind) == (name, kind)]
        lines = differences(same_name) or ["nothing: it was measured several times"]
        parts += [f"{name}: several recipes or runs, which differ in:", "\n".join(f"- {line}" for line in lines)]
    return parts


def print_table(records: Sequence[Record]) -> None:
    """Print the scores, on a narrow terminal only the most important; numbers are never cut."""
    # A pipe has no width.
    screen = console if console.is_terminal else Console(file=console.file, width=140, highlight=False)
    curves = to_curves(group_seeds(records))
    for names in (ALL, *NARROWER):
        table = scores_table(curves, names, is_short=True).to_terminal()
        if screen.measure(table, options=screen.options.update_width(1000)).maximum <= screen.width:
            break
    screen.print(table)
    for line in recipes_section(curves):
        notes.print(line, markup=False)


def print_scores(rescored: Rescored) -> None:
    """Print the scores of a trace beside the recorded ones; raises UserError if they differ."""
    recorded = rescored.record.scores.to_table() if rescored.record else {}
    table = Table("figure", "now", "recorded", box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, value in rescored.scores.to_table().items():
        then = recorded.get(name)
        changed = name in rescored.differences
        cells = [NONE if figure is None else f"{figure:.6g}" for figure in (value, then)]
        table.add_row(name, *cells, style="bold red" if changed else None)
    console.print(table)
    for name, text in rescored.scores.signatures.items():
        console.print(f"{name}: {text}", soft_wrap=True, markup=False)
    early = f"{rescored.early} of {len(rescored.sentences)} sentences end before their source has been read"
    ratio = rescored.scores.length
    length = "" if ratio is None else f"{ratio:.3f} words for each word of the references; "
    empty = f", {rescored.scores.empty} are empty" if rescored.scores.empty else ""
    console.print(f"{length}{early}{empty}", soft_wrap=True)
    for note in rescored.notes:
        notes.print(note, soft_wrap=True, markup=False)
    _require_as_recorded(rescored.differences)
    if rescored.record is not None:
        notes.print("the scores are as recorded")


def print_timed(
    trace: Path, segments: Path | None, reference: Path | None, method: Method, out: Path | None
) -> list[Passage]:
    """Print the scores of a log with times; returns the passages. `segments`: divide talks into these sentences."""
    unit = "milliseconds"
    if segments is None:
        passages = read_passages(trace)
        passages = passages if reference is None else with_references(passages, reference)
    elif reference is None:
        raise UserError("--segments: the sentences of a talk need --reference FILE too")
    else:
        passages = read_talks(trace, segments, reference, method)
        unit = unit if segments.suffix in TIMES else "source words"
    is_long = any(math.isfinite(passage.end) for passage in passages)
    ideal, aware = (latency(passages, with_computing, is_long) for with_computing in (False, True))
    if not ideal:
        raise UserError("no passage has words: there is no latency to measure")
    rows = [
        [f"Long{name}" if is_long else name, figure(value, 4), figure(aware.get(name), 4)]
        for name, value in ideal.items()
    ]
    console.print(Grid(("figure", "ideal", "with computing"), rows).to_terminal())
    for name, (value, signature) in passage_quality(passages).items():
        console.print(f"{name} {value:.2f}: {signature}", soft_wrap=True, markup=False)
    empty = sum(not passage.words for passage in passages)
    console.print(f"{len(passages)} sentences, {empty} without words; latency in {unit}", soft_wrap=True)
    if out is not None:
        write_omnisteval(out, passages)
    return passages


def print_comet(
    model: str, sources: Sequence[str | None], hypotheses: Sequence[str], references: Sequence[str | None]
) -> None:
    """Print COMET's score of a text; raises UserError if a source or a reference is None."""
    known = [text for text in (*sources, *references) if text is not None]
    if len(known) < 2 * len(hypotheses):
        raise UserError("--comet: needs the text; give --source FILE and --reference FILE")
    value = comet(model, known[: len(hypotheses)], hypotheses, known[len(hypotheses) :])
    console.print(f"COMET {value:.4f}: {model}", soft_wrap=True, markup=False)


def print_archive(traces: Iterable[tuple[str, Rescored]]) -> None:
    """Print a line of scores for each trace of an archive; raises UserError if some are not as recorded."""
    differences: dict[str, object] = {}
    for name, rescored in traces:
        scores = rescored.scores.to_table()
        cells = [f"{key} {scores[key]:.2f}" for key in NARROWER[0] if scores[key] is not None]
        console.print(f"{name}: {', '.join(cells)}", soft_wrap=True, markup=False, highlight=False)
        differences |= {f"{name} {score}": values for score, values in rescored.differences.items()}
    _require_as_recorded(differences)
    notes.print("the scores are as recorded")


def _require_as_recorded(differences: Iterable[str]) -> None:
    if names := ", ".join(differences):
        raise UserError(f"scores not as recorded: {names}; the trace, the text or the scorer has changed")
