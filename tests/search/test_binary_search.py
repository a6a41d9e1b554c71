"""Binary search for reads: the table against Algorithm 1 written out and against passes at every step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.settings import Model, Search
from whilst.data.batches import Batch, pack_batch, pad_batch
from whilst.data.dataset import Split
from whilst.data.vocabulary import PAD
from whilst.model.attention import dense_mask
from whilst.model.transformer import Translator
from whilst.search.binary_search import (
    CONDITIONS,
    Found,
    Interval,
    Reader,
    bisect,
    monotone,
    search,
    search_all,
    search_step_by_step,
    sharp_logits,
)


def one(first: int, size: int, **others: Any) -> Search:
    """A search in one interval."""
    return Search(**({"intervals": ((first, first + size - 1),), "slope": "one"} | others))


def algorithm_1(low: int, high: int, chance: Callable[[int], float]) -> int:
    """The paper's Algorithm 1 for one token."""
    while low < high:
        middle = (low + high) // 2
        if chance(middle) >= (chance(low) + chance(high)) / 2:
            high = middle
        else:
            low = middle + 1
    return low


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(1, 5))
def test_bisection_is_algorithm_1(chances: list[float], low: int) -> None:
    table = torch.tensor(chances, dtype=torch.float64)

    def look(seen: torch.Tensor) -> Found:
        return Found(table[seen - low], seen)

    size, start = len(chances), torch.tensor([low])
    found = bisect(start, start + size - 1, size, look, CONDITIONS["concavity"], start)
    assert int(found) == algorithm_1(low, low + size - 1, lambda g: chances[g - low])


def slow(model: Translator, batch: Batch, first: int, size: int, ratio: bool) -> list[list[int]]:
    """Sentence by sentence, token by token, from one decoder pass for each offset of the interval."""
    result = []
    for row in range(batch.sentences):
        source_length = int(batch.source_lengths[row, 0])
        length = int((batch.labels[row] != PAD).sum())
        starts = [first + (i * source_length // length if ratio else i) for i in range(length)]
        tables = []
        for offset in range(size):
            seen = torch.full_like(batch.labels, source_length)
            seen[row, :length] = torch.tensor([min(start + offset, source_length) for start in starts])
            seen = seen.minimum(batch.source_lengths)
            tables.append(Reader(model, batch).find(seen).chance[row].tolist())
        highest, found = 0, []
        for i, start in enumerate(starts):
            low, high = min(start, source_length), min(start + size - 1, source_length)

            column = [table[i] for table in tables]
            chances = {g: column[max(0, min(g - start, size - 1))] for g in range(low, high + 1)}
            highest = max(highest, algorithm_1(low, high, chances.__getitem__))
            found.append(highest)
        result.append(found)
    return result


@pytest.mark.parametrize(("first", "size", "ratio"), [(1, 5, False), (3, 5, True), (2, 1, False), (1, 8, True)])
def test_table_search_is_the_slow_one(
    model: Translator, random_split: Callable[..., Split], first: int, size: int, ratio: bool
) -> None:
    batch = pad_batch(random_split(6, 3), np.arange(6))
    found = search(model, batch, one(first, size, slope="ratio" if ratio else "one"), first)
    for row, expected in enumerate(slow(model, batch, first, size, ratio)):
        assert found[row, : len(expected)].tolist() == expected


@given(st.integers(0, 1000), st.integers(0, 6), st.integers(2, 7), st.sampled_from(["one", "ratio"]))
def test_reads_lie_in_the_interval_and_never_fall(
    model: Translator, random_split: Callable[..., Split], seed: int, first: int, size: int, slope: str
) -> None:
    batch = pad_batch(random_split(4, seed), np.arange(4))
    interval = Interval(first, size, "one" if slope == "one" else "ratio")
    for condition in CONDITIONS:
        found = search(model, batch, one(first, size, slope=slope, condition=condition), first)
        start = interval.start(batch)
        assert bool((found >= start.clamp(min=1).minimum(batch.source_lengths)).all())
        assert bool((found <= (start + size - 1).clamp(min=1).minimum(batch.source_lengths)).all())
        assert bool((found >= 1).all())
        assert bool((found[:, 1:] >= found[:, :-1]).all())


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("size", [1, 2])
def test_step_by_step_agrees_where_it_must(
    model: Translator, random_split: Callable[..., Split], condition: str, size: int
) -> None:
    """With two reads to choose from, the bounds of all tokens are the two paths of the table."""
    batch = pad_batch(random_split(8, 5), np.arange(8))
    for target in ("reference", "belief"):
        settings = one(2, size, condition=condition, target=target)
        assert torch.equal(search(model, batch, settings, 2), search_step_by_step(model, batch, settings, 2))


def test_step_by_step_agrees_on_first_tokens(model: Translator, random_split: Callable[..., Split]) -> None:
    """The first token has no past that could have followed another path."""
    batch = pad_batch(random_split(12, 6), np.arange(12))
    settings = one(1, 7)
    fast, exact = search(model, batch, settings, 1), search_step_by_step(model, batch, settings, 1)
    assert torch.equal(fast[:, 0], exact[:, 0])
    assert not torch.equal(fast, exact), "they differ later on, or this test shows nothing"


def test_packed_finds_what_padded_finds(model: Translator, random_split: Callable[..., Split]) -> None:
    split, chosen = random_split(9, 7), np.arange(9)
    rows, row = pad_batch(split, chosen), pack_batch(split, chosen, 128, 128)
    interval = Interval(1, 5, "ratio")
    by_rows = search(model, rows, one(1, 5, slope="ratio"), 1)
    # Dense masks, since FlexAttention is for GPUs: tested is how the layout keeps sentences apart.
    dense = dataclasses.replace(row, packed=False)
    reader = Reader(model, dense)
    start = interval.start(row)
    table = torch.stack([reader.find((start + d).minimum(row.source_lengths)).chance for d in range(5)])

    def look(seen: torch.Tensor) -> Found:
        return Found(table.gather(0, (seen - start).clamp(0, 4)[None])[0], seen)

    low, high = start.minimum(row.source_lengths), (start + 4).minimum(row.source_lengths)
    other = monotone(bisect(low, high, 5, look, CONDITIONS["concavity"], row.labels), row)
    for number in range(9):
        length = int((rows.labels[number] != PAD).sum())
        assert other[row.target_at.segment == number].tolist() == by_rows[number, :length].tolist()


def test_a_sentence_of_its_own_first_interval(model: Translator, random_split: Callable[..., Split]) -> None:
    """`first` may differ from sentence to sentence: one table serves all."""
    batch = pad_batch(random_split(6, 8), np.arange(6))
    firsts = torch.tensor([1, 3, 1, 3, 5, 5])[:, None]
    mixed = search(model, batch, one(1, 5), firsts)
    for first in (1, 3, 5):
        rows = (firsts[:, 0] == first).nonzero()[:, 0]
        assert torch.equal(mixed[rows], search(model, batch, one(first, 5), first)[rows])


@pytest.mark.parametrize("slope", ["one", "ratio"])
@pytest.mark.parametrize("target", ["reference", "belief"])
def test_one_table_serves_all_intervals(
    model: Translator, random_split: Callable[..., Split], slope: str, target: str
) -> None:
    batch = pad_batch(random_split(8, 9), np.arange(8))
    firsts = (2, 1, 5)
    settings = one(1, 1, intervals=tuple((first, first + 3) for first in firsts), slope=slope, target=target)
    found = search_all(model, batch, settings)
    for reads, first in zip(found, firsts, strict=True):
        assert torch.equal(reads, search(model, batch, settings, first))


def test_what_reads_do_not_change_is_computed_once(model: Translator, random_split: Callable[..., Split]) -> None:
    batch = pad_batch(random_split(6, 3), np.arange(6))
    reader = Reader(model, batch, "belief")
    inner = [part for name, part in model.named_modules() if name.endswith("cross.key_value")]
    parts = [model.target_embedding, *inner]
    calls: list[object] = []
    watched = [part.register_forward_hook(lambda part, *_: calls.append(part)) for part in parts]
    search(model, batch, one(1, 5, target="belief"), 1)
    for watch in watched:
        watch.remove()
    assert len(calls) == len(parts) == 1 + len(model.decoder)
    assert set(calls) == set(parts)
    causal = dense_mask(batch.target_at, batch.target_at.position + 1, batch.target_at)
    for seen in (batch.source_lengths, Interval(2, 1).reads(batch, 0)):
        cross = dense_mask(batch.target_at, seen, batch.source_at)
        wanted = model.decode(batch.target, batch.target_at.position, reader.encoded, causal, cross)
        assert torch.equal(reader.states(seen), wanted)


def test_the_belief_is_what_the_model_says_after_the_whole_source(
    model: Translator, random_split: Callable[..., Split]
) -> None:
    batch = pad_batch(random_split(5, 10), np.arange(5))
    reader = Reader(model, batch, "belief")
    assert torch.allclose(reader.find(batch.source_lengths).chance, torch.ones((), dtype=torch.float64))
    seen = (batch.target_at.position + 1).minimum(batch.source_lengths)
    belief, now = (model.logits(reader.states(g)).softmax(-1) for g in (batch.source_lengths, seen))
    apart = (belief * (belief / now).log()).sum(-1)
    torch.testing.assert_close(reader.find(seen).chance, (-apart).exp())


def test_logits_are_sharp_whatever_the_states_are(tiny: Model, translator: Callable[..., Translator]) -> None:
    """Those of 16-bit states are of 16-bit weights too, but not of 16 bits themselves."""
    torch.manual_seed(1)
    model, states = translator(tiny).float(), torch.randn(2, 3, tiny.width)
    weight = model.target_embedding.weight
    assert torch.equal(sharp_logits(model, states), model.many_logits(states))
    found = sharp_logits(model, states.bfloat16())
    torch.testing.assert_close(found, states.bfloat16().float() @ weight.bfloat16().float().T)
    assert not torch.equal(found, found.bfloat16().float())


def test_belief_does_not_ask_the_reference(model: Translator, random_split: Callable[..., Split]) -> None:
    """Another last word in the reference changes what the paper's search finds for it, not what belief does."""
    batch = pad_batch(random_split(30, 11), np.arange(30))
    last = (batch.labels != PAD).sum(1, keepdim=True) - 1
    other = dataclasses.replace(batch, labels=batch.labels.scatter(1, last, 5))
    settings = one(1, 6, target="belief")
    assert torch.equal(search(model, batch, settings, 1), search(model, other, settings, 1))
    settings = one(1, 6)
    assert not torch.equal(search(model, batch, settings, 1), search(model, other, settings, 1))


def test_a_tolerance_does_not_wait_for_noise() -> None:
    """A probability that jumps at 3 reads and then rises by next to nothing: the jump is what is wanted."""
    chances = torch.tensor([0.1, 0.1, 0.9, 0.9001, 0.9002, 0.9003, 0.9004, 0.9005])

    def look(seen: torch.Tensor) -> Found:
        return Found(chances[seen - 1], seen)

    low, high = torch.tensor([1]), torch.tensor([8])
    concave = CONDITIONS["concavity"]
    assert int(bisect(low, high, 8, look, concave, low)) == 4
    assert int(bisect(low, high, 8, look, concave, low, tolerance=0.01)) == 3
