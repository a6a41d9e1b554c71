"""What one token costs on a CPU: recomputing everything, PyTorch with caches, the exported graphs; in one run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from whilst.core.config import load_recipe, override
from whilst.core.console import console, progress_bar
from whilst.core.distributed import command_line, device_name, versions
from whilst.core.files import write_json
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.decoding.reference import masked_states
from whilst.engine.export import make_engine
from whilst.engine.runtime import PRECISIONS, Engine
from whilst.model.transformer import Translator

PAPER_UNITS = 17_192, 7_710  # of IWSLT15 en-vi
TOKEN = 5  # which one does not matter
RECOMPUTED, EAGER = "recomputed", "PyTorch, cached"


@dataclass(frozen=True)
class Steps:
    """One sentence in one of the ways: a READ and a WRITE of the token at a position, from 0, in turn."""

    read: Callable[[int], Any]
    write: Callable[[int], Any]


Way = Callable[[int], Steps]  # for a sentence of so many tokens


def recomputed(model: Translator, length: int) -> Steps:  # noqa: ARG001
    """As the authors' code does: every READ and every WRITE begins with the first token."""

    def read(place: int) -> torch.Tensor:
        return masked_states(model, [TOKEN] * (place + 1), [TOKEN] * place, range(1, place + 2))[1]

    return Steps(read, lambda place: model.logits(read(place)))


def eager(model: Translator, length: int) -> Steps:
    cache = model.start(1, length, length)
    token, one = torch.full((1, 1), TOKEN), torch.ones(1, dtype=torch.long)
    return Steps(
        lambda _: model.read(cache, token, one),
        lambda place: model.write(cache, token[0], one * (place + 1)),
    )


def exported(engine: Engine, length: int) -> Steps:  # noqa: ARG001
    session = engine.start()

    def write(_: int) -> None:
        session.lookahead()
        session.logits()
        session.commit(TOKEN)

    return Steps(lambda _: session.read(TOKEN), write)


def timed(steps: Steps, length: int) -> tuple[list[float], list[float]]:
    """Milliseconds of every READ and every WRITE."""
    reads, writes = [], []
    for place in range(length):
        began = time.perf_counter()
        steps.read(place)
        read = time.perf_counter()
        steps.write(place)
        reads.append(1000 * (read - began))
        writes.append(1000 * (time.perf_counter() - read))
    return reads, writes


def mean_of_medians(sentences: list[list[float]]) -> float:
    """Over positions, of the median over sentences."""
    return statistics.fmean(statistics.median(times) for times in zip(*sentences, strict=True))


@torch.inference_mode()
def measure(ways: dict[str, Way], length: int, repeats: int) -> dict[str, dict[str, float]]:
    """Mean ms of a token of a sentence of this length. The ways take turns: what disturbs one disturbs all."""
    reads: dict[str, list[list[float]]] = {name: [] for name in ways}
    writes: dict[str, list[list[float]]] = {name: [] for name in ways}
    for way in ways.values():
        timed(way(length), min(length, 3))  # to warm up
    for _ in progress_bar(range(repeats), f"sentences of {length} tokens", "sentences"):
        for name, way in ways.items():
            read, write = timed(way(length), length)
            reads[name].append(read)
            writes[name].append(write)
    figures = {}
    for name in ways:
        read_ms, write_ms = mean_of_medians(reads[name]), mean_of_medians(writes[name])
        figures[name] = {"read": read_ms, "write": write_ms, "both": read_ms + write_ms}
    return figures


def processor() -> str:
    """The CPU's name, and whether it multiplies 8-bit integers directly."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {'with' if 'vnni' in text else 'without'} VNNI"


def engine_bench(
    recipe: Path | None, lengths: list[int], repeats: int, threads: int, overrides: list[str], out: Path | None
) -> None:
    """Measure with random weights: the words mean nothing, the work is the same."""
    if recipe is None:
        chosen, units = override(Recipe(), overrides), PAPER_UNITS
    else:
        chosen = load_recipe(recipe, overrides)
        dataset = Dataset.open(Path(chosen.data.dataset))
        units = len(dataset.source), len(dataset.target)
    torch.manual_seed(1)
    model = Translator(replace(chosen.model, encoder="causal"), *units).eval()
    ways: dict[str, Way] = {RECOMPUTED: partial(recomputed, model), EAGER: partial(eager, model)}
    for precision in PRECISIONS:
        ways[f"ONNX {precision}"] = partial(exported, make_engine(model, None, precision, threads))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        figures = {length: measure(ways, length, repeats) for length in lengths}
        device = device_name(torch.device("cpu"))
    finally:
        torch.set_num_threads(before)
    print_figures(figures, f"{model.parameter_count() / 1e6:.1f} M parameters, {device}")
    if out is not None:
        about = {"bench": "engine", "parameters": model.parameter_count(), "units": units, "sentences": repeats}
        made = {"command": command_line(), "device": device, "versions": versions() | runtime()}
        found = {"ms a token": figures, "ratios": ratios(figures)}
        write_json(out, about | found | {"processor": processor()} | made)


def runtime() -> dict[str, str]:
    import onnxruntime

    return {"onnxruntime": onnxruntime.__version__}


def ratios(figures: dict[int, dict[str, dict[str, float]]]) -> dict[int, dict[str, dict[str, float]]]:
    """How many times less than recomputed and than PyTorch a READ and a WRITE take."""
    return {
        length: {
            name: {f"{slow} / this": ways[slow]["both"] / mine["both"] for slow in (RECOMPUTED, EAGER)}
            for name, mine in ways.items()
        }
        for length, ways in figures.items()
    }


def print_figures(figures: dict[int, dict[str, dict[str, float]]], title: str) -> None:
    table = Table("length", "way", "read", "write", "both", *(f"{slow} / this" for slow in (RECOMPUTED, EAGER)))
    table.title = f"ms a token: {title}"
    for length, ways in figures.items():
        for name, mine in ways.items():
            cells = (f"{mine[part]:.2f}" for part in ("read", "write", "both"))
            shares = (f"{value:.1f}" for value in ratios(figures)[length][name].values())
            table.add_row(str(length), name, *cells, *shares)
    for column in (table.columns[0], *table.columns[2:]):
        column.justify = "right"
    console.print(table)
