"""Operations on reads, compared with plain loops."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from whilst.training.sampling import draw_k, wait_k

lengths = st.integers(1, 30)


def wait_k_loop(k: int, source: int, target: int) -> list[int]:
    """Read k tokens, then write and read in turn, until nothing is left to read."""
    seen, out = min(k, source), []
    for _ in range(target):
        out.append(seen)
        seen = min(seen + 1, source)
    return out


@given(lengths, lengths, lengths)
def test_wait_k_matches_a_loop(k: int, source: int, target: int) -> None:
    found = wait_k(k, torch.arange(target), torch.full((target,), source)).tolist()
    assert found == wait_k_loop(k, source, target)
    assert found == sorted(found)
    assert all(1 <= g <= source for g in found)
    if k >= source:
        assert found == [source] * target


@given(st.lists(st.tuples(lengths, lengths), min_size=1, max_size=5), st.integers(1, 12))
def test_wait_k_takes_a_k_and_a_length_for_each_sentence(rows: list[tuple[int, int]], target: int) -> None:
    k, source = torch.tensor(rows).T[..., None]
    found = wait_k(k, torch.arange(target)[None], source)
    assert found.tolist() == [wait_k_loop(k, source, target) for k, source in rows]


@given(lengths)
def test_draw_k_is_uniform(longest: int) -> None:
    random = torch.arange(longest * 8) / (longest * 8)  # an even grid of [0, 1)
    k = draw_k(torch.tensor(longest), random + 1e-6)
    assert torch.bincount(k, minlength=longest + 1).tolist() == [0] + [8] * longest


@given(st.lists(lengths, min_size=1, max_size=10))
def test_draw_k_stays_in_bounds(rows: list[int]) -> None:
    longest = torch.tensor(rows)
    below_one = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    assert draw_k(longest, torch.zeros(len(rows))).tolist() == [1] * len(rows)
    assert draw_k(longest, below_one.expand(len(rows))).tolist() == rows
