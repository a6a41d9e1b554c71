"""Steady steps, as a GPU records them: several READs in one, the same words and reads as in the plain loop."""

import functools
from typing import Literal, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st

from tests.conftest import UNITS, make_model
from whilst.agent import Agent
from whilst.decode import LOOKS, Output, translate_batch
from whilst.model import Translator
from whilst.policy.agent import Learnt
from whilst.settings import Agent as Settings
from whilst.settings import Limits, Model
from whilst.vocab import EOS

Kind = Literal["lstm", "gru", "linear"]
Inputs = Literal["embeddings", "states", "ahead"]
sources = st.lists(
    st.integers(0, 14).flatmap(lambda n: st.lists(st.integers(EOS + 1, UNITS[0] - 1), min_size=n, max_size=n)),
    min_size=1,
    max_size=7,
).map(lambda rows: [[*row, EOS] for row in rows])


def written(outputs: list[Output]) -> list[tuple[list[int], list[int]]]:
    """Units and reads; times differ."""
    return [(output.units, output.reads) for output in outputs]


@functools.cache
def undecided(model: Translator, kind: Kind, inputs: Inputs, seed: int) -> Agent:
    """A random agent whose odds go up and down as it reads and writes."""
    torch.manual_seed(seed)
    agent = Agent(Settings(kind=kind, hidden=8, inputs=inputs), model.settings.width, 2).double().eval()
    with torch.no_grad():
        agent.tokens.weight.mul_(5)
        agent.action.weight.mul_(0.1)  # or it would do for ever what it did last
        agent.out.weight.mul_(4)
    return agent


@pytest.mark.parametrize("inputs", get_args(Inputs))
@pytest.mark.parametrize("kind", get_args(Kind))
@given(data=st.data(), rows=sources, seed=st.integers(0, 9), threshold=st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.95]))
@limit(max_examples=8)
def test_several_reads_in_a_step_change_nothing(
    model: Translator,
    kind: Kind,
    inputs: Inputs,
    data: st.DataObject,
    rows: list[list[int]],
    seed: int,
    threshold: float,
) -> None:
    policy = Learnt("agent", undecided(model, kind, inputs, seed), model, seed % 2, threshold)
    limits = data.draw(st.sampled_from([Limits(1.5, 4), Limits(0.5, 1), Limits(0, 1)]))
    plain = written(translate_batch(model, rows, policy, limits, steady=False))
    assert written([translate_batch(model, [row], policy, limits, steady=False)[0] for row in rows]) == plain
    assert written(translate_batch(model, rows, policy, limits, steady=True)) == plain


@pytest.mark.parametrize("inputs", get_args(Inputs))
def test_the_tests_would_notice(model: Translator, sources: list[list[int]], inputs: Inputs) -> None:
    """Agents READ once, several times, and more often in a row than one step allows."""
    waits = set()
    for seed in range(10):
        policy = Learnt("agent", undecided(model, "lstm", inputs, seed), model, 0, 0.7)
        for output in translate_batch(model, sources, policy, Limits(1.5, 4)):
            waits |= {after - before for before, after in zip([1, *output.reads], output.reads, strict=False)}
    assert waits >= {0, 1, 2, LOOKS, LOOKS + 1}


def test_looks_at_once_are_looks_one_by_one() -> None:
    """What they see, and what the one that is chosen leaves behind."""
    model = make_model(Model(width=16, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=24), seed=5)
    source = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, 0, 0]])
    lengths, chosen = torch.tensor([5, 3]), torch.tensor([2, 0])
    once, one = (model.start(2, 5, 4, looks=3) for _ in range(2))
    for cache in (once, one):
        model.read(cache, source, lengths)
    for last in (torch.tensor([1, 1]), torch.tensor([5, 7])):
        reads = torch.minimum(torch.tensor([[1, 2, 3], [1, 2, 3]]), lengths[:, None])
        looked = model.looks(once, last, reads)
        for look in range(3):
            torch.testing.assert_close(looked[:, look], model.look(one, last, reads[:, look]))
        once.settle(chosen)
        once.commit(looked[torch.arange(2), chosen], torch.tensor([True, True]))
        one.commit(model.look(one, last, reads[torch.arange(2), chosen]), torch.tensor([True, True]))
    for left, right in zip(once.decoder, one.decoder, strict=True):
        torch.testing.assert_close(left[..., :2, :], right[..., :2, :])
