"""Labels of a whole split match the search of each batch."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.helpers.runs import CPU, Replayed, changed, short_recipe
from whilst.core.settings import Data, Recipe, Search
from whilst.data.batches import BLOCK, pad_batch
from whilst.data.dataset import Dataset, Split
from whilst.data.vocabulary import PAD
from whilst.model.agent import Agent
from whilst.model.transformer import Translator
from whilst.search import labels as module
from whilst.search import packed_search
from whilst.search.binary_search import search
from whilst.search.labels import Labels, find_labels, worth_packing
from whilst.training import captured, tasks


def test_labels_match_search(model: Translator, random_split: Callable[..., Split]) -> None:
    split = random_split(25, 14)
    settings = Search(intervals=((1, 4), (3, 6)), target="belief", tolerance=0.01)
    labels = find_labels(model, settings, split, tokens=40)
    random = np.random.default_rng(1)
    batch = pad_batch(split, random.permutation(25)[:10])
    numbers = torch.from_numpy(random.integers(0, 2, 10))
    stored = labels.reads_of(batch, numbers)
    found = search(model, batch, settings, torch.tensor([1, 3])[numbers][:, None])
    real = batch.labels != PAD
    assert torch.equal(stored[real], found[real])
    assert bool((stored[:, 1:] >= stored[:, :-1]).all()), "padding too must not decrease"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.filterwarnings("ignore:.*CUDA is not available.*:UserWarning")
@pytest.mark.parametrize("target", ["reference", "belief"])
def test_packed_batches_give_the_same_labels(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any
) -> None:
    """As on a GPU, with graphs that only replay; the last batch is not full."""
    settings = Search(intervals=((1, 4), (3, 6)), target=target, tolerance=0.001)
    recipe = changed(short_recipe(toy_data, tmp_path), batch_tokens=100)  # in packed batches: 128
    recipe = dataclasses.replace(recipe, stages=("agent",), search=settings)
    torch.manual_seed(5)
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target)).double().eval()
    agent = Agent(recipe.agent, recipe.model.width, 2)
    task = tasks.AgentTask(recipe, toy_dataset, model.requires_grad_(False), agent, CPU)
    split = toy_dataset.split("valid")
    recorded: list[Replayed] = []

    def record(work: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Replayed:
        recorded.append(Replayed(work, inputs))
        return recorded[-1]

    monkeypatch.setattr(captured, "CapturedGraph", record)
    monkeypatch.setattr(packed_search, "SIZE_MULTIPLE", BLOCK)
    wanted = task.find(split)
    task.compiled = model
    assert not worth_packing(split, recipe.train.batch_tokens), "compiling would take longer"
    monkeypatch.setattr(module, "MIN_PACKED_UNITS", 100)
    assert not worth_packing(split, int(split.source.lengths.max()) - 1)
    found = task.find(split)
    assert torch.equal(found.reads, wanted.reads)
    assert torch.equal(found.offsets, wanted.offsets)
    assert len(recorded) == 1
    assert len(split.target.tokens) > 2 * BLOCK


def test_labels_are_stored_for_other_agents(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = short_recipe(toy_data, tmp_path / "agent")
    recipe = dataclasses.replace(recipe, stages=("agent",), start=str(tmp_path), search=Search(intervals=((1, 4),)))
    (tmp_path / "model.safetensors").write_bytes(b"some weights")
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target)).eval()
    searched = []

    def find(task: tasks.AgentTask, split: Split) -> Labels:
        searched.append(split)
        return find_labels(task.translator, task.recipe.search, split, 200)

    monkeypatch.setattr(tasks.AgentTask, "find", find)

    def labels(recipe: Recipe) -> dict[str, Labels]:
        agent = Agent(recipe.agent, recipe.model.width, 1)
        return tasks.AgentTask(recipe, toy_dataset, model.requires_grad_(False), agent, CPU).labels

    first = labels(recipe)
    again = labels(dataclasses.replace(recipe, agent=dataclasses.replace(recipe.agent, kind="gru")))
    assert len(searched) == 2, "one for each split"
    assert all(torch.equal(first[name].reads, again[name].reads) for name in first)
    assert all(torch.equal(first[name].offsets, again[name].offsets) for name in first)
    labels(dataclasses.replace(recipe, search=Search(intervals=((1, 4),), tolerance=0.1)))
    assert len(searched) == 4, "other search settings"
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    labels(recipe)
    assert len(searched) == 6, "other weights"
