"""The reads of a training batch: given by a rule, drawn at random, or found by search with the model itself."""

from collections.abc import Callable

import torch
from torch import Tensor

from whilst.core.settings import Objective, Recipe, Search
from whilst.data.batches import Batch
from whilst.model import objectives
from whilst.model.transformer import Translator
from whilst.search.binary_search import search


def draw_interval(intervals: int, batch: Batch, random: torch.Generator) -> Tensor:
    """(sentences + 1) a number of an interval for each sentence of the batch; the last is for padding."""
    return torch.randint(intervals, (batch.sentences + 1,), generator=random)


def of_tokens(values: Tensor, batch: Batch) -> Tensor:
    """(rows, target) what the sentence of each token has; `values` (sentences + 1) are the host's.

    Without waiting: a GPU would first finish the update before, and then have nothing to do.
    """
    return values.to(batch.source.device, non_blocking=True)[batch.target_at.segment]


def search_sentences(model: Translator, batch: Batch, settings: Search, firsts: Tensor) -> Tensor:
    """(rows, target) reads, each sentence's (sentences + 1) in an interval that begins elsewhere."""
    return search(model, batch, settings, of_tokens(firsts, batch))


Searcher = Callable[[Translator, Batch, Search, Tensor], Tensor]  # such as `search_sentences`


def find_reads(
    model: Translator, settings: Search, batch: Batch, numbers: Tensor, searcher: Searcher = search_sentences
) -> Tensor:
    """(rows, target) reads by search, each sentence in the interval of its number."""
    return searcher(model, batch, settings, torch.tensor([first for first, _ in settings.intervals])[numbers])


def draw_reads(
    model: Translator, recipe: Recipe, batch: Batch, random: torch.Generator, searcher: Searcher = search_sentences
) -> Tensor:
    """(rows, target) the reads of the recipe's objective."""
    objective = recipe.objective
    if objective.name != "search":
        return objectives.READS[objective.name](objective, batch, random)
    numbers = draw_interval(len(recipe.search.intervals), batch, random)
    training = model.training
    model.eval()
    found = find_reads(model, recipe.search, batch, numbers, searcher)
    model.train(training)
    if not recipe.search.multi_path:
        return found
    stay = torch.rand(batch.sentences + 1, generator=random) < recipe.search.multi_path
    paths = objectives.multi_path(Objective(draw="sentence"), batch, random)
    return torch.where(of_tokens(stay, batch), paths, found)
