"""The tables of a report as headings and cells, and their two forms: Markdown and the terminal.

Formats numbers, but computes none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.markup import escape
from rich.table import Table

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.compare import AtLatency, Gap, at_our_latency, has_diagonal, minus, paper_system
from whilst.evaluation.curves import Result

NONE = "—"
MARK = "†"  # a gap between two points of different latency
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
NAMES = tuple(name for _, name, _ in COLUMNS)
AT_LATENCY = {
    "al": "AL",
    "paper": "paper",
    "ours": "ours",
    "over_paper": "over paper",
    "multi_path": "multi-path",
    "over_multi_path": "over it",
    "over_diagonal": "over diagonal",
    "paper_over_its_multi_path": "paper over its",
    "oracle": "oracle",
}


@dataclass(frozen=True)
class Column:
    heading: str
    is_text: bool = False  # text stands left, figures right
    style: str = ""  # in a terminal


SYSTEM = Column("system", is_text=True)


@dataclass(frozen=True)
class Grid:
    """A table, for Markdown or the terminal."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    def to_markdown(self) -> list[str]:
        headings = [column.heading for column in self.columns]
        rules = ["---" if column.is_text else "---:" for column in self.columns]
        return [f"| {' | '.join(row)} |" for row in (headings, rules, *self.rows)]

    def to_terminal(self) -> Table:
        """Only a system's name may be wrapped; numbers, policies and intervals stay whole."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in self.columns:
            table.add_column(
                column.heading,
                justify="left" if column.is_text else "right",
                style=column.style,
                no_wrap=column is not SYSTEM,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table


def figure(value: float | None, digits: int = 2, deviation: float | None = None) -> str:
    """A number, with its deviation if it is a mean over seeds."""
    if value is None:
        return NONE
    return f"{value:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def signed(value: float | None) -> str:
    return NONE if value is None else f"{value:+.2f}"


def all_results(results: Sequence[Result], names: Sequence[str], is_short: bool = False) -> Grid:
    """One row a result, with the scores of these names; the short form has no column for the paper's BS-SiMT."""
    chosen = [column for column in COLUMNS if column[1] in names]
    has_seeds = any(len(result.records) > 1 for result in results)
    columns = [SYSTEM, Column("policy", is_text=True), *([Column("seeds")] if has_seeds else [])]
    columns += [Column(heading, style="bold" if name in ("al", "bleu") else "") for heading, name, _ in chosen]
    versus = ("paper (diff)",) if is_short else ("paper: same system", paper.title(paper.BEST))
    has_paper = any(paper.systems(result.pair) for result in results)
    columns += [Column(heading, style="dim") for heading in versus if has_paper]
    rows = []
    for result in results:
        scores, deviations = result.scores, result.deviations
        cells = [*result.cells, *([str(len(result.records))] if has_seeds else [])]
        cells += [figure(scores[name], digits, deviations[name]) for _, name, digits in chosen]
        theirs = [_versus(result, system) for system in (paper_system(result), paper.BEST)]
        rows.append(cells + (theirs[: len(versus)] if has_paper else []))
    return Grid(columns, rows)


def _versus(result: Result, system: str | None) -> str:
    """The paper's BLEU at our AL, and how far ours is above it."""
    theirs = at_our_latency(result, system)
    difference = minus(result.bleu, theirs)
    return NONE if difference is None else f"{theirs:.2f} ({difference:+.2f})"


def equal_latency(rows: Sequence[AtLatency]) -> Grid:
    shown = {name: heading for name, heading in AT_LATENCY.items() if name != "over_diagonal" or has_diagonal(rows)}
    columns = [SYSTEM, Column("interval", is_text=True), *map(Column, shown.values())]
    cells = []
    for row in rows:
        figures = [(signed if "over" in name else figure)(row.figures[name]) for name in shown]
        cells.append([row.system, row.label, *figures])
    return Grid(columns, cells)


def agent_and_oracle(rows: Sequence[Gap]) -> Grid:
    headings = "agent AL", "agent BLEU", "oracle AL", "oracle BLEU", "gap"
    columns = [SYSTEM, Column("interval", is_text=True), *map(Column, headings)]
    cells = []
    for row in rows:
        agent, oracle = row.agent, row.oracle
        theirs = [figure(oracle.al), figure(oracle.bleu)] if oracle else [NONE] * 2
        gap = signed(row.bleu) + MARK * (row.bleu is not None and not row.is_at_equal_latency)
        cells.append([agent.name, agent.shown_label, figure(agent.al), figure(agent.bleu), *theirs, gap])
    return Grid(columns, cells)
