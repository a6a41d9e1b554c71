"""The stages of a recipe: translator, fine-tuning on searched reads, agent. Each becomes a recipe with one task.

    RUN/               the translator
    RUN/search/        the translator fine-tuned on the reads that it finds by search
    RUN/search/agent/  the agent that learns these reads; it is loaded with RUN/search

The agent of an existing translator (`start`) is RUN/agent; RUN gets a copy of that translator.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from whilst.core.errors import UserError
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset, Split
from whilst.model.agent import Agent
from whilst.model.checkpoint import load_tensors, load_translator, load_weights
from whilst.model.monotonic_attention import weights_from_soft_attention
from whilst.model.run_folder import AGENT, SEARCH, WEIGHTS
from whilst.model.transformer import Translator
from whilst.training.distil import cached_translations, with_teacher
from whilst.training.tasks import AgentTask, Task, TranslatorTask


def stages(recipe: Recipe) -> list[Recipe]:
    """The recipe of each stage that trains something, in order."""
    base = recipe.run if "translate" in recipe.stages else recipe.start
    tuned = f"{recipe.run}/{SEARCH}" if "search" in recipe.stages else base
    with_agent = tuned if {"translate", "search"} & set(recipe.stages) else recipe.run
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
            stage = replace(stage, run=f"{with_agent}/{AGENT}", start=tuned, objective=objective, train=train)
        made.append(stage)
    return made


def in_order(recipes: Sequence[Recipe]) -> list[Recipe]:
    """Sort recipes so that each comes after those whose runs it starts or learns from."""
    makers: dict[str, Recipe] = {}
    for recipe in recipes:
        for stage in stages(recipe):
            if makers.setdefault(str(Path(stage.run)), recipe) is not recipe:
                raise UserError(f"run: two recipes train {stage.run}; give each a folder of its own")
            makers.setdefault(str(Path(recipe.run)), recipe)  # which another recipe may only evaluate
    ordered: list[Recipe] = []
    while len(ordered) < len(recipes):
        waiting = [recipe for recipe in recipes if all(recipe is not other for other in ordered)]

        def is_ready(recipe: Recipe) -> bool:
            origins = recipe.run, recipe.start, recipe.teacher, recipe.agent.labeller
            needs = [makers.get(str(Path(run)), recipe) for run in origins]
            return all(needed in (recipe, *ordered) for needed in needs)

        ready = list(filter(is_ready, waiting))
        if not ready:
            names = " and ".join(recipe.run for recipe in waiting)
            raise UserError(f"start, teacher: {names} each need another one of them first")
        ordered.append(ready[0])
    return ordered


def make_task(recipe: Recipe, dataset: Dataset, device: torch.device) -> Task:
    """The task of a recipe with one stage, with the weights that it starts with."""
    torch.manual_seed(recipe.train.seed)
    if recipe.stages == ("agent",):
        if not recipe.start:
            raise UserError("start: the agent learns from a trained translator; name its run folder")
        trained = load_translator(Path(recipe.start), device)
        if trained.model.bidirectional:
            raise UserError(f"start: the encoder of {recipe.start} needs the whole source, so no agent can use it")
        dataset.require_units("start", trained.path)
        translator = trained.model.requires_grad_(False)
        if recipe.model.width != (width := trained.recipe.model.width):
            raise UserError(f"model.width: {recipe.model.width}, but {recipe.start} has {width}; leave it out")
        agent = Agent(recipe.agent, recipe.model.width, recipe.latencies).to(device)
        labeller = trained
        if recipe.agent.labels == "translation":
            if recipe.agent.labeller:
                labeller = load_translator(Path(recipe.agent.labeller), device)
                dataset.require_units("agent.labeller", labeller.path)
            names = "train", "valid"
            targets = cached_translations(labeller, dataset, Path(recipe.run), recipe.evaluate, names)
            dataset = dataset.with_splits({n: Split(dataset.split(n).source, targets[n]) for n in names})
        return AgentTask(recipe, dataset, translator, agent, device, labeller.model)
    if recipe.teacher:
        dataset = with_teacher(dataset, Path(recipe.teacher), recipe.evaluate, device)
    model = Translator(recipe.model, len(dataset.source), len(dataset.target)).to(device)
    if recipe.start:
        weights = Path(recipe.start) / WEIGHTS
        if not weights.is_file():
            raise UserError(f"{recipe.start}: has no {WEIGHTS} to start from; train that run first")
        dataset.require_units("start", weights.parent)
        tensors = load_tensors(weights, device)[0]
        if recipe.model.cross == "monotone":
            tensors = weights_from_soft_attention(model, tensors)
        load_weights(weights, model, tensors)
    return TranslatorTask(recipe, dataset, model, device)
