"""Binary search for reads: the table against Algorithm 1 written out and against passes at every step."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whilst.data import Batch, packed, padded
from whilst.dataset import Split
from whilst.model import Translator
from whilst.search import CONDITIONS, Found, Interval, Reader, bisect, monotone, search, search_step_by_step
from whilst.vocab import PAD


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
    batch = padded(random_split(6, 3), np.arange(6))
    found = search(model, batch, Interval(first, size, "ratio" if ratio else "one"))
    for row, expected in enumerate(slow(model, batch, first, size, ratio)):
        assert found[row, : len(expected)].tolist() == expected


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 7), st.sampled_from(["one", "ratio"]))
def test_reads_lie_in_the_interval_and_never_fall(
    model: Translator, random_split: Callable[..., Split], seed: int, first: int, size: int, slope: str
) -> None:
    batch = padded(random_split(4, seed), np.arange(4))
    interval = Interval(first, size, "one" if slope == "one" else "ratio")
    for condition in CONDITIONS:
        found = search(model, batch, interval, condition)
        start = interval.start(batch)
        assert bool((found >= start.minimum(batch.source_lengths)).all())
        assert bool((found <= (start + size - 1).minimum(batch.source_lengths)).all())
        assert bool((found >= 1).all())
        assert bool((found[:, 1:] >= found[:, :-1]).all())


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("size", [1, 2])
def test_step_by_step_agrees_where_it_must(
    model: Translator, random_split: Callable[..., Split], condition: str, size: int
) -> None:
    """With two reads to choose from, the bounds of all tokens are the two paths of the table."""
    batch = padded(random_split(8, 5), np.arange(8))
    interval = Interval(2, size)
    assert torch.equal(
        search(model, batch, interval, condition), search_step_by_step(model, batch, interval, condition)
    )


def test_step_by_step_agrees_on_first_tokens(model: Translator, random_split: Callable[..., Split]) -> None:
    """The first token has no past that could have followed another path."""
    batch = padded(random_split(12, 6), np.arange(12))
    interval = Interval(1, 7)
    fast, exact = search(model, batch, interval), search_step_by_step(model, batch, interval)
    assert torch.equal(fast[:, 0], exact[:, 0])
    assert not torch.equal(fast, exact), "they differ later on, or this test shows nothing"


def test_packed_finds_what_padded_finds(model: Translator, random_split: Callable[..., Split]) -> None:
    split, chosen = random_split(9, 7), np.arange(9)
    rows, row = padded(split, chosen), packed(split, chosen, 128, 128)
    interval = Interval(1, 5, "ratio")
    one = search(model, rows, interval)
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
        assert other[row.target_at.segment == number].tolist() == one[number, :length].tolist()


def test_a_sentence_of_its_own_first_interval(model: Translator, random_split: Callable[..., Split]) -> None:
    """`first` may differ from sentence to sentence: one table serves all."""
    batch = padded(random_split(6, 8), np.arange(6))
    firsts = torch.tensor([1, 3, 1, 3, 5, 5])[:, None]
    mixed = search(model, batch, Interval(firsts, 5))
    for first in (1, 3, 5):
        rows = (firsts[:, 0] == first).nonzero()[:, 0]
        assert torch.equal(mixed[rows], search(model, batch, Interval(first, 5))[rows])


def test_a_tolerance_does_not_wait_for_noise() -> None:
    """A probability that jumps at 3 reads and then rises by next to nothing: the jump is what is wanted."""
    chances = torch.tensor([0.1, 0.1, 0.9, 0.9001, 0.9002, 0.9003, 0.9004, 0.9005])

    def look(seen: torch.Tensor) -> Found:
        return Found(chances[seen - 1], seen)

    low, high = torch.tensor([1]), torch.tensor([8])
    concave = CONDITIONS["concavity"]
    assert int(bisect(low, high, 8, look, concave, low)) == 4
    assert int(bisect(low, high, 8, look, concave, low, tolerance=0.01)) == 3
