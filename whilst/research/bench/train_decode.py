"""Speed, measured: never a test, always a command. Ratios come from one run on one machine."""

import dataclasses
import itertools
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.table import Table

from whilst.core.config import load_recipe, override
from whilst.core.console import console, progress_bar
from whilst.core.distributed import device_name, pick_device, provenance, start_compile_workers
from whilst.core.errors import UserError
from whilst.core.files import write_json
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data, Limits, Recipe
from whilst.data.batches import prefetch
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import Decoding, translate_batch
from whilst.decoding.reference import translate_recomputed
from whilst.evaluation.evaluate import choose, with_precision, with_settings
from whilst.model.agent import Agent
from whilst.model.checkpoint import load_run
from whilst.model.run_folder import model_folder
from whilst.model.transformer import Translator
from whilst.policy.wait_k import WaitK
from whilst.research.bench.kernels import profiled, show_kernels
from whilst.training.loop import Loop
from whilst.training.stages import make_task, stages
from whilst.training.tasks import AgentTask, Task

Figures = dict[str, Any]
PROFILED = 4  # updates
ALONE = 20  # sentences that are decoded one by one
Precision = Literal["single", "half"]
Stage = Literal["translate", "search", "agent"]


def random_text(folder: Path, pairs: int = 20_000, words: int = 8_000) -> Data:
    """Random words with the lengths and the word frequencies of a corpus of talks."""
    random = np.random.default_rng(1)
    chances = 1 / np.arange(1, words + 1)
    chances /= chances.sum()
    for name, count in (("train", pairs), ("valid", 200)):
        lengths = np.clip(random.lognormal(2.8, 0.65, count), 1, 170).astype(int)
        for side, ratio in (("src", 1.0), ("tgt", 1.22)):
            text = (
                " ".join(f"w{n}" for n in random.choice(words, max(1, int(length * ratio)), p=chances))
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


def load(recipe: Path | None, overrides: list[str], folder: Path) -> Recipe:
    """The recipe, or the paper's model on random text made in `folder`."""
    if recipe is not None:
        return load_recipe(recipe, overrides)
    chosen = override(Recipe(data=random_text(folder)), overrides)
    with console.capture():
        prepare(chosen.data)
    return chosen


def peak_memory(device: torch.device) -> float:
    """GiB: of the device's allocator on a GPU, of the whole process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def show(title: str, figures: Figures, device: torch.device, out: Path | None, more: Figures | None = None) -> None:
    """A table of the figures; the file has `more` too."""
    table = Table("figure", "value", title=f"{title} on {device_name(device)}")
    table.columns[1].justify = "right"
    for name, value in figures.items():
        table.add_row(name, format(value, {float: ",.2f", int: ","}.get(type(value), "")))
    console.print(table)
    if out is not None:
        write_json(out, {"bench": title, **figures, **provenance(device), **(more or {})})


def task_of(recipe: Recipe, dataset: Dataset, device: torch.device) -> Task:
    """The task of a stage as it would begin with random weights: the work is the same, and no run is needed."""
    if recipe.stages != ("agent",):
        return make_task(dataclasses.replace(recipe, start="", teacher=""), dataset, device)
    torch.manual_seed(1)
    translator = Translator(recipe.model, len(dataset.source), len(dataset.target)).to(device).eval()
    agent = Agent(recipe.agent, recipe.model.width, recipe.latencies).to(device)
    return AgentTask(recipe, dataset, translator.requires_grad_(False), agent, device)


def train_bench(
    recipe: Path | None,
    stage: Stage,
    steps: int,
    overrides: list[str],
    name: str,
    out: Path | None,
    with_kernels: bool = False,
) -> None:
    """Time `steps` updates of a stage after as many to warm up; then see which kernels take the time, if wanted."""
    device = pick_device(name)
    start_compile_workers(device)
    with tempfile.TemporaryDirectory() as temporary:
        every = load(recipe, overrides, Path(temporary))
        chosen = dataclasses.replace(stages(dataclasses.replace(every, stages=(stage,)))[0], start="")
        dataset = Dataset.open(Path(chosen.data.dataset))
        loop = Loop(chosen, task_of(chosen, dataset, device))
        began = clock(device)
        if chosen.train.compile and device.type == "cuda":
            loop.compile()
        updates = prefetch(loop.updates())
        tokens = sentences = 0
        since = began
        first = 0.0
        for step in progress_bar(range(2 * steps), "training", "steps"):
            if step == steps:
                since, tokens, sentences = clock(device), 0, 0
            micros, count, _ = next(updates)
            loop.update(micros, count)
            if step == 0:
                first = clock(device) - began
            tokens, sentences = tokens + count, sentences + sum(batch.sentences for _, batch in micros)
        seconds = clock(device) - since
        memory = peak_memory(device)
        kernels = profiled(lambda: loop.update(*next(updates)[:2]), PROFILED, device) if with_kernels else []
    figures: Figures = {
        "parameters": loop.state.parameters,
        "tokens in a batch": chosen.train.batch_tokens,
        "first update (s, compiling)": first,
        "ms an update": 1000 * seconds / steps,
        "target tokens/s": round(tokens / seconds),
        "sentences/s": round(sentences / seconds),
        "peak memory (GiB)": memory,
    }
    if kernels:
        show_kernels(kernels)
    title = {"translate": "training", "search": "fine-tuning", "agent": "agent training"}[stage]
    show(title, figures, device, out, {"kernels": kernels} if kernels else {})


def random_model(recipe: Path | None, overrides: list[str], device: torch.device) -> tuple[Recipe, Translator]:
    """A model with random weights: its words mean nothing, its work is the same."""
    with tempfile.TemporaryDirectory() as temporary:
        chosen = load(recipe, overrides, Path(temporary))
        dataset = Dataset.open(Path(chosen.data.dataset))
    torch.manual_seed(1)
    settings = dataclasses.replace(chosen.model, encoder="causal")
    return chosen, Translator(settings, len(dataset.source), len(dataset.target)).to(device).eval()


def decode_bench(
    recipe: Path | None, sentences: int, length: int, overrides: list[str], name: str, out: Path | None
) -> None:
    """Decode random sources."""
    device = pick_device(name)
    chosen, model = random_model(recipe, overrides, device)
    # An output of exactly the source's length: random weights would hardly ever end by themselves.
    with torch.no_grad():
        model.target_embedding.weight[EOS] = 0
    limits, policy = Limits(1.0, 0), WaitK(3)
    random = np.random.default_rng(1)

    def sources(count: int) -> list[list[int]]:
        units = model.source_embedding.num_embeddings
        return [[*random.integers(4, units, length - 1).tolist(), EOS] for _ in range(count)]

    def timed(work: Callable[[], Any]) -> float:
        work()  # to warm up: a GPU records its steps
        began = clock(device)
        work()
        return clock(device) - began

    many, one = sources(sentences), sources(1)
    together = Decoding(model, policy, limits, min(sentences, chosen.evaluate.batch))
    batched = timed(lambda: together.translate(many))
    cached = timed(lambda: translate_batch(model, one, policy, limits, at_once=False))
    recomputed = timed(lambda: translate_recomputed(model, one[0], policy, limits))
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
    show("decoding under wait-3", figures, device, out)


@dataclass(frozen=True)
class Texts:
    """What `run_bench` decodes, and how."""

    sentences: int | None = None  # the test text, cut or repeated to so many
    batch: int = 250
    precision: Precision = "single"
    with_kernels: bool = False


def run_bench(
    run: Path, policy: PolicySpec, texts: Texts, overrides: list[str], name: str, out: Path | None
) -> None:
    """Decode the run's test text under a policy: all of it together, and some sentences one by one."""
    device = pick_device(name)
    overrides = [*overrides, f"evaluate.precision={texts.precision}"]
    trained = with_settings(load_run(model_folder(run, policy), device), overrides)
    settings = with_precision(trained, trained.recipe.evaluate).recipe.evaluate
    split = Dataset.open(Path(trained.recipe.data.dataset)).split(settings.split)
    chosen, limits = choose(policy, trained, settings, split), settings.limits
    if chosen.knows_sentences:
        raise UserError(f"policy {policy}: an oracle is no way to translate; time agent-L, wait-K or full")
    every = [split.source[number].tolist() for number in range(len(split.source))]
    many = list(itertools.islice(itertools.cycle(every), texts.sentences or len(every)))
    together = Decoding(trained.model, chosen, limits, texts.batch)
    figures: Figures = {
        "parameters": trained.model.parameter_count(),
        "sentences": len(many),
        "sentences together": texts.batch,
        "precision": texts.precision,
        **two_passes(together, many, "together", device),
        **two_passes(Decoding(trained.model, chosen, limits, 1), every[:ALONE], "one by one", device),
        "peak memory (GiB)": peak_memory(device),
    }
    kernels = profiled(lambda: together.translate(many), 1, device) if texts.with_kernels else []
    if kernels:
        show_kernels(kernels)
    show(f"decoding under {policy}", figures, device, out, {"kernels": kernels} if kernels else {})


def two_passes(decoding: Decoding, sources: list[list[int]], label: str, device: torch.device) -> Figures:
    """The first pass warms up: a GPU records its steps in it. The second counts."""
    figures: Figures = {}
    for which in (", first pass", ""):
        began = clock(device)
        outputs = decoding.translate(sources)
        seconds = clock(device) - began
        figures[f"{label}{which}: sentences/s"] = round(len(sources) / seconds, 1)
    figures[f"{label}: target tokens/s"] = round(sum(len(output.units) + 1 for output in outputs) / seconds)
    if decoding.kept is not None:
        figures[f"{label}: steps"] = len(decoding.kept.times)
        figures[f"{label}: ms a step"] = 1000 * seconds / len(decoding.kept.times)
        figures[f"{label}: recordings"] = len(decoding.kept.recorded)
    return figures
