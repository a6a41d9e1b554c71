"""A copy with half of its weights in 16 bits does what autocast makes of the whole."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runs import CPU, Replayed, short_recipe
from whilst import beginnings, tasks
from whilst.attention import BLOCK
from whilst.data import Batch, packed
from whilst.dataset import Dataset, Split
from whilst.draw import search_sentences
from whilst.halves import Halved
from whilst.model import Translator
from whilst.search import Reader
from whilst.settings import Data, Model, Search

uncompiled = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
no_cuda = pytest.mark.filterwarnings("ignore:.*CUDA is not available.*:UserWarning")
FIVE = Search(intervals=((1, 5),))


@pytest.fixture
def batch(random_split: Callable[..., Split]) -> Batch:
    return packed(random_split(9, 7), np.arange(9), 2 * BLOCK, BLOCK)


def move(model: Translator) -> None:
    """An update: every weight becomes another one, in place."""
    for parameter in model.parameters():
        parameter.mul_(1.01).add_(0.01)


@uncompiled
@torch.no_grad()
def test_a_copy_does_what_autocast_makes_of_the_whole(
    tiny: Model, translator: Callable[..., Translator], batch: Batch
) -> None:
    model = translator(tiny).float()
    halved = Halved.of(model)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            found, wanted = (Reader(one, batch).logits(batch.source_lengths) for one in (halved.refresh(), model))
        assert torch.equal(found, wanted)
        assert not torch.equal(found, Reader(model, batch).logits(batch.source_lengths))
        move(model)
    assert {one.dtype for one in halved.halves} == {torch.bfloat16}
    ours, theirs = dict(halved.model.named_parameters()), dict(model.named_parameters())
    apart = {name for name in theirs if ours[name] is not theirs[name]}
    assert apart == {name for name in theirs if "norm" not in name and "embedding" not in name}
    assert all(one.requires_grad for one in theirs.values())


@uncompiled
@no_cuda
@torch.no_grad()
def test_a_recorded_search_follows_the_weights(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = dataclasses.replace(short_recipe(toy_data, tmp_path), search=FIVE)
    torch.manual_seed(3)
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target)).eval()
    task = tasks.Translating(recipe, toy_dataset, model, CPU)
    task.halved = Halved.of(model)
    monkeypatch.setattr(tasks, "Captured", Replayed)
    monkeypatch.setattr(beginnings, "STEP", BLOCK)
    found = torch.zeros(0)
    for begin in (0, 20):
        batch = packed(toy_dataset.split("train"), np.arange(begin, begin + 20), 3 * BLOCK, 3 * BLOCK)
        firsts = torch.ones(21, dtype=torch.long)
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            found = task.search_captured(model, batch, FIVE, firsts)
            assert torch.equal(found, search_sentences(model, batch, FIVE, firsts))
            assert torch.equal(task.belief(batch), Reader(model, batch).states(batch.source_lengths))
        move(model)
    assert len(set(found[0].tolist())) > 5
