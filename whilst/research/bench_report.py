"""Print the figures of a benchmark as a table and write them to a file. Does not import PyTorch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from whilst.core.console import console
from whilst.core.files import write_json

Figures = dict[str, Any]


def processor() -> str:
    """The name of the CPU, and whether it has instructions for products of 8-bit integers (VNNI)."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {'with' if 'vnni' in text else 'without'} VNNI"


def report(bench: str, about: Figures, rows: Sequence[Figures], where: Figures, out: Path | None) -> None:
    """Print a table of the rows, whose keys are its headings, and write everything to the file `out`.

    `about`: what was measured, the same for all rows. `where`: device, command and versions.
    """
    details = ", ".join(f"{name} {_shown(value)}" for name, value in about.items())
    table = Table(title=f"{bench} on {where['device']}\n{details}", box=box.SIMPLE, collapse_padding=True)
    for name, value in rows[0].items():
        table.add_column(name, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    console.print(table)
    if out is not None:
        write_json(out, {"bench": bench, **about, "rows": rows, **where, "processor": processor()})


def _shown(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
