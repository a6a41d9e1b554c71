"""Speed of a READ and a WRITE on a CPU: PyTorch without and with caches, exported graphs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whilst.core.console import progress_bar
from whilst.decoding.reference import recomputed_states
from whilst.engine.export import make_engine
from whilst.engine.runtime import PRECISIONS, Engine, EngineSession
from whilst.model.transformer import Translator
from whilst.research.bench.common import Figures, random_model, report, seconds_of

CPU = torch.device("cpu")
TOKEN = 5  # any one

Step = Callable[[int], Any]
Steps = tuple[Step, Step]  # a READ and a WRITE of the token at a position (from 0), in turn
Way = Callable[[int], Steps]  # for a sentence of this length


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


def time_steps(steps: Steps, length: int) -> list[list[float]]:
    """(length, 2) milliseconds of every READ and WRITE."""
    return [[1000 * seconds_of(partial(step, i), CPU)[0] for step in steps] for i in range(length)]


@torch.inference_mode()
def measure(ways: dict[str, Way], length: int, repeats: int) -> list[Figures]:
    """By way, the mean over positions of the median over sentences, in ms. Load affects all ways alike."""
    for way in ways.values():
        time_steps(way(length), min(length, 3))  # to warm up
    found: dict[str, list[list[list[float]]]] = {name: [] for name in ways}
    for _ in progress_bar(range(repeats), f"sentences of {length} tokens", "sentences"):
        for name, way in ways.items():
            found[name].append(time_steps(way(length), length))
    rows: list[Figures] = []
    for name, sentences in found.items():
        read, write = np.median(sentences, axis=0).mean(axis=0).tolist()
        rows.append({"length": length, "way": name, "read": read, "write": write, "both": read + write})
    for slow in rows[:2]:
        for row in rows:
            row[f"{slow['way']} / this"] = slow["both"] / row["both"]
    return rows


def engine_bench(
    recipe: Path | None, lengths: list[int], repeats: int, threads: int, overrides: list[str], out: Path | None
) -> None:
    """Measure with random weights, which work as long as trained ones."""
    import onnxruntime as runtime

    _, model = random_model(recipe, overrides, CPU)
    ways: dict[str, Way] = {
        "recomputed": partial(recomputed_steps, model),
        "PyTorch, cached": partial(cached_steps, model),
    }
    for precision in PRECISIONS:
        ways[f"ONNX {precision}"] = partial(exported_steps, make_engine(model, None, precision, threads))
    about = {"parameters": model.parameter_count(), "sentences": repeats, "onnxruntime": runtime.__version__}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rows = [row for length in lengths for row in measure(ways, length, repeats)]
        report("CPU engine, ms a token", about, rows, CPU, out)
    finally:
        torch.set_num_threads(before)
