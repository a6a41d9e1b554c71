"""One packed pass finds the same reads as a pass for every offset, with no superfluous queries."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.runs import Replayed, short_recipe
from whilst.core.settings import Data, Search
from whilst.data.batches import BLOCK, pack_batch
from whilst.data.dataset import Dataset, Split
from whilst.data.vocabulary import PAD
from whilst.model.transformer import Translator
from whilst.search import packed_search
from whilst.search.binary_search import Interval, covering_interval, fill_table, search, search_interval
from whilst.search.packed_search import build_row, count_queries, fill_table_packed, row_size, score_queries
from whilst.training import captured
from whilst.training.sampling import search_sentences

MakeSplit = Callable[..., Split]
uncompiled = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_search, "SIZE_MULTIPLE", BLOCK)


@uncompiled
@pytest.mark.usefixtures("small_rows")
@pytest.mark.parametrize("target", ["reference", "belief"])
@pytest.mark.parametrize("slope", ["one", "ratio"])
@pytest.mark.parametrize("condition", ["concavity", "authors"])
def test_packed_search_matches_search(
    model: Translator, random_split: MakeSplit, target: Any, slope: Any, condition: Any
) -> None:
    split = random_split(9, 3)
    batch = pack_batch(split, np.arange(9), BLOCK, BLOCK)
    real = batch.labels != PAD
    settings = Search(((0, 4), (3, 7)), slope, condition, target)
    firsts = torch.tensor([0, 3])[torch.arange(10) % 2]
    queries = count_queries(split, np.arange(9), firsts[:9].numpy(), 5, settings)
    first = firsts[batch.target_at.segment]
    interval = Interval(first, settings.size, slope)
    table = fill_table_packed(model, batch, interval, settings, row_size(queries), score_queries)
    found = search_interval(table.predict, batch, settings, first)
    assert torch.equal(found[real], search(model, batch, settings, first)[real])
    queries = count_queries(split, np.arange(9), np.zeros(9, np.int64), 8, settings)
    interval = covering_interval(settings)
    table = fill_table_packed(model, batch, interval, settings, row_size(queries), score_queries)
    found_all = table.search_all(settings)
    wanted = fill_table(model, batch, interval, settings).search_all(settings)
    assert torch.equal(found_all[:, real], wanted[:, real])
    assert not torch.equal(found_all[0], found_all[1])


@given(st.integers(0, 1000), st.integers(0, 6), st.integers(1, 6), st.sampled_from(["one", "ratio"]), st.booleans())
def test_queries_are_counted_on_the_host(
    random_split: MakeSplit, seed: int, first: int, size: int, slope: Any, has_belief: bool
) -> None:
    """As many as `build_row` puts into a row of exactly that size."""
    split = random_split(5, seed)
    batch = pack_batch(split, np.arange(5), BLOCK, BLOCK)
    first = max(first, 2 - size)  # an interval must have something to read
    settings = Search(((first, first + size - 1),), slope, target="belief" if has_belief else "reference")
    firsts = np.full(5, first)
    queries = count_queries(split, np.arange(5), firsts, size, settings)
    interval = Interval(first, size, slope)
    row = build_row(batch, interval, has_belief, queries)
    columns, offsets = batch.target.shape[1], size + has_belief
    assert bool((row.index < offsets * columns).all()), "no padding"
    assert len(set(row.index.tolist())) == queries
    padding = build_row(batch, interval, has_belief, queries + 3).index[queries:]
    assert padding.tolist() == [offsets * columns] * 3
    tokens = len(split.target.tokens)
    assert queries <= offsets * tokens
    start, length = interval.start(batch)[0], batch.source_lengths[0]
    needed = sum(int(((start + max(1, d) <= length) & (batch.labels[0] != PAD)).sum()) for d in range(size))
    assert queries == needed + has_belief * tokens


def test_row_sizes_leave_room_for_other_batches() -> None:
    assert [row_size(queries) // packed_search.SIZE_MULTIPLE for queries in (0, 1, 2000, 100_000)] == [1, 1, 2, 51]


@uncompiled
@pytest.mark.usefixtures("small_rows")
@pytest.mark.filterwarnings("ignore:.*CUDA is not available.*:UserWarning")
def test_a_captured_search_finds_the_same(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captured once, and again for a batch that needs a larger row."""
    settings = Search(((1, 5), (3, 7)), target="belief")
    recipe = dataclasses.replace(short_recipe(toy_data, tmp_path), search=settings)
    torch.manual_seed(3)
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target)).double().eval()
    recorded_search = captured.CapturedSearch(toy_dataset.split("train"), score_queries)
    monkeypatch.setattr(captured, "CapturedGraph", Replayed)
    recorded = []
    for count in (10, 9, 30):
        batch = pack_batch(toy_dataset.split("train"), np.arange(count) + count, 4 * BLOCK, 4 * BLOCK)
        firsts = torch.tensor([1, 3])[torch.arange(count + 1) % 2]
        found = recorded_search(model, batch, settings, firsts)
        assert torch.equal(found, search_sentences(model, batch, settings, firsts))
        recorded.append(len(recorded_search.graphs))
    assert recorded == [1, 1, 2]
