"""Speed of a READ and a WRITE on a CPU: PyTorch without and with caches, exported graphs."""

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from whilst.core.config import load_recipe, override
from whilst.core.console import progress_bar
from whilst.core.distributed import provenance, versions
from whilst.core.files import write_json
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.decoding.reference import recomputed_states
from whilst.engine.export import make_engine
from whilst.engine.runtime import PRECISIONS, Engine, EngineSession
from whilst.model.transformer import Translator
from whilst.research.bench.common import print_rows, processor, seconds_of

CPU = torch.device("cpu")
TOKEN = 5  # any one
PAPER_UNITS = 17_192, 7_710  # of IWSLT15 en-vi
RECOMPUTED, CACHED = "recomputed", "PyTorch, cached"

Step = Callable[[int], Any]
Steps = tuple[Step, Step]  # a READ and a WRITE of the token at a position (from 0), in turn
Way = Callable[[int], Steps]  # for a sentence of this length
Times = dict[str, dict[str, float]]  # by way: ms of read, write, both


def recomputed_steps(model: Translator, length: int) -> Steps:  # noqa: ARG001
    """Without caches, as the authors' code: every READ and every WRITE starts from the first token."""

    def states(position: int) -> torch.Tensor:
        return recomputed_states(model, [TOKEN] * (position + 1), [TOKEN] * position, range(1, position + 2))[1]

    return states, lambda position: model.logits(states(position))


def cached_steps(model: Translator, length: int) -> Steps:
    cache = model.start(1, length, length)
    token, one = torch.full((1, 1), TOKEN), torch.ones(1, dtype=torch.long)
    return (
        lambda _: model.read(cache, token, one),
        lambda position: model.write(cache, token[0], one * (position + 1)),
    )


def exported_steps(engine: Engine, length: int) -> Steps:  # noqa: ARG001
    session = EngineSession(engine)

    def write(_: int) -> None:
        session.lookahead()
        session.logits()
        session.commit(TOKEN)

    return lambda _: session.read(TOKEN), write


def time_steps(steps: Steps, length: int) -> tuple[list[float], ...]:
    """Milliseconds of every READ and of every WRITE."""
    times: tuple[list[float], ...] = [], []
    for position in range(length):
        for step, found in zip(steps, times, strict=True):
            found.append(1000 * seconds_of(partial(step, position), CPU)[0])
    return times


@torch.inference_mode()
def measure(ways: dict[str, Way], length: int, repeats: int) -> Times:
    """Mean over positions of the median over sentences. The ways take turns, so that load affects all alike."""
    for way in ways.values():
        time_steps(way(length), min(length, 3))  # to warm up
    found: dict[str, list[tuple[list[float], ...]]] = {name: [] for name in ways}
    for _ in progress_bar(range(repeats), f"sentences of {length} tokens", "sentences"):
        for name, way in ways.items():
            found[name].append(time_steps(way(length), length))
    times = {}
    for name, sentences in found.items():
        medians = [map(statistics.median, zip(*each, strict=True)) for each in zip(*sentences, strict=True)]
        read, write = map(statistics.fmean, medians)
        times[name] = {"read": read, "write": write, "both": read + write}
    return times


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
        machine = {"processor": processor(), **provenance(CPU)}
    finally:
        torch.set_num_threads(before)
    ratios = {length: ratios_of(times) for length, times in figures.items()}
    rows = [
        (
            *(str(length), name),
            *(f"{value:.2f}" for value in own.values()),
            *(f"{value:.1f}" for value in ratios[length][name].values()),
        )
        for length, times in figures.items()
        for name, own in times.items()
    ]
    names = "length", "way", "read", "write", "both", *(f"{slow} / this" for slow in (RECOMPUTED, CACHED))
    parameters = model.parameter_count()
    title = f"ms a token: {parameters / 1e6:.1f} M parameters, {machine['device']}"
    print_rows(title, names, rows, left=("way",))
    if out is not None:
        import onnxruntime as runtime

        about = {"bench": "engine", "parameters": parameters, "units": units, "sentences": repeats}
        machine["versions"] = versions() | {"onnxruntime": runtime.__version__}
        write_json(out, about | {"ms a token": figures, "ratios": ratios} | machine)


def ratios_of(times: Times) -> Times:
    """How many times faster a READ and a WRITE are than recomputed, and than with PyTorch's caches."""
    return {
        name: {f"{slow} / this": times[slow]["both"] / own["both"] for slow in (RECOMPUTED, CACHED)}
        for name, own in times.items()
    }
