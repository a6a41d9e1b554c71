"""Policies by name, and what they decide."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.decoding import bare_context, policy
from whilst.core import policy_spec
from whilst.core.errors import UserError
from whilst.core.policy_spec import KINDS, PolicyKind, PolicySpec, fixed_reads, parse_live, to_log_odds
from whilst.policy import View, make_policy, registry
from whilst.policy.fixed import Full, WaitK

COUNTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5)


@pytest.mark.parametrize("name", ["full", "wait-1", "wait-3", "wait-12"])
def test_names_round_trip(name: str) -> None:
    assert policy(name).name == name


def test_policies_by_name() -> None:
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
def test_wrong_names_are_errors_of_one_line(name: str, message: str) -> None:
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
def test_full_never_decides_to_write(counts: list[tuple[int, int]]) -> None:
    read, written = torch.tensor(counts).T
    decided = policy("full").start(read).write(standing(read, written))
    assert decided.dtype == torch.bool
    assert decided.tolist() == [False] * len(counts)


def test_a_registered_kind_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", kinds := dict(KINDS))
    monkeypatch.setattr(policy_spec, "KINDS", kinds)
    monkeypatch.setattr(registry, "FACTORIES", dict(registry.FACTORIES))
    with pytest.raises(UserError, match="policy 'half-2': unknown"):
        PolicySpec.parse("half-2")
    registry.register("half", lambda spec, _: WaitK(2 * spec.count), PolicyKind("count", usage="half-K"))
    spec = PolicySpec.parse("half-02")
    assert (str(spec), make_policy(spec, bare_context())) == ("half-2", WaitK(4))
    assert parse_live("half-2") == spec
    with pytest.raises(UserError, match="policy half-x: K must be a whole number from 1, as in half-3"):
        PolicySpec.parse("half-x")
    with pytest.raises(UserError, match="half-K"):
        PolicySpec.parse("quarter")
    for name in ("half", "wait", "a-b", "a.b"):
        with pytest.raises(ValueError, match="must be new"):
            registry.register(name, lambda spec, _: WaitK(spec.count))


@given(st.integers(1, 20), st.integers(1, 9), st.integers(1, 9), st.integers(0, 30))
def test_fixed_reads_are_the_same_for_integers_and_tensors(k: int, source: int, target: int, written: int) -> None:
    wanted = k + written * source // target
    assert fixed_reads(written, k, (source, target)) == wanted
    assert fixed_reads(torch.tensor([written]), k, (source, target)).tolist() == [wanted]


@pytest.mark.parametrize("threshold", [0.001, 0.3, 0.5, 0.6, 0.999])
def test_log_odds_invert_the_sigmoid(threshold: float) -> None:
    assert float(torch.tensor(to_log_odds(threshold), dtype=torch.float64).sigmoid()) == pytest.approx(threshold)
    assert to_log_odds(0.0) == -math.inf
    assert to_log_odds(1.0) == math.inf
