"""States along a path are the same in both layouts, and packing on a device matches packing on the host."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from tests.helpers.runs import CPU, Replayed, short_recipe
from whilst.core.settings import Agent as Settings
from whilst.core.settings import Data, Search
from whilst.data.batches import BLOCK, Batch, pack_batch, pad_batch
from whilst.data.dataset import Dataset, Split
from whilst.data.vocabulary import PAD
from whilst.model.agent import Agent, PathStates, lookahead_query_mask, next_targets, observe
from whilst.model.transformer import Translator
from whilst.search.binary_search import search
from whilst.search.labels import Labels
from whilst.training import captured, tasks
from whilst.training.captured import Packing
from whilst.training.sampling import wait_k

MakeSplit = Callable[..., Split]
FOUR = Search(intervals=((1, 4),), slope="one")
uncompiled = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")


def test_the_next_target_is_the_first_that_needs_more(random_split: MakeSplit) -> None:
    """Compared with counting, in both layouts."""
    split = random_split(9, 3)
    rows = pad_batch(split, np.arange(9))
    packing = Packing.for_batch(rows, BLOCK)
    row = packing.pack(rows)
    path = wait_k(2, rows.target_at.position, rows.source_lengths)
    ours, theirs = next_targets(rows, path), next_targets(row, packing.pack_target(path, 1))
    begin = 0
    for number in range(9):
        length = len(split.target[number])
        for read in range(1, int(path[number, length - 1])):
            written = int((path[number, :length] <= read).sum())
            assert [int(found[number, read - 1]) for found in ours] == [0, written]
            place = int(packing.source[number, read - 1])
            assert [int(found[0, place]) for found in theirs] == [begin, begin + written]
        begin += length


def test_padding_costs_two_tiles_at_most(random_split: MakeSplit) -> None:
    """If padding attended to all padding, most of an update would be spent on it."""
    batch = pack_batch(random_split(9, 3), np.arange(9), 8 * BLOCK, 8 * BLOCK)
    path = wait_k(2, batch.target_at.position, batch.source_lengths)
    tiles = lookahead_query_mask(batch, *next_targets(batch, path))
    assert isinstance(tiles, BlockMask)
    real = -(-int((batch.source != PAD).sum()) // BLOCK)
    padding = tiles.kv_num_blocks[0, 0, 8 + real :]
    assert len(padding) > 0
    assert padding.max() <= 2  # its own, and the one in which padding begins


def test_packing_on_a_device_matches_pack_batch(random_split: MakeSplit) -> None:
    split, chosen = random_split(20, 4), np.arange(20)[::-1].copy()
    batch = pad_batch(split, chosen)
    found = Packing.for_batch(batch, 200).pack(batch)
    wanted = pack_batch(split, chosen, 3 * BLOCK, 2 * BLOCK)
    for one, other in zip(found.tensors(), wanted.tensors(), strict=True):
        assert torch.equal(one, other)
    assert found.packed
    assert found.sentences == 20


def parts(found: PathStates, batch: Batch, path: Tensor) -> list[Tensor]:
    """All but padding, and lookahead states after the last WRITE."""
    read, written = batch.source_at.segment >= 0, batch.labels != PAD
    needed = (path * written).amax(1, keepdim=True)
    before_last = read & (batch.source_at.position + 1 < needed)
    assert found.lookahead is not None
    return [found.encoded[read], found.states[written], found.words[written], found.lookahead[before_last]]


@uncompiled
@pytest.mark.parametrize("own_words", [True, False])
def test_both_layouts_give_the_same_states(model: Translator, random_split: MakeSplit, own_words: bool) -> None:
    batch = pad_batch(random_split(24, 6), np.arange(24))
    path = search(model, batch, FOUR, 1)
    packing = Packing.for_batch(batch, 2 * BLOCK)
    whole = observe(model, packing.pack(batch), packing.pack_target(path, 1), own_words, lookahead=True)
    ways = packing.unpack(whole), observe(model, batch, path, own_words, lookahead=True)
    for one, other in zip(*(parts(way, batch, path) for way in ways), strict=True):
        assert len(one) > 50
        torch.testing.assert_close(one, other)
    plain = observe(model, packing.pack(batch), packing.pack_target(path, 1), own_words, lookahead=False)
    torch.testing.assert_close(packing.unpack(plain).states[batch.labels != PAD], parts(ways[1], batch, path)[1])


@uncompiled
def test_padding_has_no_position_beyond_the_table(
    model: Translator, random_split: MakeSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions of padding do not count on from where it begins."""
    monkeypatch.setitem(model._buffers, "sinusoids", model.get_buffer("sinusoids")[:BLOCK])
    batch = pad_batch(random_split(2, 6), np.arange(2))
    path = search(model, batch, FOUR, 1)
    packing = Packing.for_batch(batch, 4 * BLOCK)
    whole = packing.unpack(observe(model, packing.pack(batch), packing.pack_target(path, 1), False, lookahead=True))
    ways = whole, observe(model, batch, path, False, lookahead=True)
    for one, other in zip(*(parts(way, batch, path) for way in ways), strict=True):
        torch.testing.assert_close(one, other)


@uncompiled
@pytest.mark.filterwarnings("ignore:.*CUDA is not available.*:UserWarning")
@pytest.mark.parametrize("inputs", ["embeddings", "states", "lookahead"])
def test_captured_observations_give_the_same_loss(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: Any
) -> None:
    recipe = short_recipe(toy_data, tmp_path)
    settings = Settings(hidden=8, inputs=inputs, dropout=0.0)
    recipe = dataclasses.replace(recipe, stages=("agent",), agent=settings, search=FOUR)
    torch.manual_seed(5)
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target)).double().eval()
    agent = Agent(settings, recipe.model.width, 1).double()
    task = tasks.AgentTask(recipe, toy_dataset, model, agent, CPU)
    split = toy_dataset.split("train")
    task.labels = {"train": Labels(torch.ones(1, len(split.target.tokens)), torch.from_numpy(split.target.offsets))}
    monkeypatch.setattr(captured, "CapturedGraph", Replayed)
    monkeypatch.setattr(PathStates, "bfloat16", lambda states: states)
    recorded = captured.CapturedObserver(task.observe, model, recipe.train.batch_tokens)
    for chosen in (np.arange(30), np.arange(30, 40)):  # two shapes, one graph
        batch = pad_batch(split, chosen)
        drawn = torch.zeros(len(chosen), dtype=torch.long)
        task.labels["train"].store(batch, search(model, batch, FOUR, 1)[None])
        wanted = task.loss(batch, drawn)
        task.observer = recorded
        torch.testing.assert_close(task.loss(batch, drawn), wanted)
        task.observer = task.observe
