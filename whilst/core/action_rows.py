"""READ and WRITE drawn in two rows: under each source word, what was written before the next one was read."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

READ, WRITE = "READ  ", "WRITE "


def in_rows(words: Sequence[str], written: Sequence[Sequence[str]], width: int) -> Text:
    """As many columns as fit into the width, then the next ones below."""
    text, start = Text(), 0
    room = width - len(WRITE)
    columns = [part for word, below in zip(words, written, strict=True) for part in _parts(word, below, room - 2)]
    sizes = [max(map(cell_len, column)) + 2 for column in columns]
    while start < len(columns):
        end, used = start + 1, sizes[start]
        while end < len(columns) and used + sizes[end] <= room:
            used += sizes[end]
            end += 1
        for row, (name, style) in enumerate(((READ, "cyan"), (WRITE, "bold green"))):
            text.append(name, style="dim")
            for column, size in zip(columns[start:end], sizes[start:end], strict=True):
                text.append(set_cell_size(column[row], size), style=style)
            text.append("\n")
        start = end
    return text


def _parts(word: str, below: Sequence[str], room: int) -> list[tuple[str, str]]:
    """A column, or several if so much was written that one would be too wide: the word stands above the first."""
    lines = [""]
    for one in below:
        longer = f"{lines[-1]} {one}".strip()
        if cell_len(longer) > room and lines[-1]:
            lines.append(one)
        else:
            lines[-1] = longer
    return [(word if number == 0 else "", line) for number, line in enumerate(lines)]
