"""Speed of training updates."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from whilst.core.config import load_recipe, override
from whilst.core.console import console, progress_bar
from whilst.core.distributed import pick_device
from whilst.core.settings import Data, Recipe
from whilst.data.batches import prefetch
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.model.agent import Agent
from whilst.model.transformer import Translator
from whilst.research.bench.common import clock, peak_memory, report, seconds_of
from whilst.training.loop import Loop
from whilst.training.stages import make_task, stages
from whilst.training.tasks import AgentTask, Task

Stage = Literal["translate", "search", "agent"]


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


def task_of(recipe: Recipe, dataset: Dataset, device: torch.device) -> Task:
    """The task of a stage with random weights, which work as long as trained ones and need no run."""
    if recipe.stages != ("agent",):
        return make_task(replace(recipe, start="", teacher=""), dataset, device)
    torch.manual_seed(1)
    translator = Translator(recipe.model, len(dataset.source), len(dataset.target)).to(device).eval()
    agent = Agent(recipe.agent, recipe.model.width, recipe.latencies).to(device)
    return AgentTask(recipe, dataset, translator.requires_grad_(False), agent, device)


def train_bench(
    recipe: Path | None, stage: Stage, steps: int, overrides: list[str], name: str, out: Path | None
) -> None:
    """Time `steps` updates of a stage after as many to warm up."""
    device = pick_device(name)
    with tempfile.TemporaryDirectory() as temporary:
        whole = load_or_make(recipe, overrides, Path(temporary))
        chosen = replace(stages(replace(whole, stages=(stage,)))[0], start="")
        dataset = Dataset.open(Path(chosen.data.dataset))
        loop = Loop(chosen, task_of(chosen, dataset, device))
        began = clock(device)
        if chosen.train.compile and device.type == "cuda":
            loop.compile()
        updates = prefetch(loop.updates())

        def run(count: int) -> tuple[int, int]:
            """Some updates: their target tokens and sentences."""
            tokens = sentences = 0
            for _ in progress_bar(range(count), "training", "steps"):
                micro_batches, batch_tokens, _ = next(updates)
                loop.update(micro_batches, batch_tokens)
                tokens += batch_tokens
                sentences += sum(batch.sentences for _, batch in micro_batches)
            return tokens, sentences

        run(1)
        first = clock(device) - began
        run(steps - 1)
        seconds, (tokens, sentences) = seconds_of(lambda: run(steps), device)
        memory = peak_memory(device)
    about = {"parameters": loop.state.parameters, "tokens in a batch": chosen.train.batch_tokens}
    row = {
        "first update (s, compiling)": first,
        "ms an update": 1000 * seconds / steps,
        "target tokens/s": round(tokens / seconds),
        "sentences/s": round(sentences / seconds),
        "peak memory (GiB)": memory,
    }
    title = {"translate": "training", "search": "fine-tuning", "agent": "agent training"}[stage]
    report(title, about, [row], device, out)
