"""Speed of decoding: in batches, one by one, and by position in the sentence."""

import itertools
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from whilst.core.console import progress_bar
from whilst.core.distributed import device_name, pick_device, provenance
from whilst.core.errors import UserError
from whilst.core.files import write_json
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Limits
from whilst.data.dataset import Dataset
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import Decoding, translate_online
from whilst.decoding.policies import policy_for
from whilst.decoding.reference import masked_states, translate_recomputed
from whilst.evaluation.chart import Curve, Panel, chart
from whilst.evaluation.evaluate import with_precision, with_settings
from whilst.evaluation.lines import COLOURS
from whilst.model.checkpoint import load_run
from whilst.model.run_folder import model_folder
from whilst.model.transformer import Translator
from whilst.policy.fixed import WaitK
from whilst.research.bench.common import (
    Figures,
    clock,
    peak_memory,
    print_figures,
    print_rows,
    profile_kernels,
    random_model,
)

ALONE = 20  # sentences that are decoded one by one
POINTS = 20  # positions at which everything is recomputed, which is slow
TOKEN = 5  # any one


def decode_bench(
    recipe: Path | None, sentences: int, length: int, overrides: list[str], name: str, out: Path | None
) -> None:
    """Decode random sources with random weights."""
    device = pick_device(name)
    chosen, model = random_model(recipe, overrides, device)
    # Never write the end mark: every output is as long as its source.
    with torch.no_grad():
        model.target_embedding.weight[EOS] = 0
    limits, policy = Limits(1.0, 0), WaitK(3)
    random = np.random.default_rng(1)

    def sources(count: int) -> list[list[int]]:
        units = model.source_embedding.num_embeddings
        return [[*random.integers(4, units, length - 1).tolist(), EOS] for _ in range(count)]

    def seconds(work: Callable[[], Any]) -> float:
        work()  # warms up: a GPU captures its steps
        began = clock(device)
        work()
        return clock(device) - began

    many, one = sources(sentences), sources(1)
    together = Decoding(model, policy, limits, min(sentences, chosen.evaluate.batch))
    batched = seconds(lambda: together.translate(many))
    cached = seconds(lambda: translate_online(model, one[0], policy, limits))
    recomputed = seconds(lambda: translate_recomputed(model, one[0], policy, limits))
    figures = {
        "parameters": model.parameter_count(),
        "source length": length,
        "batched: target tokens/s": round(sentences * length / batched),
        "batched: sentences/s": round(sentences / batched, 1),
        "one by one, cached: ms a token": 1000 * cached / length,
        "one by one, cached: target tokens/s": round(length / cached, 1),
        "one by one, recomputed: ms a token": 1000 * recomputed / length,
        "recomputed / cached": recomputed / cached,
        "peak memory (GiB)": peak_memory(device),
    }
    print_figures("decoding under wait-3", figures, device, out)


@dataclass(frozen=True)
class BenchText:
    """What `run_bench` decodes, and how."""

    sentences: int | None = None  # cut or repeated to this number
    batch: int = 250
    precision: Literal["single", "half"] = "single"


def run_bench(
    run: Path,
    policy: PolicySpec,
    text: BenchText,
    overrides: list[str],
    name: str,
    out: Path | None,
    with_kernels: bool = False,
) -> None:
    """Decode the run's test text under a policy: all of it together, and some sentences one by one."""
    device = pick_device(name)
    overrides = [*overrides, f"evaluate.precision={text.precision}"]
    trained = with_settings(load_run(model_folder(run, policy), device), overrides)
    settings = with_precision(trained, trained.recipe.evaluate).recipe.evaluate
    split = Dataset.open(Path(trained.recipe.data.dataset)).split(settings.split)
    chosen, limits = policy_for(trained, policy, settings, split), settings.limits
    if chosen.depends_on_sentence:
        raise UserError(f"policy {policy}: an oracle needs the reference; time agent-L, wait-K or full")
    every = [split.source[number].tolist() for number in range(len(split.source))]
    many = list(itertools.islice(itertools.cycle(every), text.sentences or len(every)))
    together = Decoding(trained.model, chosen, limits, text.batch)
    figures: Figures = {
        "parameters": trained.model.parameter_count(),
        "sentences": len(many),
        "sentences together": text.batch,
        "precision": text.precision,
        **two_passes(together, many, "together", device),
        **two_passes(Decoding(trained.model, chosen, limits, 1), every[:ALONE], "one by one", device),
        "peak memory (GiB)": peak_memory(device),
    }
    kernels = profile_kernels(lambda: together.translate(many), 1, device) if with_kernels else []
    print_figures(f"decoding under {policy}", figures, device, out, kernels)


def two_passes(decoding: Decoding, sources: list[list[int]], label: str, device: torch.device) -> Figures:
    """The first pass warms up: a GPU captures its steps in it."""
    figures: Figures = {}
    for which in (", first pass", ""):
        began = clock(device)
        outputs = decoding.translate(sources)
        seconds = clock(device) - began
        figures[f"{label}{which}: sentences/s"] = round(len(sources) / seconds, 1)
    figures[f"{label}: target tokens/s"] = round(sum(len(output.units) + 1 for output in outputs) / seconds)
    if decoding.recorded is not None:
        figures[f"{label}: steps"] = len(decoding.recorded.times)
        figures[f"{label}: ms a step"] = 1000 * seconds / len(decoding.recorded.times)
        figures[f"{label}: recordings"] = len(decoding.recorded.recorded)
    return figures


# By position in the sentence.


@dataclass(frozen=True)
class Steps:
    """One sentence: a READ and a WRITE of the token at a position (from 0), in turn."""

    read: Callable[[int], Any]
    write: Callable[[int], Any]


def recomputed_steps(model: Translator, length: int) -> Steps:  # noqa: ARG001
    """Without caches, as the authors' code: every READ and every WRITE starts from the first token."""

    def states(position: int) -> torch.Tensor:
        return masked_states(model, [TOKEN] * (position + 1), [TOKEN] * position, range(1, position + 2))[1]

    return Steps(states, lambda position: model.logits(states(position)))


def cached_steps(model: Translator, length: int) -> Steps:
    device = model.target_embedding.weight.device
    cache = model.start(1, length, length)
    token, one = torch.full((1, 1), TOKEN, device=device), torch.ones(1, dtype=torch.long, device=device)
    return Steps(
        lambda _: model.read(cache, token, one),
        lambda position: model.write(cache, token[0], one * (position + 1)),
    )


def time_steps(steps: Steps, length: int, device: torch.device) -> tuple[list[float], list[float]]:
    """Milliseconds of every READ and of every WRITE."""
    reads, writes = [], []
    for position in range(length):
        began = clock(device)
        steps.read(position)
        middle = clock(device)
        steps.write(position)
        reads.append(1000 * (middle - began))
        writes.append(1000 * (clock(device) - middle))
    return reads, writes


def medians(sentences: list[list[float]]) -> list[float]:
    """At each position, over sentences."""
    return [statistics.median(times) for times in zip(*sentences, strict=True)]


@dataclass(frozen=True)
class Growth:
    """Milliseconds, each the median of several sentences."""

    positions: list[int]  # from 1
    read: list[float]  # with caches
    write: list[float]  # with caches
    recomputed: list[float]  # both, without caches


@torch.inference_mode()
def measure_growth(model: Translator, length: int, repeats: int) -> Growth:
    device = model.target_embedding.weight.device
    positions = sorted({max(1, length * i // POINTS) for i in range(POINTS + 1)})
    slow = recomputed_steps(model, length)
    reads, writes, recomputed = [], [], []
    for _ in progress_bar(range(repeats + 1), "decoding", "sentences"):
        read, write = time_steps(cached_steps(model, length), length, device)
        both = []
        for position in positions:
            began = clock(device)
            for _ in ("read", "write"):
                slow.write(position - 1)
            both.append(1000 * (clock(device) - began))
        reads.append([read[position - 1] for position in positions])
        writes.append([write[position - 1] for position in positions])
        recomputed.append(both)
    # The first sentence warms up.
    return Growth(positions, medians(reads[1:]), medians(writes[1:]), medians(recomputed[1:]))


def growth_bench(
    recipe: Path | None, length: int, repeats: int, overrides: list[str], name: str, out: Path | None
) -> None:
    device = pick_device(name)
    _, model = random_model(recipe, overrides, device)
    growth = measure_growth(model, length, repeats)
    cached = [read + write for read, write in zip(growth.read, growth.write, strict=True)]
    columns = (growth.positions, growth.read, growth.write, cached, growth.recomputed)
    rows = [
        (str(position), *(f"{value:.2f}" for value in (*values, slow)), f"{slow / values[-1]:.1f}")
        for position, *values, slow in zip(*columns, strict=True)
    ]
    title = f"{model.parameter_count() / 1e6:.0f} M parameters, one sentence, {device_name(device)}"
    names = "position", "read", "write", "both", "recomputed", "recomputed / cached"
    print_rows(f"ms: {title}", names, rows)
    if out is None:
        return
    about = {"bench": "growth", "parameters": model.parameter_count(), "sentences": repeats}
    write_json(out.with_name(f"{out.name}.json"), about | asdict(growth) | provenance(device))
    lines = ("recomputed", growth.recomputed, COLOURS[1]), ("cached", cached, COLOURS[0])
    curves = [Curve(label, growth.positions, values, colour) for label, values, colour in lines]
    x, y = "position in the sentence (source and target tokens)", "ms for a READ and a WRITE"
    chart([Panel(title, x, y, curves, from_zero=True)], out)
