"""The stages of a recipe: translator, fine-tuning on searched reads, agent. Each is a recipe and a task of its own.

    RUN/               the translator
    RUN/search/        the translator fine-tuned on the reads that it finds
    RUN/search/agent/  the agent that learns them; it is found by whoever loads RUN/search
"""

from dataclasses import replace
from pathlib import Path

import torch

from whilst.agent import Agent
from whilst.checkpoint import load_run, load_tensors, load_weights
from whilst.dataset import Dataset, Split
from whilst.distil import translated, with_teacher
from whilst.errors import UserError
from whilst.folders import AGENT, SEARCH
from whilst.model import Translator
from whilst.settings import Recipe
from whilst.tasks import Deciding, Task, Translating


def stages(recipe: Recipe) -> list[Recipe]:
    """The recipe of each stage that trains something, in order."""
    base = recipe.run if "translate" in recipe.stages else recipe.start
    tuned = f"{recipe.run}/{SEARCH}" if "search" in recipe.stages else base
    made = []
    for name in recipe.stages:
        if name == "evaluate":
            continue
        stage = replace(recipe, stages=(name,))
        if name == "search":
            train, objective = recipe.search.train, recipe.search.objective
            stage = replace(stage, run=tuned, start=base, objective=objective, train=train)
        elif name == "agent":
            train, objective = recipe.agent.train, recipe.search.objective
            stage = replace(stage, run=f"{tuned}/{AGENT}", start=tuned, objective=objective, train=train)
        made.append(stage)
    return made


def make_task(recipe: Recipe, dataset: Dataset, device: torch.device) -> Task:
    """The task of a recipe that has one stage, its module as it begins."""
    torch.manual_seed(recipe.train.seed)
    if recipe.stages == ("agent",):
        if not recipe.start:
            raise UserError("start: the agent learns from a trained translator; name its run folder")
        trained = load_run(Path(recipe.start), device)
        translator = trained.model.requires_grad_(False)
        agent = Agent(recipe.agent, recipe.model.width, recipe.latencies).to(device)
        if recipe.agent.labels == "translation":
            said = translated(trained, dataset, Path(recipe.run), recipe.evaluate, ("train", "valid"))
            dataset = dataset.with_splits({n: Split(dataset.split(n).source, said[n]) for n in said})
        return Deciding(recipe, dataset, translator, agent, device)
    if recipe.teacher:
        dataset = with_teacher(dataset, Path(recipe.teacher), recipe.evaluate, device)
    model = Translator(recipe.model, len(dataset.source), len(dataset.target)).to(device)
    if recipe.start:
        weights = Path(recipe.start) / "model.safetensors"
        if not weights.is_file():
            raise UserError(f"{recipe.start}: no model.safetensors there to start from; train that run first")
        load_weights(weights, model, load_tensors(weights, device)[0])
    return Translating(recipe, dataset, model, device)
