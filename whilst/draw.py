"""The reads of a training batch: given by a rule, drawn at random, or found by search with the model itself."""

import torch
from torch import Tensor

from whilst import objectives
from whilst.data import Batch
from whilst.model import Translator
from whilst.search import search
from whilst.settings import Objective, Recipe, Search


def draw_interval(settings: Search, batch: Batch, random: torch.Generator) -> Tensor:
    """(sentences + 1) a number of an interval for each sentence of the batch; the last is for padding."""
    return torch.randint(len(settings.intervals), (batch.sentences + 1,), generator=random)


def find_reads(model: Translator, settings: Search, batch: Batch, numbers: Tensor) -> Tensor:
    """(rows, target) reads by search, each sentence in the interval of its number."""
    firsts = torch.tensor([first for first, _ in settings.intervals], device=batch.source.device)
    return search(model, batch, settings, firsts[numbers.to(firsts.device)][batch.target_at.segment])


def draw_reads(model: Translator, recipe: Recipe, batch: Batch, random: torch.Generator) -> Tensor:
    """(rows, target) the reads of the recipe's objective."""
    objective = recipe.objective
    if objective.name != "search":
        return objectives.READS[objective.name](objective, batch, random)
    numbers = draw_interval(recipe.search, batch, random)
    training = model.training
    model.eval()
    found = find_reads(model, recipe.search, batch, numbers)
    model.train(training)
    if not recipe.search.multi_path:
        return found
    stay = torch.rand(batch.sentences + 1, generator=random) < recipe.search.multi_path
    paths = objectives.multi_path(Objective(draw="sentence"), batch, random)
    return torch.where(stay.to(found.device)[batch.target_at.segment], paths, found)
