"""What the measurements share: random text and models, the clock, the table."""

import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.table import Table

from whilst.core.config import load_recipe, override
from whilst.core.console import console
from whilst.core.distributed import device_name, provenance
from whilst.core.files import write_json
from whilst.core.settings import Data, Recipe
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.model.transformer import Translator

Figures = dict[str, Any]
T = TypeVar("T")


def random_text(folder: Path, pairs: int = 20_000, words: int = 8_000) -> Data:
    """Random words with the lengths and word frequencies of a corpus of talks, written to `folder`."""
    random = np.random.default_rng(1)
    weights = 1 / np.arange(1, words + 1)
    weights /= weights.sum()
    for name, count in (("train", pairs), ("valid", 200)):
        lengths = np.clip(random.lognormal(2.8, 0.65, count), 1, 170).astype(int)
        for side, ratio in (("src", 1.0), ("tgt", 1.22)):
            text = (
                " ".join(f"w{n}" for n in random.choice(words, max(1, int(length * ratio)), p=weights))
                for length in np.minimum(lengths, int(170 / ratio))
            )
            (folder / f"{name}.{side}").write_text("\n".join(text) + "\n", encoding="utf-8")
    return Data(
        dataset=str(folder / "dataset"),
        folder=str(folder),
        train=("train.src", "train.tgt"),
        valid=("valid.src", "valid.tgt"),
        units="word",
    )


def load_or_make(recipe: Path | None, overrides: list[str], folder: Path) -> Recipe:
    """The recipe, or one for the paper's model on random text, which is written to `folder`."""
    if recipe is not None:
        return load_recipe(recipe, overrides)
    loaded = override(Recipe(data=random_text(folder)), overrides)
    with console.capture():
        prepare(loaded.data)
    return loaded


def random_model(recipe: Path | None, overrides: list[str], device: torch.device) -> tuple[Recipe, Translator]:
    """A model with random weights, which works as long as a trained one."""
    with tempfile.TemporaryDirectory() as temporary:
        loaded = load_or_make(recipe, overrides, Path(temporary))
        dataset = Dataset.open(Path(loaded.data.dataset))
    torch.manual_seed(1)
    settings = replace(loaded.model, encoder="causal")
    return loaded, Translator(settings, len(dataset.source), len(dataset.target)).to(device).eval()


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


def print_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> None:
    """Print a table; all columns but those of `left` are aligned on the right."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_figures(title: str, figures: Figures, device: torch.device, out: Path | None) -> None:
    """Print the figures, and write them to the file `out`."""
    formats = {float: ",.2f", int: ","}
    rows = [(name, format(value, formats.get(type(value), ""))) for name, value in figures.items()]
    print_rows(f"{title} on {device_name(device)}", ("figure", "value"), rows, left=("figure",))
    if out is not None:
        write_json(out, {"bench": title, **figures, **provenance(device)})
