"""Binary search for reads: compared with Algorithm 1 for one token, and with decoder passes at every step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st

from whilst.core.settings import Model, Search
from whilst.data.batches import Batch, pack_batch, pad_batch
from whilst.data.dataset import Split
from whilst.data.vocabulary import PAD
from whilst.model.attention import dense_mask
from whilst.model.transformer import Translator
from whilst.search.binary_search import (
    Interval,
    PathDecoder,
    Prediction,
    binary_search,
    covering_interval,
    fill_table,
    fp32_logits,
    monotone,
    search,
    search_interval,
)

CONDITIONS = ["concavity", "authors", "ground-truth"]


def one(first: int, size: int, **others: Any) -> Search:
    """A search in one interval."""
    return Search(**({"intervals": ((first, first + size - 1),), "slope": "one"} | others))


def algorithm_1(left: int, right: int, p: Callable[[int], float]) -> int:
    """The paper's Algorithm 1 for one token."""
    while left < right:
        mid = (left + right) // 2
        if p(mid) >= (p(left) + p(right)) / 2:
            right = mid
        else:
            left = mid + 1
    return left


def authors_search(left: int, right: int, p: Callable[[int], float], token: Callable[[int], int]) -> int:
    """The search of the authors' code for one token."""
    while left < right:
        mid = (left + right) // 2
        if right - left == 1:
            return left if token(left) == token(right) else right
        if p(mid) >= (p(left) + p(right)) / 2 or p(left) >= p(right):
            right = mid
        else:
            left = mid
    return left


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=40), st.integers(1, 5))
def test_search_matches_the_algorithms(values: list[tuple[float, int]], first: int) -> None:
    probabilities, tokens = (list(column) for column in zip(*values, strict=True))
    p, token = torch.tensor(probabilities, dtype=torch.float64), torch.tensor(tokens)

    def predict(path: torch.Tensor) -> Prediction:
        return Prediction(p[path - first], token[path - first])

    size, left = len(values), torch.tensor([first])
    last = first + size - 1
    for name, wanted in (
        ("concavity", algorithm_1(first, last, lambda g: probabilities[g - first])),
        (
            "authors",
            authors_search(first, last, lambda g: probabilities[g - first], lambda g: tokens[g - first]),
        ),
    ):
        settings = one(first, size, condition=name)
        assert int(binary_search(left, left + size - 1, predict, left, settings)) == wanted


def test_the_right_half_of_the_authors_begins_at_the_midpoint() -> None:
    """From [1, 4] with m = 2 the paper continues with [3, 4], the authors' code with [2, 4] and then [2, 3]."""
    p = torch.tensor([0.1, 0.2, 0.6, 0.7])

    def predict(path: torch.Tensor) -> Prediction:
        return Prediction(p[path - 1], torch.tensor([0, 0, 0, 0])[path - 1])

    left, right = torch.tensor([1]), torch.tensor([4])
    assert int(binary_search(left, right, predict, left, one(1, 4))) == 4
    assert int(binary_search(left, right, predict, left, one(1, 4, condition="authors"))) == 2


def slow(model: Translator, batch: Batch, first: int, size: int, ratio: bool) -> list[list[int]]:
    """One sentence and one token at a time, from one decoder pass for each offset of the interval."""
    result = []
    for row in range(batch.sentences):
        source_length = int(batch.source_lengths[row, 0])
        length = int((batch.labels[row] != PAD).sum())
        starts = [first + (i * source_length // length if ratio else i) for i in range(length)]
        tables = []
        for offset in range(size):
            path = torch.full_like(batch.labels, source_length)
            path[row, :length] = torch.tensor([min(start + offset, source_length) for start in starts])
            path = path.minimum(batch.source_lengths)
            tables.append(PathDecoder(model, batch).predict(path).probability[row].tolist())
        highest, found = 0, []
        for i, start in enumerate(starts):
            left, right = min(start, source_length), min(start + size - 1, source_length)
            column = [table[i] for table in tables]
            p = {g: column[max(0, min(g - start, size - 1))] for g in range(left, right + 1)}
            highest = max(highest, algorithm_1(left, right, p.__getitem__))
            found.append(highest)
        result.append(found)
    return result


@pytest.mark.parametrize(("first", "size", "ratio"), [(1, 5, False), (3, 5, True), (2, 1, False), (1, 8, True)])
def test_table_search_matches_the_slow_one(
    model: Translator, random_split: Callable[..., Split], first: int, size: int, ratio: bool
) -> None:
    batch = pad_batch(random_split(6, 3), np.arange(6))
    found = search(model, batch, one(first, size, slope="ratio" if ratio else "one"), first)
    for row, expected in enumerate(slow(model, batch, first, size, ratio)):
        assert found[row, : len(expected)].tolist() == expected


@limit(max_examples=40)
@given(st.integers(0, 1000), st.integers(0, 6), st.integers(2, 7), st.sampled_from(["one", "ratio"]))
def test_reads_lie_in_the_interval_and_do_not_decrease(
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


@torch.no_grad()
def search_step_by_step(model: Translator, batch: Batch, settings: Search, first: int) -> torch.Tensor:
    """With decoder passes at every bisection, in which earlier tokens follow their own current bounds."""
    predict = PathDecoder(model, batch, settings.target).predict
    return search_interval(predict, batch, settings, first)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("size", [1, 2])
def test_step_by_step_agrees_in_intervals_of_two(
    model: Translator, random_split: Callable[..., Split], condition: str, size: int
) -> None:
    """The bounds of all tokens are then the two paths of the table."""
    batch = pad_batch(random_split(8, 5), np.arange(8))
    for target in ("reference", "belief"):
        settings = one(2, size, condition=condition, target=target)
        assert torch.equal(search(model, batch, settings, 2), search_step_by_step(model, batch, settings, 2))


def test_step_by_step_agrees_on_first_tokens(model: Translator, random_split: Callable[..., Split]) -> None:
    """The first token has no past that could follow another path."""
    batch = pad_batch(random_split(12, 6), np.arange(12))
    settings = one(1, 7)
    fast, exact = search(model, batch, settings, 1), search_step_by_step(model, batch, settings, 1)
    assert torch.equal(fast[:, 0], exact[:, 0])
    assert not torch.equal(fast, exact), "they should differ for later tokens"


def test_packed_and_padded_find_the_same(model: Translator, random_split: Callable[..., Split]) -> None:
    split, chosen = random_split(9, 7), np.arange(9)
    rows, row = pad_batch(split, chosen), pack_batch(split, chosen, 128, 128)
    interval = Interval(1, 5, "ratio")
    by_rows = search(model, rows, one(1, 5, slope="ratio"), 1)
    # With dense masks, since FlexAttention is for GPUs: this tests how the layout keeps sentences apart.
    dense = dataclasses.replace(row, packed=False)
    decoder = PathDecoder(model, dense)
    start = interval.start(row)
    table = torch.stack([decoder.predict((start + d).minimum(row.source_lengths)).probability for d in range(5)])

    def predict(path: torch.Tensor) -> Prediction:
        return Prediction(table.gather(0, (path - start).clamp(0, 4)[None])[0], path)

    left, right = start.minimum(row.source_lengths), (start + 4).minimum(row.source_lengths)
    other = monotone(binary_search(left, right, predict, row.labels, one(1, 5)), row)
    for number in range(9):
        length = int((rows.labels[number] != PAD).sum())
        assert other[row.target_at.segment == number].tolist() == by_rows[number, :length].tolist()


def test_each_sentence_may_have_its_own_interval(model: Translator, random_split: Callable[..., Split]) -> None:
    """One table serves all values of `first`."""
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
    found = fill_table(model, batch, covering_interval(settings), settings).search_all(settings)
    for reads, first in zip(found, firsts, strict=True):
        assert torch.equal(reads, search(model, batch, settings, first))


def test_embeddings_keys_and_values_are_computed_once(
    model: Translator, random_split: Callable[..., Split]
) -> None:
    batch = pad_batch(random_split(6, 3), np.arange(6))
    decoder = PathDecoder(model, batch, "belief")
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
    for path in (batch.source_lengths, Interval(2, 1).reads(batch, 0)):
        cross = dense_mask(batch.target_at, path, batch.source_at)
        wanted = model.decode(batch.target, batch.target_at.position, decoder.encoded, causal, cross)
        assert torch.equal(decoder.states(path), wanted)


def test_the_belief_is_the_prediction_after_the_whole_source(
    model: Translator, random_split: Callable[..., Split]
) -> None:
    batch = pad_batch(random_split(5, 10), np.arange(5))
    decoder = PathDecoder(model, batch, "belief")
    assert torch.allclose(decoder.predict(batch.source_lengths).probability, torch.ones((), dtype=torch.float64))
    seen = (batch.target_at.position + 1).minimum(batch.source_lengths)
    belief, now = (model.logits(decoder.states(g)).softmax(-1) for g in (batch.source_lengths, seen))
    divergence = (belief * (belief / now).log()).sum(-1)
    torch.testing.assert_close(decoder.predict(seen).probability, (-divergence).exp())


def test_logits_have_full_precision_for_bfloat16_states(tiny: Model, translator: Callable[..., Translator]) -> None:
    """The product of 16-bit states and weights is accumulated and returned in 32 bits."""
    torch.manual_seed(1)
    model, states = translator(tiny).float(), torch.randn(2, 3, tiny.width)
    weight = model.target_embedding.weight
    assert torch.equal(fp32_logits(model, states), model.many_logits(states))
    found = fp32_logits(model, states.bfloat16())
    torch.testing.assert_close(found, states.bfloat16().float() @ weight.bfloat16().float().T)
    assert not torch.equal(found, found.bfloat16().float())


def test_belief_does_not_depend_on_the_reference(model: Translator, random_split: Callable[..., Split]) -> None:
    """Another last word in the reference changes the reads with target "reference" only."""
    batch = pad_batch(random_split(30, 11), np.arange(30))
    last = (batch.labels != PAD).sum(1, keepdim=True) - 1
    other = dataclasses.replace(batch, labels=batch.labels.scatter(1, last, 5))
    settings = one(1, 6, target="belief")
    assert torch.equal(search(model, batch, settings, 1), search(model, other, settings, 1))
    settings = one(1, 6)
    assert not torch.equal(search(model, batch, settings, 1), search(model, other, settings, 1))


def test_a_tolerance_ignores_small_gains() -> None:
    """A probability that jumps at 3 reads and then hardly rises."""
    p = torch.tensor([0.1, 0.1, 0.9, 0.9001, 0.9002, 0.9003, 0.9004, 0.9005])

    def predict(path: torch.Tensor) -> Prediction:
        return Prediction(p[path - 1], path)

    left, right = torch.tensor([1]), torch.tensor([8])
    assert int(binary_search(left, right, predict, left, one(1, 8))) == 4
    assert int(binary_search(left, right, predict, left, one(1, 8, tolerance=0.01))) == 3
