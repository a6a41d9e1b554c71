"""Show READs and WRITEs as two rows: below each source word, the target words written before the next READ."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

READ, WRITE = "READ  ", "WRITE "


def action_rows(source: Sequence[str], target: Sequence[Sequence[str]], width: int) -> Text:
    """The two rows as styled text. `target[i]` has the target words below source word i.

    Columns that exceed `width` terminal cells continue in another pair of rows.
    """
    text, start = Text(), 0
    room = width - len(WRITE)
    columns = [part for pair in zip(source, target, strict=True) for part in _columns(*pair, room - 2)]
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


def _columns(source: str, target: Sequence[str], room: int) -> list[tuple[str, str]]:
    """One column, or several if the target words are wider than `room`; the source word is in the first one."""
    lines = [""]
    for word in target:
        longer = f"{lines[-1]} {word}".strip()
        if cell_len(longer) > room and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return [(source if number == 0 else "", line) for number, line in enumerate(lines)]
