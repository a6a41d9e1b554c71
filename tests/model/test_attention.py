"""Visibility: block masks, dense masks and a plain loop agree, and every query sees at least one key."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as limit
from hypothesis import strategies as st
from torch import Tensor
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V
from torch.nn.attention.flex_attention import BlockMask, create_mask

from whilst.data.batches import BLOCK, Batch, Tokens, pack_batch, pad_batch
from whilst.data.dataset import Split
from whilst.model.attention import (
    FlexTiles,
    Heads,
    attend,
    block_mask,
    dense_mask,
    span_mask,
    use_small_tiles,
)
from whilst.training.sampling import wait_k

SIZE = 2 * BLOCK
MakeSplit = Callable[..., Split]


def views(batch: Batch, k: int) -> list[tuple[Tokens, Tensor, Tokens]]:
    """(queries, limits, keys) of causal and bidirectional encoder, decoder, and cross-attention under wait-k."""
    source, target = batch.source_at, batch.target_at
    seen = wait_k(k, batch.target_at.position, batch.source_lengths)
    return [
        (source, source.position + 1, source),
        (source, torch.full_like(source.position, 1 << 30), source),
        (target, target.position + 1, target),
        (target, seen, source),
    ]


def made_dense(mask: BlockMask) -> Tensor:
    """(1, 1, queries, keys) what FlexAttention computes: the rule inside the tiles that it visits."""
    queries, keys = mask.seq_lengths
    rule = create_mask(mask.mask_mod, 1, 1, queries, keys, device="cpu")
    down, across = mask.BLOCK_SIZE
    tiles = mask.to_dense()
    return rule & tiles.bool().repeat_interleave(down, -2).repeat_interleave(across, -1)


@pytest.fixture(params=[BLOCK, FlexTiles.SMALL])
def tile_size(request: pytest.FixtureRequest) -> Iterator[int]:
    FlexTiles.size = request.param
    yield request.param
    FlexTiles.size = BLOCK


@pytest.mark.usefixtures("tile_size")
@given(seed=st.integers(0, 999), longest=st.integers(1, 60), k=st.integers(1, 9))
@limit(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_block_mask_is_dense_mask(random_split: MakeSplit, seed: int, longest: int, k: int) -> None:
    split = random_split(SIZE // longest, seed, longest)
    # One source block more than needed: padding at the end may fill a whole tile.
    batch = pack_batch(split, np.arange(len(split.source)), SIZE + BLOCK, SIZE)
    for queries, limits, keys in views(batch, k):
        made, wanted = made_dense(block_mask(queries, limits, keys)), dense_mask(queries, limits, keys)
        real = queries.segment[0] < batch.sentences
        assert torch.equal(made[:, :, real], wanted[:, :, real])
        assert not bool((made & ~wanted).any()), "padding may see less padding, nothing else"


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("itself", [False, True])
@given(seed=st.integers(0, 999))
@limit(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_span_is_covered_by_tiles(itself: bool, seed: int) -> None:
    """On a GPU, keys outside of the visited tiles are invisible whatever the rule says."""
    torch.manual_seed(seed)
    first = torch.randint(SIZE, (SIZE,))
    end = (first + torch.randint(-3, 1 + SIZE // int(torch.randint(1, 50, ())), (SIZE,))).clamp(max=SIZE)
    key = torch.arange(SIZE)
    wanted = (key >= first[:, None]) & (key < end[:, None])
    made = made_dense(span_mask(first, end, SIZE, itself))
    assert torch.equal(made[0, 0], wanted | (key == key[:, None]) if itself else wanted)


def test_block_mask_visits_few_tiles(random_split: MakeSplit) -> None:
    """Visiting all of them would be correct but slow."""
    split = random_split(130, 0, 30)
    tiles = 1 + max(len(split.source.tokens), len(split.target.tokens)) // BLOCK
    batch = pack_batch(split, np.arange(130), tiles * BLOCK, tiles * BLOCK)
    mask = block_mask(batch.target_at, batch.target_at.position + 1, batch.source_at)
    assert mask.kv_num_blocks.sum() < 0.25 * tiles**2
    # Causal attention visits one or two tiles, never a later one.
    mask = block_mask(batch.target_at, batch.target_at.position + 1, batch.target_at)
    assert int(mask.kv_num_blocks.max()) <= 2
    assert not bool(mask.to_dense()[0, 0].triu(1).any())


def test_dense_mask_is_a_plain_loop(split: Split) -> None:
    batch = pad_batch(split, np.arange(4))
    rows, width, height = len(batch.source), batch.source.shape[1], batch.target.shape[1]
    seen = wait_k(2, batch.target_at.position, batch.source_lengths)
    mask = dense_mask(batch.target_at, seen, batch.source_at)
    assert mask.shape == (rows, 1, height, width)
    for row in range(rows):
        length = len(split.source[row])
        for i in range(height):
            assert mask[row, 0, i].tolist() == [j < min(2 + i, length) for j in range(width)]


@pytest.mark.parametrize("k", [1, 4, 100])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_every_query_sees_a_key(split: Split, k: int, layout: str) -> None:
    """Padding too: a softmax over nothing is NaN, which would spread."""
    chosen = np.arange(16)
    batch = pack_batch(split, chosen, SIZE, SIZE) if layout == "packed" else pad_batch(split, chosen)
    for queries, limits, keys in views(batch, k):
        assert bool(dense_mask(queries, limits, keys).any(-1).all())
        if batch.packed:
            assert bool(made_dense(block_mask(queries, limits, keys)).any(-1).all())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("which", range(4))
def test_flex_attention_is_sdpa(split: Split, which: int) -> None:
    batch = pack_batch(split, np.arange(30), SIZE + BLOCK, SIZE)
    queries, limits, keys = views(batch, 3)[which]
    torch.manual_seed(0)
    query = torch.randn(1, 2, queries.position.shape[1], 16)
    key, value = torch.randn(2, 1, 2, keys.position.shape[1], 16)
    dense = attend(query, key, value, dense_mask(queries, limits, keys))
    block = attend(query, key, value, block_mask(queries, limits, keys))
    assert dense.shape == (1, query.shape[2], 32)
    real = queries.segment[0] < batch.sentences
    torch.testing.assert_close(block[:, real], dense[:, real])
    assert bool(block.isfinite().all())
    with torch.no_grad():  # the mask then has no blocks for gradients
        assert torch.equal(attend(query, key, value, block_mask(queries, limits, keys)), block)
        assert block_mask(queries, limits, keys).q_indices is None


GPU = torch.device("cuda", 0)


def fake_shared_memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Pretend that the GPU has this much shared memory."""
    about = SimpleNamespace(shared_memory_per_multiprocessor=size)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: about)


@pytest.mark.usefixtures("tile_size")
def test_small_tiles_have_kernels_of_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the GPU's defaults are, and also in the thread that compiles the backward pass."""
    names = "get_flex_attention_fwd_configs", "get_flex_attention_bwd_configs"
    for name in names:
        monkeypatch.setattr(InductorChoices, name, getattr(InductorChoices, name))  # restored after the test
    fake_shared_memory(monkeypatch, 233_472)
    use_small_tiles(GPU)
    assert FlexTiles.size == FlexTiles.SMALL < BLOCK

    def configs() -> list[Any]:
        return [getattr(V.choices, name)(128, torch.bfloat16, "cuda") for name in names]

    with ThreadPoolExecutor(1) as other:
        for (forward,), (backward,) in (configs(), other.submit(configs).result()):
            sides = forward.block_m, forward.block_n, backward.block_m1, backward.block_n1, backward.block_n2
            assert not any(FlexTiles.SMALL % each for each in (*sides, backward.block_m2))


def test_tiles_stay_without_shared_memory_or_the_private_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_shared_memory(monkeypatch, 102_400)
    use_small_tiles(GPU)
    assert FlexTiles.size == BLOCK
    fake_shared_memory(monkeypatch, 233_472)
    monkeypatch.delattr(InductorChoices, "get_flex_attention_bwd_configs")
    use_small_tiles(GPU)
    assert FlexTiles.size == BLOCK


def test_heads_match_plain_attention() -> None:
    """Computed with a softmax, head by head."""
    torch.manual_seed(0)
    heads = Heads(8, 2)
    torch.nn.init.normal_(heads.key_value.bias)
    states, others = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    mask = torch.rand(2, 1, 3, 5) < 0.6
    mask[..., 0] = True
    key, value = heads.key_value(others).split(8, dim=-1)
    query = heads.query(states)
    mixed = []
    for part in (slice(0, 4), slice(4, 8)):
        scores = query[..., part] @ key[..., part].mT / 4**0.5
        mixed.append(scores.masked_fill(~mask[:, 0], -torch.inf).softmax(-1) @ value[..., part])
    wanted = heads.out(torch.cat(mixed, -1))
    torch.testing.assert_close(heads(states, heads.keys_values(others), mask), wanted)
