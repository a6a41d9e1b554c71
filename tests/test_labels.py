"""Labels kept for a whole split are what search finds for each batch."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.runs import CPU, Replayed, changed, short_recipe
from whilst import beginnings, tasks
from whilst import labels as module
from whilst.agent import Agent
from whilst.attention import BLOCK
from whilst.data import padded
from whilst.dataset import Dataset, Split
from whilst.labels import find_labels, pays_packed
from whilst.model import Translator
from whilst.search import search
from whilst.settings import Data, Search
from whilst.vocab import PAD


def test_labels_are_what_search_finds(model: Translator, random_split: Callable[..., Split]) -> None:
    split = random_split(25, 14)
    settings = Search(intervals=((1, 4), (3, 6)), target="belief", tolerance=0.01)
    labels = find_labels(model, settings, split, tokens=40)
    random = np.random.default_rng(1)
    batch = padded(split, random.permutation(25)[:10])
    numbers = torch.from_numpy(random.integers(0, 2, 10))
    kept = labels.of(batch, numbers)
    found = search(model, batch, settings, torch.tensor([1, 3])[numbers][:, None])
    real = batch.labels != PAD
    assert torch.equal(kept[real], found[real])
    assert bool((kept[:, 1:] >= kept[:, :-1]).all()), "padding too must be a path"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.filterwarnings("ignore:.*CUDA is not available.*:UserWarning")
@pytest.mark.parametrize("target", ["reference", "belief"])
def test_packed_batches_find_the_same(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any
) -> None:
    """What a GPU records; the last batch is not full."""
    settings = Search(intervals=((1, 4), (3, 6)), target=target, tolerance=0.001)
    recipe = changed(short_recipe(toy_data, tmp_path), batch_tokens=100)  # in packed batches: 128
    recipe = dataclasses.replace(recipe, stages=("agent",), search=settings)
    torch.manual_seed(5)
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target)).double().eval()
    agent = Agent(recipe.agent, recipe.model.width, 2)
    task = tasks.Deciding(recipe, toy_dataset, model.requires_grad_(False), agent, CPU)
    split = toy_dataset.split("valid")
    recorded: list[Replayed] = []

    def record(work: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Replayed:
        recorded.append(Replayed(work, inputs))
        return recorded[-1]

    monkeypatch.setattr(tasks, "Captured", record)
    monkeypatch.setattr(beginnings, "STEP", BLOCK)
    wanted = task.find(split)
    task.compiled = model
    assert not pays_packed(split, recipe.train.batch_tokens), "compiling would take longer"
    monkeypatch.setattr(module, "MANY", 100)
    assert not pays_packed(split, int(split.source.lengths.max()) - 1)
    found = task.find(split)
    assert torch.equal(found.reads, wanted.reads)
    assert torch.equal(found.offsets, wanted.offsets)
    assert len(recorded) == 1
    assert len(split.target.tokens) > 2 * BLOCK
