"""Tables and curves of any number of evaluations beside the paper's numbers: files, and the terminal.

Reads records only: no traces, no models.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from whilst.core.console import console, notes
from whilst.core.errors import UserError
from whilst.core.files import writing_text
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.compare import agents, at_equal_latency, gaps, has_diagonal, repeated
from whilst.evaluation.curves import Point, Result, differing, over_seeds, to_curves
from whilst.evaluation.figure import MAX_LINES, Line, draw, role_of
from whilst.evaluation.record import Record, Rescored
from whilst.evaluation.tables import MARK, NAMES, NONE, agent_and_oracle, all_results, equal_latency

NARROWER = (("al", "laal", "bleu", "sacrebleu"), ("al", "bleu"))  # scores that a narrow terminal shows
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

    `times`: seconds of the stages that made what was evaluated.
    """
    results = over_seeds(select(records, pair, split))
    lines = our_lines(results) + reference_lines(results[0].pair)
    drawn = draw(lines, f"{results[0].pair} · {split}", out / "curve")
    with writing_text(out / "report.md") as file:
        file.write(to_markdown(results, len(drawn) < len(lines)) + _times_section(times or {}))
    return [out / name for name in ("report.md", "curve.png", "curve.svg")]


def select(records: Sequence[Record], pair: str | None, split: str = "test") -> list[Record]:
    """Records of one pair and one split, by system, change and AL: scores of different texts do not compare."""
    chosen = [record for record in records if pair in (None, record.pair) and record.split == split]
    if not chosen:
        found = ", ".join(sorted({f"{record.pair} {record.split}" for record in records})) or "none at all"
        raise UserError(f"no evaluation of {pair or 'any pair'} {split}; there are evaluations of {found}")
    pairs = sorted({record.pair for record in chosen})
    if len(pairs) > 1:
        raise UserError(f"evaluations of different texts do not compare: {', '.join(pairs)}; choose with --pair")
    if len(texts := {(record.source_sha256, record.reference_sha256) for record in chosen}) > 1:
        raise UserError(f"{pairs[0]} {split}: evaluations of {len(texts)} texts, which do not compare; name fewer")
    order = list(dict.fromkeys(record.system for record in chosen))

    def rank(record: Record) -> tuple[bool, int, str, float]:
        result = Result((record,))
        return result.is_full, order.index(record.system), result.change, record.scores.al

    return sorted(chosen, key=rank)


def our_lines(results: Sequence[Result]) -> list[Line]:
    """One line for each system and variant; where a point occurs twice, one for each recipe."""
    lines = []
    for name, own in by_name(results).items():
        curve, heights = ([one for one in own if one.is_full is full] for full in (False, True))
        parts = [each.results for each in to_curves(curve)] if repeated(curve) else [tuple(curve or heights)]
        for number, part in enumerate(parts, start=1):
            points = [_point(result) for result in part]
            title = f"{name} ({number})" if number > 1 else name
            lines.append(Line(title, points, role_of(own[0].system), bool(own[0].variant) or number > 1))
    return lines


def _point(result: Result) -> Point:
    if result.bleu is None:
        traces = ", ".join(record.trace for record in result.records)
        raise UserError(f"{traces}: has no BLEU; score it with its reference first")
    return Point(result.shown_label, None if result.is_full else result.al, result.bleu)


def by_name(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Grouped by system and variant."""
    named: dict[str, list[Result]] = {}
    for result in results:
        named.setdefault(result.name, []).append(result)
    return named


def reference_lines(pair: str) -> list[Line]:
    """The paper's systems."""
    lines = []
    for system in paper.systems(pair):
        points = paper.curve(pair, system)
        if system == paper.FULL:
            points = [Point("", None, point.bleu) for point in points]
        name, kind = paper.SYSTEMS[system]
        lines.append(Line(paper.title(system), points, kind if kind == "oracle" else name, is_reference=True))
    return lines


def to_markdown(results: Sequence[Result], is_partial: bool) -> str:
    """The tables and what their figures mean. `is_partial`: whether the figure leaves curves out."""
    first = results[0].first
    lines = [f"# {first.pair}, {first.split}", "", *all_results(results, NAMES).to_markdown(), ""]
    lines += ["![BLEU against average lagging](curve.svg)", ""]
    lines += [f"The figure shows {MAX_LINES} of the curves.", ""] * is_partial
    lines += [
        "AL and CW: model units, hypothesis length (the paper's convention). AL word, LAAL, AP and DAL:",
        "words, as SimulEval. BLEU: tokenised, lower-cased (the paper's convention). sacreBLEU: 13a, cased.",
        "",
    ]
    if paper.systems(first.pair):
        if paper.task(first.pair) != first.pair:
            lines += [f"**Trained on other text than the paper's**, tested as {paper.task(first.pair)}.", ""]
        lines += [
            "The paper's columns: its BLEU at our AL, interpolated between the points that it prints, and in",
            f"brackets our BLEU minus that; {NONE} where our AL is outside of its points.",
            "",
        ]
    if len({result.system.fine_tuned for result in results if result.system.name == paper.BEST}) > 1:
        lines += [FINE_TUNED, ""]
    if any(len(result.records) > 1 for result in results):
        lines += ["Several seeds: mean ± standard deviation (n - 1). Means are compared.", ""]
    lines += [*warning(results), *_equal_latency_section(results), *_oracle_section(results)]
    records = [record for result in results for record in result.records]
    empty = sum(record.scores.empty for record in records)
    if empty:
        lines += [f"Empty outputs, which count for quality but not for latency: {empty}.", ""]
    signatures = {(name, text) for record in records for name, text in record.scores.signatures.items()}
    lines += [f"- {name}: `{text}`" for name, text in sorted(signatures)]
    return "\n".join(lines).rstrip() + "\n"


def _equal_latency_section(results: Sequence[Result]) -> list[str]:
    rows = at_equal_latency(results)
    if not rows:
        return []
    has_variants = any(agent[0].variant for agent in agents(results))
    note = ["Over diagonal: ours over a fixed diagonal, of the same system if there is one, else of multi-path."]
    note = note * has_diagonal(rows)
    note += ["Of variants only rows with a figure of ours are shown."] * has_variants
    return [
        "## At equal latency",
        "",
        *equal_latency(rows).to_markdown(),
        "",
        "BLEU at the AL of each point that the paper prints for BS-SiMT. Ours, multi-path (under wait-k) and",
        f"oracle are interpolated between our points; {NONE} where that AL is outside of them.",
        "Over it: ours over our multi-path. Paper over its: the paper's BS-SiMT over the paper's multi-path.",
        *note,
        "",
    ]


def _oracle_section(results: Sequence[Result]) -> list[str]:
    rows = gaps(results)
    if not rows:
        return []
    lines = [
        "## Agent and oracle",
        "",
        *agent_and_oracle(rows).to_markdown(),
        "",
        "Gap: BLEU of the oracle's curve at the agent's AL, minus that of the agent.",
    ]
    if any(row.bleu is not None and not row.is_at_equal_latency for row in rows):
        lines += [f"{MARK}: that AL is outside of the oracle's points; the difference of the two points."]
    return [*lines, ""]


def _times_section(times: Mapping[str, float]) -> str:
    if not times:
        return ""
    rows = [*times.items(), ("together", sum(times.values()))]
    lines = ["", "## Time", "", "| stage | seconds |", "|---|---:|"]
    lines += [f"| {name} | {seconds:,.1f} |" for name, seconds in rows]
    lines += ["", "From the binarised data to the end of each stage, with validation and compilation."]
    return "\n".join(lines) + "\n"


def warning(results: Sequence[Result]) -> list[str]:
    """Points that occur twice make no curve, and neither do points of different recipes."""
    mixed = {name: differing([one.settings for one in own]) for name, own in by_name(results).items()}
    lines = []
    if twice := ", ".join(repeated(results)):
        lines += [f"Measured several times, and therefore not compared: {twice}.", ""]
    if shown := ", ".join(f"{name} ({', '.join(names)})" for name, names in mixed.items() if names):
        lines += [f"Points of one curve whose recipes differ in more than the point: {shown}.", ""]
    return lines


def print_table(records: Sequence[Record]) -> None:
    """Print the scores, on a narrow terminal only the most important, and warnings; numbers are never cut."""
    # A pipe has no width.
    screen = console if console.is_terminal else Console(file=console.file, width=140, highlight=False)
    results = over_seeds(records)
    for names in (NAMES, *NARROWER):
        table = all_results(results, names, is_short=True).to_terminal()
        if screen.measure(table, options=screen.options.update_width(1000)).maximum <= screen.width:
            break
    screen.print(table)
    for line in filter(None, warning(results)):
        notes.print(line)


def print_scores(rescored: Rescored) -> None:
    """Print the scores of a trace beside the recorded ones; an error if they differ."""
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
    early = f"{rescored.early} of {len(rescored.sentences)} sentences have their last before the source's"
    length = "" if rescored.length is None else f"{rescored.length:.3f} of the reference's; "
    empty = f", {rescored.scores.empty} have none" if rescored.scores.empty else ""
    console.print(f"words: {length}{early}{empty}", soft_wrap=True)
    for note in rescored.notes:
        notes.print(note, soft_wrap=True, markup=False)
    _require_as_recorded(rescored.differences)
    if rescored.record is not None:
        notes.print("as recorded")


def print_archive(traces: Iterable[tuple[str, Rescored]]) -> None:
    """Print a line of scores for each trace of an archive; an error if some differ from the recorded ones."""
    differences: dict[str, object] = {}
    for name, rescored in traces:
        scores = rescored.scores.to_table()
        cells = [f"{key} {scores[key]:.2f}" for key in NARROWER[0] if scores[key] is not None]
        console.print(f"{name}: {', '.join(cells)}", soft_wrap=True, markup=False, highlight=False)
        differences |= {f"{name} {score}": values for score, values in rescored.differences.items()}
    _require_as_recorded(differences)
    notes.print("as recorded")


def _require_as_recorded(differences: Iterable[str]) -> None:
    if names := ", ".join(differences):
        raise UserError(f"not as recorded: {names}; the trace, the text or the scorer has changed")
