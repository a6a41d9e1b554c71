"""Batches: both layouts agree, every sentence occurs once, and the order depends on the seed."""

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from torch import Tensor

from whilst.core.errors import UserError
from whilst.data.batches import (
    BLOCK,
    Batch,
    Batches,
    Ints,
    Layout,
    batches_by_length,
    gather_tokens,
    pack_batch,
    packed_chunks,
    pad_batch,
    prefetch,
)
from whilst.data.dataset import Split, TokenSequences
from whilst.data.vocabulary import BOS, EOS, PAD
from whilst.model.transformer import Translator, decode_batch
from whilst.training.sampling import wait_k

MakeSplit = Callable[..., Split]
LAYOUTS = pytest.mark.parametrize("layout", ["padded", "packed"])


def ragged(*lengths: int) -> TokenSequences:
    """Sentences of these lengths."""
    tokens = [token for length in lengths for token in [*range(4, 3 + length), EOS]]
    return TokenSequences(np.array(tokens, np.uint16), np.array([0, *itertools.accumulate(lengths)]))


def sentences(batch: Batch, tokens: Tensor, segments: Tensor) -> list[list[int]]:
    """The tokens of each sentence of the batch, without padding."""
    return [tokens[(segments == i) & (tokens != PAD)].tolist() for i in range(batch.sentences)]


def losses(model: Translator, batch: Batch, k: int) -> Tensor:
    """(sentences) the cross-entropy of each under wait-k."""
    batch = dataclasses.replace(batch, packed=False)  # FlexAttention needs a GPU; one dense row works, too
    seen = wait_k(k, batch.target_at.position, batch.source_lengths)
    logits = model.logits(decode_batch(model, batch, seen))
    each = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD, reduction="none")
    total = each.new_zeros(batch.sentences + 1)
    return total.index_add(0, batch.target_at.segment.flatten(), each)[:-1]


def test_gather_tokens_concatenates_sentences(split: Split) -> None:
    chosen = np.array([7, 3, 3, 99])
    tokens, sentence, position, lengths = gather_tokens(split.source, chosen)
    parts = [split.source[int(i)].tolist() for i in chosen]
    assert tokens.tolist() == [token for part in parts for token in part]
    assert lengths.tolist() == [len(part) for part in parts]
    assert list(zip(sentence, position, strict=True)) == [
        (i, j) for i, p in enumerate(parts) for j in range(len(p))
    ]


@given(chosen=st.lists(st.integers(0, 99), min_size=1, max_size=12), k=st.integers(1, 9))
@limit(max_examples=15)
def test_both_layouts_hold_the_same_sentences(split: Split, model: Translator, chosen: list[int], k: int) -> None:
    indices = np.array(chosen)
    wide, long = pad_batch(split, indices), pack_batch(split, indices, 2 * BLOCK, 2 * BLOCK)
    source, target = ([side[i].tolist() for i in chosen] for side in (split.source, split.target))
    for batch in (wide, long):
        assert batch.sentences == len(chosen)
        assert batch.target_tokens == sum(map(len, target))
        assert sentences(batch, batch.source, batch.source_at.segment) == source
        assert sentences(batch, batch.labels, batch.target_at.segment) == target
        fed = [[BOS, *sentence[:-1]] for sentence in target]
        # In the padded layout the last label is shifted into the padding, where no label follows.
        found = torch.where(batch.labels == PAD, PAD, batch.target)
        assert sentences(batch, found, batch.target_at.segment) == fed
        j = torch.where(batch.labels == PAD, PAD, batch.source_lengths)
        wanted = [[len(s)] * len(t) for s, t in zip(source, target, strict=True)]
        assert sentences(batch, j, batch.target_at.segment) == wanted
    assert long.source.shape == long.target.shape == (1, 2 * BLOCK)
    with torch.inference_mode():
        torch.testing.assert_close(losses(model, wide, k), losses(model, long, k))


def test_with_tensors_replaces_only_tensors(split: Split) -> None:
    batch = pack_batch(split, np.arange(5), BLOCK, BLOCK)
    tensors = [torch.full_like(tensor, number) for number, tensor in enumerate(batch.tensors())]
    other = batch.with_tensors(tensors)
    assert all(a is b for a, b in zip(other.tensors(), tensors, strict=True))
    assert (other.sentences, other.target_tokens, other.packed) == (5, batch.target_tokens, True)
    same = batch.to(torch.device("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(same.tensors(), batch.tensors(), strict=True))


def flat(plan: list[Ints]) -> list[int]:
    return [int(i) for chosen in plan for i in chosen]


@LAYOUTS
@given(seed=st.integers(0, 99), pairs=st.integers(1, 200), epoch=st.integers(0, 3), blocks=st.integers(1, 3))
@limit(max_examples=25)
def test_an_epoch_has_every_sentence_once_within_budget(
    random_split: MakeSplit, layout: Layout, seed: int, pairs: int, epoch: int, blocks: int
) -> None:
    split = random_split(pairs, seed)
    batches = Batches(split, blocks * BLOCK, seed, layout)
    plan = batches.plan(epoch)
    assert sorted(flat(plan)) == list(range(pairs))
    for chosen in plan:
        assert len(chosen)
        batch = batches.make(chosen)
        assert batch.packed == (layout == "packed")
        if layout == "packed":
            assert batch.source.shape == (1, batches.source_size)
            assert batch.target.shape == (1, batches.tokens)
            assert batch.source[0, -1] == PAD  # padding of the target can attend to it
        else:
            assert max(batch.source.numel(), batch.target.numel()) <= batches.tokens


@LAYOUTS
def test_little_is_padding(random_split: MakeSplit, layout: Layout) -> None:
    split = random_split(3000, 0, 30)
    batches = Batches(split, 4 * BLOCK, 0, layout)
    made = [batches.make(chosen) for chosen in batches.plan(0)[:-1]]  # without the last one, which is not full
    share = sum(int((batch.labels == PAD).sum()) for batch in made) / sum(batch.labels.numel() for batch in made)
    assert share < (0.04 if layout == "packed" else 0.02)


@LAYOUTS
def test_the_order_depends_on_seed_and_epoch_only(split: Split, layout: Layout) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return flat(Batches(split, BLOCK, seed, layout).plan(epoch))

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


@LAYOUTS
def test_iterate_resumes_at_any_batch(split: Split, layout: Layout) -> None:
    batches = Batches(split, BLOCK, 1, layout)
    steps = 2 * len(batches.plan(0)) + 3  # well into the third epoch

    def listed(items: Iterator[tuple[int, int, Ints]], count: int) -> list[tuple[int, int, list[int]]]:
        return [(epoch, index, chosen.tolist()) for epoch, index, chosen in itertools.islice(items, count)]

    whole = listed(batches.iterate(0, 0), steps)
    assert {epoch for epoch, _, _ in whole} == {0, 1, 2}
    for done in range(1, steps):
        epoch, index, _ = whole[done - 1]
        # The trainer stores the index after the last batch, which may be past the end of an epoch.
        assert listed(batches.iterate(epoch, index + 1), steps - done) == whole[done:]


@pytest.mark.parametrize(
    ("layout", "source", "target", "fits"),
    [
        ("padded", 128, 128, True),
        ("padded", 129, 1, False),
        ("padded", 1, 129, False),
        ("packed", 1, 129, False),
        ("packed", 300, 129, False),  # the packed source holds 384 here, the target 128
        ("packed", 300, 128, True),
        ("packed", 127, 128, True),
        ("packed", 20, 100, True),
        ("packed", 127, 60, True),
    ],
)
def test_a_budget_below_the_longest_sentence_is_refused(
    layout: Layout, source: int, target: int, fits: bool
) -> None:
    split = Split(ragged(source), ragged(target))
    if fits:
        batches = Batches(split, BLOCK, 1, layout)
        assert batches.make(batches.plan(0)[0]).target_tokens == target
    else:
        with pytest.raises(UserError, match=r"train\.batch_tokens: 128 is too small for a sentence of \d+ units"):
            Batches(split, BLOCK, 1, layout)


@pytest.mark.parametrize("seed", range(4))
def test_a_packed_source_has_a_free_position(seed: int) -> None:
    """Two of the sentences would fill the row, and padding of the target could attend to nothing."""
    batches = Batches(Split(ragged(64, 64, 1), ragged(9, 9, 128)), BLOCK, seed, "packed")
    assert batches.source_size == BLOCK
    assert sorted(map(len, batches.plan(0))) == [1, 1, 1]


def test_a_packed_budget_is_a_multiple_of_the_block(split: Split) -> None:
    with pytest.raises(UserError, match=r"train\.batch_tokens: must be a multiple of 128"):
        Batches(split, BLOCK + 1, 1, "packed")
    Batches(split, BLOCK + 1, 1, "padded")


def test_packed_chunks_use_the_whole_budget() -> None:
    split = Split(ragged(3, 3, 3, 1, 9), ragged(4, 4, 2, 1, 1))
    assert [part.tolist() for part in packed_chunks(split, np.arange(5), 9, 10)] == [[0, 1, 2], [3], [4]]
    assert [part.tolist() for part in packed_chunks(split, np.arange(5), 100, 8)] == [[0, 1], [2, 3, 4]]


def test_validation_sees_everything_once(split: Split) -> None:
    made = list(batches_by_length(split, BLOCK))
    found = [part for batch in made for part in sentences(batch, batch.labels, batch.target_at.segment)]
    assert sorted(found) == sorted(split.target[i].tolist() for i in range(100))
    assert [len(part) for part in found] == sorted(split.target.lengths.tolist())
    assert all(max(batch.source.numel(), batch.target.numel()) <= BLOCK for batch in made)


def test_prefetch_keeps_the_order_and_ends() -> None:
    before = threading.active_count()
    assert list(prefetch(iter(range(20)), depth=2)) == list(range(20))
    assert threading.active_count() == before


def test_prefetch_passes_exceptions_on() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise UserError("the file is gone")

    before = threading.active_count()
    items = prefetch(broken())
    assert next(items) == 1
    with pytest.raises(UserError, match="the file is gone"):
        next(items)
    assert threading.active_count() == before


def test_prefetch_works_ahead_and_stops_when_closed() -> None:
    made: list[int] = []

    def endless() -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            yield number

    before = threading.active_count()
    items = prefetch(endless(), depth=3)
    assert next(items) == 0
    deadline = time.monotonic() + 5
    while len(made) < 5 and time.monotonic() < deadline:  # three in the queue, one in the thread
        time.sleep(0.01)
    assert made == [0, 1, 2, 3, 4]
    items.close()
    assert threading.active_count() == before
    assert len(made) <= 6
