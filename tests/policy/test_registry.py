"""Policies by name, and what they decide."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.decoding import policy
from whilst.core.errors import UserError
from whilst.policy import View
from whilst.policy.fixed import WaitK
from whilst.policy.full import Full

COUNTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5)


@pytest.mark.parametrize("name", ["full", "wait-1", "wait-3", "wait-12"])
def test_a_name_comes_back(name: str) -> None:
    assert policy(name).name == name


def test_names_choose() -> None:
    assert policy("full") == Full()
    assert policy("wait-3") == WaitK(3)
    assert policy("wait-03") == WaitK(3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "policy '': unknown; write full, wait-K"),
        ("greedy", "policy 'greedy': unknown; write full, wait-K"),
        ("Wait-3", "policy 'Wait-3': unknown; write full, wait-K"),
        ("full-3", "policy full-3: full takes no argument"),
        ("wait", "policy wait-: K must be a whole number from 1"),
        ("wait-0", "policy wait-0: K must be a whole number from 1"),
        ("wait--1", "policy wait--1: K must be a whole number from 1"),
        ("wait-k", "policy wait-k: K must be a whole number from 1"),
        ("wait-1.5", "policy wait-1.5: K must be a whole number from 1"),
        ("wait- 3", "policy wait- 3: K must be a whole number from 1"),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        policy(name)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def standing(read: torch.Tensor, written: torch.Tensor) -> View:
    """A view of which only the counts matter."""
    rows = len(read)
    tokens, states = torch.zeros(rows, 1, dtype=torch.long), torch.zeros(rows, 1, 1)
    return View(read, written, tokens, tokens[:, 0], states, states[:, 0])


@given(COUNTS, st.integers(1, 10))
def test_wait_k_writes_when_it_is_k_tokens_ahead(counts: list[tuple[int, int]], k: int) -> None:
    read, written = torch.tensor(counts).T
    wanted = [r - w >= k for r, w in counts]
    assert policy(f"wait-{k}").start(read).write(standing(read, written)).tolist() == wanted


@given(COUNTS)
def test_full_never_asks_to_write(counts: list[tuple[int, int]]) -> None:
    read, written = torch.tensor(counts).T
    decided = policy("full").start(read).write(standing(read, written))
    assert decided.dtype == torch.bool
    assert decided.tolist() == [False] * len(counts)
