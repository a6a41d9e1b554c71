"""Estimate how long a recipe trains on this machine, by timing a few updates and translations of random weights."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from whilst.core.console import duration, notes
from whilst.core.distributed import device_name
from whilst.core.settings import Limits, Recipe
from whilst.data.batches import padded_chunks
from whilst.data.dataset import SPLITS, Dataset, Split
from whilst.decoding.batched import translate
from whilst.model.agent import Agent
from whilst.model.transformer import Translator
from whilst.policy.fixed import Full, WaitK
from whilst.policy.learnt import Monotonic
from whilst.training.loop import Loop
from whilst.training.tasks import AgentTask, Task, make_task

PROBE = 256  # target tokens of the first timed updates on a CPU
LONG_ENOUGH = 1.0  # seconds of updates that give a reliable speed
TOO_LONG = 3600  # seconds of training above which a warning is printed
# Settings that shorten a stage if they are smaller.
SHORTER = {
    "translate": "train.steps, train.batch_tokens",
    "search": "search.train.steps, search.train.batch_tokens",
    "agent": "agent.pairs (0: all), agent.train.steps, agent.train.batch_tokens",
}

T = TypeVar("T")
Times = dict[str, float]  # seconds by stage


def clock(device: torch.device) -> float:
    """Seconds of a clock, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def time_call(work: Callable[[], T], device: torch.device) -> tuple[float, T]:
    """Run `work`; return the seconds that it took and its result."""
    began = clock(device)
    result = work()
    return clock(device) - began, result


def random_task(recipe: Recipe, dataset: Dataset, device: torch.device) -> Task:
    """The task of a stage with random weights, so that the run that it starts from need not exist yet."""
    recipe = replace(recipe, start="", teacher="")
    if recipe.stages != ("agent",):
        return make_task(recipe, dataset, device)
    torch.manual_seed(1)
    translator = Translator(recipe.model, len(dataset.source), len(dataset.target)).to(device).eval()
    agent = Agent(recipe.agent, recipe.model.width, recipe.latencies).to(device)
    return AgentTask(recipe, dataset, translator.requires_grad_(False), agent, device)


def estimate(
    recipe: Recipe, stages: Sequence[Recipe], dataset: Dataset, device: torch.device, share: float = 1.0
) -> Times:
    """Seconds of each of these stages and of the evaluation. The dataset has `share` of the training text."""
    tokens, times = PROBE, Times()
    for stage in stages:
        batch_tokens = stage.train.batch_tokens
        tokens = batch_tokens if device.type == "cuda" else min(tokens, batch_tokens)
        per_update, per_label = measure(stage, dataset, device, tokens)
        while tokens < batch_tokens and per_update < LONG_ENOUGH / 2:
            tokens = min(batch_tokens, max(2 * tokens, int(tokens * LONG_ENOUGH / per_update)))
            per_update, per_label = measure(stage, dataset, device, tokens)
        times[stage.stages[0]] = stage.train.steps * stage.train.accumulate * per_update * batch_tokens / tokens
        if stage.stages == ("agent",):
            train, valid = (dataset.split(name).target for name in SPLITS[:2])
            labelled = min(1 / share, stage.agent.pairs / len(train) if stage.agent.pairs else math.inf)
            units = labelled * len(train.tokens) + len(valid.tokens)
            times["agent"] += per_label * units
        elif stage.train.validate_bleu:
            validations = -(-stage.train.steps // stage.train.validate_every)
            times[stage.stages[0]] += validations * decoding(stage, dataset, device, "valid", tokens)
    if "evaluate" in recipe.stages:
        policies = len(recipe.evaluate.policies)
        times["evaluate"] = policies * decoding(recipe, dataset, device, recipe.evaluate.split, tokens)
    return times


def measure(stage: Recipe, dataset: Dataset, device: torch.device, tokens: int) -> tuple[float, float]:
    """Seconds of an update of `tokens` target tokens, and of finding the label of a target unit (0: no agent)."""
    part = part_of(dataset, tokens)
    longest = max(int(side.lengths.max()) for side in (part.source, part.target))
    train = replace(stage.train, batch_tokens=max(tokens, longest), accumulate=1)
    stage = replace(stage, start="", train=train)
    dataset = dataset.with_splits(dict.fromkeys(SPLITS, part))
    loop, per_label = Loop(stage, random_task(stage, dataset, device)), 0.0
    if device.type == "cuda" and train.compile:
        loop.compile()
    if isinstance(loop.task, AgentTask):
        task = loop.task
        seconds, labels = time_call(lambda: task.labels, device)
        per_label = seconds / sum(split_labels.reads.shape[1] for split_labels in labels.values())
    updates = loop.updates()

    def update() -> None:
        micro_batches, target_tokens, _ = next(updates)
        loop.update(micro_batches, target_tokens)

    update()  # the first update takes longer
    count, seconds = 0, 0.0
    while seconds < LONG_ENOUGH / 2 and count < train.steps:
        count, seconds = count + 1, seconds + time_call(update, device)[0]
    return seconds / count, per_label


def part_of(dataset: Dataset, tokens: int) -> Split:
    """Training sentences for one batch of about this many tokens."""
    train = dataset.split("train")
    order = np.random.default_rng(1).permutation(len(train.source))[:tokens]
    chunks = padded_chunks(train, order[train.target.lengths[order].argsort()], tokens)
    return train.select(chunks[len(chunks) // 2])


def decoding(recipe: Recipe, dataset: Dataset, device: torch.device, split: str, tokens: int) -> float:
    """Seconds of translating a split under one policy, with outputs that are cut at the references' length."""
    part, model = part_of(dataset, tokens), recipe.model
    translator = Translator(model, len(dataset.source), len(dataset.target)).to(device).eval()
    policy = Monotonic() if model.cross == "monotone" else WaitK(3) if model.encoder == "causal" else Full()
    limits = Limits(len(part.target.tokens) / len(part.source.tokens), 1)
    sources = part.source.to_lists()[: recipe.evaluate.batch]
    seconds, _ = time_call(lambda: translate(translator, sources, policy, limits, len(sources)), device)
    return seconds * max(1.0, len(dataset.split(split).source) / len(sources))


def announce(recipe: Recipe, stages: Sequence[Recipe], dataset: Dataset, device: torch.device) -> None:
    """Print how long these stages will take and, if that is over an hour, which settings make them shorter."""
    times = estimate(recipe, stages, dataset, device)
    notes.print(f"{recipe.run}: {describe(times, device)}")
    if sum(times.values()) > TOO_LONG:
        longest = max(SHORTER, key=lambda stage: times.get(stage, 0.0))
        notes.print(
            f"warning: this takes over an hour; choose a smaller {SHORTER[longest]}, model.width,"
            " model.encoder_layers or model.decoder_layers with --set, or a GPU with --device cuda;"
            " `whilst new` writes a recipe that suits this machine"
        )


def describe(times: Times, device: torch.device) -> str:
    parts = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in times.items())
    return f"about {duration(sum(times.values()))} on {device_name(device)}: {parts}"
