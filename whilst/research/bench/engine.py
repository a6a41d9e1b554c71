"""Speed of a READ and a WRITE on a CPU: PyTorch without and with caches, exported graphs."""

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from whilst.core.config import load_recipe, override
from whilst.core.console import progress_bar
from whilst.core.distributed import command_line, device_name, versions
from whilst.core.files import write_json
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.engine.export import make_engine
from whilst.engine.runtime import PRECISIONS, Engine
from whilst.model.transformer import Translator
from whilst.research.bench.common import print_rows, processor
from whilst.research.bench.decoding import TOKEN, Steps, cached_steps, medians, recomputed_steps, time_steps

CPU = torch.device("cpu")
PAPER_UNITS = 17_192, 7_710  # of IWSLT15 en-vi
RECOMPUTED, CACHED = "recomputed", "PyTorch, cached"

Way = Callable[[int], Steps]  # for a sentence of this length
Times = dict[str, dict[str, float]]  # by way: ms of read, write, both


def exported_steps(engine: Engine, length: int) -> Steps:  # noqa: ARG001
    session = engine.start()

    def write(_: int) -> None:
        session.lookahead()
        session.logits()
        session.commit(TOKEN)

    return Steps(lambda _: session.read(TOKEN), write)


@torch.inference_mode()
def measure(ways: dict[str, Way], length: int, repeats: int) -> Times:
    """Mean over positions of the median over sentences. The ways take turns, so that load affects all alike."""
    reads: dict[str, list[list[float]]] = {name: [] for name in ways}
    writes: dict[str, list[list[float]]] = {name: [] for name in ways}
    for way in ways.values():
        time_steps(way(length), min(length, 3), CPU)  # to warm up
    for _ in progress_bar(range(repeats), f"sentences of {length} tokens", "sentences"):
        for name, way in ways.items():
            read, write = time_steps(way(length), length, CPU)
            reads[name].append(read)
            writes[name].append(write)
    means = {name: [statistics.fmean(medians(times[name])) for times in (reads, writes)] for name in ways}
    return {name: {"read": read, "write": write, "both": read + write} for name, (read, write) in means.items()}


def engine_bench(
    recipe: Path | None, lengths: list[int], repeats: int, threads: int, overrides: list[str], out: Path | None
) -> None:
    """Measure with random weights, which work as long as trained ones."""
    if recipe is None:
        chosen, units = override(Recipe(), overrides), PAPER_UNITS
    else:
        chosen = load_recipe(recipe, overrides)
        dataset = Dataset.open(Path(chosen.data.dataset))
        units = len(dataset.source), len(dataset.target)
    torch.manual_seed(1)
    model = Translator(replace(chosen.model, encoder="causal"), *units).eval()
    ways: dict[str, Way] = {RECOMPUTED: partial(recomputed_steps, model), CACHED: partial(cached_steps, model)}
    for precision in PRECISIONS:
        ways[f"ONNX {precision}"] = partial(exported_steps, make_engine(model, None, precision, threads))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        figures = {length: measure(ways, length, repeats) for length in lengths}
        device = device_name(CPU)
    finally:
        torch.set_num_threads(before)
    print_times(figures, f"{model.parameter_count() / 1e6:.1f} M parameters, {device}")
    if out is not None:
        import onnxruntime as runtime

        about = {"bench": "engine", "parameters": model.parameter_count(), "units": units, "sentences": repeats}
        packages = versions() | {"onnxruntime": runtime.__version__}
        packages = versions() | {"onnxruntime": runtime.__version__}
        made = {"command": command_line(), "device": device, "versions": packages}
        found = {"ms a token": figures, "ratios": ratios(figures)}
        write_json(out, about | found | {"processor": processor()} | made)


def ratios(figures: dict[int, Times]) -> dict[int, Times]:
    """How many times faster a READ and a WRITE are than recomputed, and than with PyTorch's caches."""
    return {
        length: {
            name: {f"{slow} / this": ways[slow]["both"] / own["both"] for slow in (RECOMPUTED, CACHED)}
            for name, own in ways.items()
        }
        for length, ways in figures.items()
    }


def print_times(figures: dict[int, Times], title: str) -> None:
    names = "length", "way", "read", "write", "both", *(f"{slow} / this" for slow in (RECOMPUTED, CACHED))
    shares = ratios(figures)
    rows = [
        (
            *(str(length), name),
            *(f"{own[part]:.2f}" for part in ("read", "write", "both")),
            *(f"{value:.1f}" for value in shares[length][name].values()),
        )
        for length, ways in figures.items()
        for name, own in ways.items()
    ]
    print_rows(f"ms a token: {title}", names, rows, left=("way",))
