"""What the measurements share: models with random weights, the clock, the table and the file of figures."""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.table import Table

from whilst.core.config import load_recipe, override
from whilst.core.console import console
from whilst.core.distributed import provenance
from whilst.core.files import write_json
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.model.transformer import Translator

PAPER_UNITS = 17_192, 7_710  # of IWSLT15 en-vi

Figures = dict[str, Any]
T = TypeVar("T")


def random_model(recipe: Path | None, overrides: list[str], device: torch.device) -> tuple[Recipe, Translator]:
    """A model of a recipe or else the paper's, with random weights, which works as long as a trained one."""
    if recipe is None:
        loaded, units = override(Recipe(), overrides), PAPER_UNITS
    else:
        loaded = load_recipe(recipe, overrides)
        dataset = Dataset.open(Path(loaded.data.dataset))
        units = len(dataset.source), len(dataset.target)
    torch.manual_seed(1)
    return loaded, Translator(replace(loaded.model, encoder="causal"), *units).to(device).eval()


def clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def seconds_of(work: Callable[[], T], device: torch.device) -> tuple[float, T]:
    """How long `work` takes, and its result."""
    began = clock(device)
    result = work()
    return clock(device) - began, result


def peak_memory(device: torch.device) -> float:
    """GiB: of the device's allocator on a GPU, otherwise of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def processor() -> str:
    """The CPU's name, and whether it has instructions for products of 8-bit integers (VNNI)."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {'with' if 'vnni' in text else 'without'} VNNI"


def report(bench: str, about: Figures, rows: Sequence[Figures], device: torch.device, out: Path | None) -> None:
    """Print a table of the rows, whose keys are its headings, and write everything to the file `out`.

    `about`: what was measured, the same for all rows.
    """
    where = provenance(device) | {"processor": processor()}
    details = ", ".join(f"{name} {_shown(value)}" for name, value in about.items())
    table = Table(title=f"{bench} on {where['device']}\n{details}")
    for name, value in rows[0].items():
        table.add_column(name, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    console.print(table)
    if out is not None:
        write_json(out, {"bench": bench, **about, "rows": rows, **where})


def _shown(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
