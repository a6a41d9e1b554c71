"""Speed, measured: never a test, always a command. Ratios come from one run on one machine."""

import dataclasses
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from whilst.config import load_recipe, override
from whilst.console import console, track
from whilst.data import prefetch
from whilst.dataset import Dataset
from whilst.decode import translate, translate_batch
from whilst.files import write_json
from whilst.model import Translator
from whilst.policy.wait_k import WaitK
from whilst.prepare import prepare
from whilst.processes import describe, pick_device, versions
from whilst.reference import translate_recomputed
from whilst.settings import Data, Limits, Recipe
from whilst.stages import make_task
from whilst.trainer import Trainer
from whilst.vocab import EOS

Figures = dict[str, Any]


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


def show(title: str, figures: Figures, device: torch.device, out: Path | None) -> None:
    table = Table("figure", "value", title=f"{title} on {describe(device)}")
    table.columns[1].justify = "right"
    for name, value in figures.items():
        table.add_row(name, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    console.print(table)
    if out is not None:
        write_json(out, {"bench": title, **figures, "device": describe(device), "versions": versions()})


def train_bench(recipe: Path | None, steps: int, overrides: list[str], name: str, out: Path | None) -> None:
    """Time `steps` updates after as many to warm up."""
    device = pick_device(name)
    with tempfile.TemporaryDirectory() as temporary:
        chosen = load(recipe, overrides, Path(temporary))
        dataset = Dataset.open(Path(chosen.data.dataset))
        trainer = Trainer(chosen, make_task(chosen, dataset, device))
        began = clock(device)
        if chosen.train.compile and device.type == "cuda":
            trainer.compile()
        updates = prefetch(trainer.work())
        tokens = sentences = 0
        since = began
        first = 0.0
        for step in track(range(2 * steps), "training", "steps"):
            if step == steps:
                since, tokens, sentences = clock(device), 0, 0
            micros, count, _ = next(updates)
            trainer.update(micros, count)
            if step == 0:
                first = clock(device) - began
            tokens, sentences = tokens + count, sentences + sum(batch.sentences for _, batch in micros)
        seconds = clock(device) - since
    figures = {
        "parameters": trainer.parameters,
        "tokens in a batch": chosen.train.batch_tokens,
        "first update (s, compiling)": first,
        "ms an update": 1000 * seconds / steps,
        "target tokens/s": round(tokens / seconds),
        "sentences/s": round(sentences / seconds),
        "peak memory (GiB)": peak_memory(device),
    }
    show("training", figures, device, out)


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
        work()
        began = clock(device)
        work()
        return clock(device) - began

    many, one = sources(sentences), sources(1)
    batched = timed(lambda: translate(model, many, policy, limits, chosen.evaluate.batch))
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
