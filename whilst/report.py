"""Tables and curves of any number of evaluations, set beside the paper's numbers.

Reads records only: no traces, no models. report.md is for people, report.json for programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whilst import paper
from whilst.console import console, notes
from whilst.errors import UserError
from whilst.figure import Line, draw
from whilst.files import write_json, writing_text
from whilst.scoring import Record, Rescored

FULL = "full-sentence"  # our name of what the paper calls offline
PAPER = "BS-SiMT paper"
NONE = "-"
# heading, figure, digits
COLUMNS = (
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


@dataclass(frozen=True)
class Comparison:
    """The paper's BLEU at our AL (straight lines between its points), and how far ours is above it."""

    system: str
    bleu: float
    difference: float


def compare(record: Record, system: str) -> Comparison | None:
    """None where the paper has no such system, or no points on both sides of our AL."""
    ours = record.scores.bleu
    if ours is None or system not in paper.systems(record.pair):
        return None
    points = paper.curve(record.pair, system)
    if system == paper.FULL:
        theirs: float | None = points[0].bleu
    else:
        theirs = None if record.is_full else paper.interpolate(points, record.scores.al)
    return None if theirs is None else Comparison(system, theirs, ours - theirs)


def paper_system(record: Record) -> str:
    """The paper's name of our system; what follows in brackets, such as a seed, is ours."""
    name = record.system.partition(" (")[0].lower()
    return paper.FULL if name == FULL or record.is_full else name


def report(records: Sequence[Record], out: Path, pair: str | None = None) -> list[Path]:
    """Write report.md, report.json, curve.png and curve.svg into `out`; returns what was written."""
    chosen = select(records, pair)
    title = f"{chosen[0].pair} · {chosen[0].split}"
    draw(our_lines(chosen), reference_lines(chosen[0].pair), title, PAPER, out / "curve")
    write_json(out / "report.json", {"format": 1, "pair": chosen[0].pair, "evaluations": list(map(_row, chosen))})
    with writing_text(out / "report.md") as file:
        file.write(to_markdown(chosen))
    return [out / name for name in ("report.md", "report.json", "curve.png", "curve.svg")]


def select(records: Sequence[Record], pair: str | None) -> list[Record]:
    """The records of one pair and one split, by system and AL: figures of different texts do not compare."""
    chosen = [record for record in records if pair in (None, record.pair)]
    if not chosen:
        found = ", ".join(sorted({record.pair for record in records})) or "none at all"
        raise UserError(f"no evaluation of {pair or 'any pair'}; there are evaluations of {found}")
    texts = sorted({f"{record.pair} {record.split}" for record in chosen})
    if len(texts) > 1:
        raise UserError(f"evaluations of different texts do not compare: {', '.join(texts)}; choose one")
    order = list(dict.fromkeys(record.system for record in chosen))
    return sorted(chosen, key=lambda record: (record.is_full, order.index(record.system), record.scores.al))


def our_lines(records: Sequence[Record]) -> list[Line]:
    """One line a system. What cannot be drawn, because it has no BLEU, is refused."""
    points: dict[str, list[tuple[str, float | None, float]]] = {}
    for record in records:
        if record.scores.bleu is None:
            raise UserError(f"{record.trace}: has no BLEU; score it with its reference first")
        al = None if record.is_full else record.scores.al
        points.setdefault(record.system, []).append((point_label(record), al, record.scores.bleu))
    return [Line(system, of_system) for system, of_system in points.items()]


def point_label(record: Record) -> str:
    """What tells a point apart on its curve: k, or the search interval."""
    kind, _, argument = record.policy.partition("-")
    if kind == "wait":
        return f"k={argument}"
    intervals = record.settings.get("search", {}).get("intervals", [])
    return next((f"[{first},{last}]" for first, last in intervals if str(first) == argument), record.policy)


def reference_lines(pair: str) -> list[Line]:
    lines = []
    for system in paper.systems(pair):
        is_full = system == paper.FULL
        points = [(point.label, None if is_full else point.al, point.bleu) for point in paper.curve(pair, system)]
        lines.append(Line(FULL if is_full else system, points))
    return lines


def _row(record: Record) -> dict[str, Any]:
    comparisons = {
        key: comparison and {"system": comparison.system} | _rounded(comparison)
        for key, comparison in (
            ("paper", compare(record, paper_system(record))),
            ("paper_best", compare(record, paper.BEST)),
        )
    }
    return {
        "system": record.system,
        "policy": record.policy,
        "pair": record.pair,
        "split": record.split,
        "scores": record.scores.to_table(),
        "signatures": dict(record.scores.signatures),
        **comparisons,
        "trace": record.trace,
        "seconds": record.seconds,
        "device": record.device,
    }


def _rounded(comparison: Comparison) -> dict[str, float]:
    return {"bleu": round(comparison.bleu, 2), "difference": round(comparison.difference, 2)}


def _cells(record: Record) -> list[str]:
    table = record.scores.to_table()
    values = [(table[name], digits) for _, name, digits in COLUMNS]
    figures = [NONE if value is None else f"{value:.{digits}f}" for value, digits in values]
    return [record.system, record.policy, *figures]


def _versus(comparison: Comparison | None) -> str:
    return NONE if comparison is None else f"{comparison.bleu:.2f} ({comparison.difference:+.2f})"


def to_markdown(records: Sequence[Record]) -> str:
    """The table with what its figures mean."""
    pair, has_paper = records[0].pair, bool(paper.systems(records[0].pair))
    headings = ["system", "policy", *(heading for heading, _, _ in COLUMNS)]
    headings += ["paper, same system", f"paper, {paper.BEST}"] if has_paper else []
    rows = [headings, ["---", "---", *["---:"] * (len(headings) - 2)]]
    for record in records:
        best = paper_system(record), paper.BEST
        rows.append(_cells(record) + ([_versus(compare(record, name)) for name in best] if has_paper else []))
    lines = [f"# {pair}, {records[0].split}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    lines += ["![BLEU against average lagging](curve.svg)", ""]
    lines += [
        "AL and CW: model units, hypothesis length (the paper's convention). AL word, LAAL, AP and DAL:",
        "words, as SimulEval. BLEU: tokenised, lower-cased (the paper's convention). sacreBLEU: 13a, cased.",
        "",
    ]
    if has_paper:
        lines += [
            "The paper's columns give its BLEU at our AL, on straight lines between the points that it prints,",
            f"and in brackets how far ours is above; {NONE} where our AL lies outside of its points.",
            "",
        ]
    empty = sum(record.scores.empty for record in records)
    if empty:
        lines += [f"Outputs without a word, left out of the latency but not of the quality: {empty}.", ""]
    signatures = {(name, text) for record in records for name, text in record.scores.signatures.items()}
    lines += [f"- {name}: `{text}`" for name, text in sorted(signatures)]
    return "\n".join(lines).rstrip() + "\n"


def print_table(records: Sequence[Record]) -> None:
    """The same figures for the terminal; a narrow one gets the most important, none is ever cut."""
    # a pipe has no width of its own
    screen = console if console.is_terminal else Console(file=console.file, width=140, highlight=False)
    table = _terminal_table(records, [name for _, name, _ in COLUMNS])
    if screen.measure(table, options=screen.options.update_width(1000)).maximum > screen.width:
        table = _terminal_table(records, ["al", "laal", "bleu", "sacrebleu"])
    screen.print(table)


def _terminal_table(records: Sequence[Record], names: list[str]) -> Table:
    has_paper = any(paper.systems(record.pair) for record in records)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("system")
    table.add_column("policy", no_wrap=True)
    chosen = [number for number, (_, name, _) in enumerate(COLUMNS) if name in names]
    for number in chosen:
        heading, name, _ = COLUMNS[number]
        table.add_column(heading, justify="right", no_wrap=True, style="bold" if name in ("al", "bleu") else "")
    if has_paper:
        table.add_column("paper (diff)", justify="right", no_wrap=True, style="dim")
    for record in records:
        system, policy, *figures = _cells(record)
        extra = [_versus(compare(record, paper_system(record)))] if has_paper else []
        table.add_row(escape(system), escape(policy), *(figures[number] for number in chosen), *extra)
    return table


def print_scores(rescored: Rescored) -> None:
    """Every figure of a trace scored again, beside what was recorded."""
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
    for note in rescored.notes:
        notes.print(note, soft_wrap=True, markup=False)
    if rescored.differences:
        names = ", ".join(rescored.differences)
        raise UserError(f"not as recorded: {names}; the trace, the text or the scorer has changed")
    if rescored.record is not None:
        notes.print("as recorded")
