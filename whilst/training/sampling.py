"""Choose the reads under which a batch is trained: by a fixed rule, at random, or by search.

Reads g say how many source tokens are visible when each target token is written: an integer tensor with one entry
for each target token. They do not decrease along a sentence and lie in [1, J], where J counts the end mark.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from whilst.core.settings import Objective, Recipe, Search
from whilst.data.batches import Batch
from whilst.model.transformer import Translator
from whilst.search.binary_search import search


def wait_k(k: int | Tensor, positions: Tensor, source_lengths: Tensor) -> Tensor:
    """g_i = min(k + i - 1, J) with i counted from 1; `positions` count from 0."""
    return torch.minimum(positions + k, source_lengths)


def draw_k(longest: Tensor, random: Tensor) -> Tensor:
    """k uniform in [1, longest], from `random` uniform in [0, 1)."""
    return (random * longest).long().clamp(max=longest - 1) + 1


def multi_path(objective: Objective, batch: Batch, random: torch.Generator) -> Tensor:
    """Wait-k with k uniform in [1, J] (at most `longest`), or the whole source with probability `whole`.

    k is drawn for each sentence, or for the batch as in the paper. Random numbers are drawn on the host, so that
    they are the same on every device and for every number of processes.
    """
    lengths = batch.source_lengths
    largest = lengths.clamp(max=objective.longest) if objective.longest else lengths

    def draw() -> Tensor:
        if objective.draw == "batch":
            return torch.rand((), generator=random).to(lengths.device)
        return per_token(torch.rand(batch.sentences + 1, generator=random), batch)

    k = draw_k(largest.max() if objective.draw == "batch" else largest, draw())
    if objective.whole:
        k = torch.where(draw() < objective.whole, lengths, k)
    return wait_k(k, batch.target_at.position, lengths)


def rule_reads(objective: Objective, batch: Batch, random: torch.Generator) -> Tensor:
    """(rows, target) reads of an objective that does not search."""
    if objective.name == "wait-k":
        return wait_k(objective.k, batch.target_at.position, batch.source_lengths)
    if objective.name == "multi-path":
        return multi_path(objective, batch, random)
    return batch.source_lengths  # full; monotonic heads (mma) choose from the whole source


def draw_intervals(intervals: int, batch: Batch, random: torch.Generator) -> Tensor:
    """(sentences + 1), on the host: a random search interval's index for each sentence; the last is for padding."""
    return torch.randint(intervals, (batch.sentences + 1,), generator=random)


def per_token(values: Tensor, batch: Batch) -> Tensor:
    """Give each token the value of its sentence: `values` (sentences + 1), on the host, -> (rows, target).

    The copy to the device does not block, so that the host can prepare more work while the GPU is busy.
    """
    return values.to(batch.source.device, non_blocking=True)[batch.target_at.segment]


def search_sentences(model: Translator, batch: Batch, settings: Search, firsts: Tensor) -> Tensor:
    """(rows, target) reads found by search in intervals that begin at `firsts` (sentences + 1)."""
    return search(model, batch, settings, per_token(firsts, batch))


Searcher = Callable[[Translator, Batch, Search, Tensor], Tensor]  # with the signature of `search_sentences`


def draw_reads(
    model: Translator, recipe: Recipe, batch: Batch, random: torch.Generator, searcher: Searcher = search_sentences
) -> Tensor:
    """(rows, target) reads of the recipe's objective."""
    objective, settings = recipe.objective, recipe.search
    if objective.name != "search":
        return rule_reads(objective, batch, random)
    firsts = torch.tensor([first for first, _ in settings.intervals])
    chosen = firsts[draw_intervals(len(firsts), batch, random)]
    training = model.training
    model.eval()
    searched = searcher(model, batch, settings, chosen)
    model.train(training)
    if not settings.multi_path:
        return searched
    is_multi_path = torch.rand(batch.sentences + 1, generator=random) < settings.multi_path
    # Of any k: the recipe's `longest` and `whole` are for training from scratch.
    drawn = multi_path(Objective(draw="sentence"), batch, random)
    return torch.where(per_token(is_multi_path, batch), drawn, searched)
