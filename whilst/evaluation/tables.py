"""Tables of headings and cells, for Markdown and for the terminal, and the format of the numbers in them."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.markup import escape
from rich.table import Table

NONE = "—"


def figure(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def signed(value: float | None) -> str:
    return NONE if value is None else f"{value:+.2f}"


@dataclass(frozen=True)
class Grid:
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1  # the number of columns with text, which come first and are aligned left

    def to_markdown(self) -> str:
        rules = ["---" if number < self.texts else "---:" for number in range(len(self.headings))]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.headings, rules, *self.rows))

    def to_terminal(self) -> Table:
        """Only the first column, the name of a system, may be wrapped."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for number, heading in enumerate(self.headings):
            style = "bold" if heading in ("AL", "BLEU") else "dim" if heading.startswith("paper") else ""
            table.add_column(heading, style=style, no_wrap=number > 0, overflow="fold")
            table.columns[number].justify = "left" if number < self.texts else "right"
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table
