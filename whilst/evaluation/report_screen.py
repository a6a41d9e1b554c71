"""Reports and scores for the terminal."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from whilst.core.console import console, notes
from whilst.core.errors import UserError
from whilst.evaluation.compare import at_equal_latency, gaps
from whilst.evaluation.record import Record, Rescored
from whilst.evaluation.report import to_results, warning
from whilst.evaluation.tables import MARK, NAMES, NONE, agent_and_oracle, all_results, equal_latency

# What a narrow terminal gets, the more important the longer it stays.
NARROWER = (("al", "laal", "bleu", "sacrebleu"), ("al", "bleu"))


def print_table(records: Sequence[Record]) -> None:
    """The figures of a report; a narrow terminal gets the most important, none is ever cut."""
    screen, results = _screen(), to_results(records)
    for names in (NAMES, *NARROWER):
        table = all_results(results, names, is_short=True).to_terminal()
        if _fits(table, screen):
            break
    screen.print(table)


def print_comparisons(records: Sequence[Record]) -> None:
    """What can be said at equal latency."""
    screen, results = _screen(), to_results(records)
    rows, differences = at_equal_latency(results), gaps(results)
    if rows:
        screen.print()
        grid, title = equal_latency(rows), "At equal latency (the paper's points): BLEU"
        wide = grid.to_terminal(title)
        screen.print(wide if _fits(wide, screen) else grid.to_terminal(title, is_tight=True))
    for line in filter(None, warning(results)):
        notes.print(line)
    if differences:
        screen.print()
        screen.print(agent_and_oracle(differences).to_terminal("Agent and oracle"))
        if any(row.bleu is not None and not row.is_at_equal_latency for row in differences):
            screen.print(f"{MARK} not at equal latency")


def _fits(table: Table, screen: Console) -> bool:
    return screen.measure(table, options=screen.options.update_width(1000)).maximum <= screen.width


def _screen() -> Console:
    """A pipe has no width of its own."""
    return console if console.is_terminal else Console(file=console.file, width=140, highlight=False)


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
    """A line for each trace of an archive, as it is scored again."""
    differences: dict[str, object] = {}
    for name, rescored in traces:
        figures = rescored.scores.to_table()
        cells = [f"{key} {figures[key]:.2f}" for key in NARROWER[0] if figures[key] is not None]
        console.print(f"{name}: {', '.join(cells)}", soft_wrap=True, markup=False, highlight=False)
        differences |= {f"{name} {figure}": values for figure, values in rescored.differences.items()}
    _require_as_recorded(differences)
    notes.print("as recorded")


def _require_as_recorded(differences: Iterable[str]) -> None:
    if names := ", ".join(differences):
        raise UserError(f"not as recorded: {names}; the trace, the text or the scorer has changed")
