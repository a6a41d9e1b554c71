"""Training targets of the agent against spelled-out actions, and its steps one by one against all at once."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from whilst.core.settings import Agent as Settings
from whilst.core.settings import Search
from whilst.data.batches import Batch, pad_batch
from whilst.data.dataset import Split
from whilst.data.vocabulary import BOS, PAD
from whilst.model.agent import Action, Agent, Observation, Targets, loss, observe
from whilst.model.agent import targets as targets_of
from whilst.model.transformer import Translator
from whilst.search.binary_search import PathDecoder, search

FOUR = Search(intervals=((1, 4),), slope="one")
AGENTS = (
    Settings(kind="lstm", hidden=8),
    Settings(kind="gru", hidden=8),
    Settings(kind="linear", hidden=8),
    Settings(kind="lstm", hidden=8, inputs="embeddings"),
    Settings(kind="lstm", hidden=8, inputs="lookahead"),
)


def to_actions(reads: Sequence[int]) -> list[Action]:
    """The actions of one sentence: token i (from 1) is the WRITE at step g_i + i, all other steps are READs."""
    actions: list[Action] = []
    for before, needed in itertools.pairwise([0, *reads]):
        actions += [Action.READ] * (needed - before) + [Action.WRITE]
    return actions


def make_targets(
    model: Translator,
    batch: Batch,
    path: Tensor,
    own_words: bool,
    ahead: bool = False,
) -> Targets:
    return targets_of(batch, path, observe(model, batch, path, own_words, ahead))


@pytest.mark.parametrize("own_words", [True, False])
def test_targets_are_the_actions_of_the_reads(
    model: Translator, random_split: Callable[..., Split], own_words: bool
) -> None:
    batch = pad_batch(random_split(10, 4), np.arange(10))
    reads = search(model, batch, FOUR, 1)
    given = make_targets(model, batch, reads, own_words)
    decoder = PathDecoder(model, batch)
    words = decoder.predict(reads).token if own_words else batch.labels
    states = decoder.states(reads)
    for row in range(10):
        length, source_length = int((batch.labels[row] != PAD).sum()), int(batch.source_lengths[row, 0])
        actions = to_actions(reads[row, :length].tolist())
        read = written = 0
        for step, action in enumerate(actions):
            if step > 0:
                at = row, step - 1  # the first READ is given, so targets begin at the second step
                assert int(given.action[at]) == action
                assert bool(given.counts[at]) == (read < source_length)
                assert int(given.seen.source[at]) == int(batch.source[row, read - 1])
                assert int(given.seen.target[at]) == (int(words[row, written - 1]) if written else BOS)
                assert int(given.seen.action[at]) == actions[step - 1]
                torch.testing.assert_close(given.seen.source_state[at], decoder.encoded[row, read - 1])
                wrote = states[row, written - 1] if written else torch.zeros_like(states[row, 0])
                torch.testing.assert_close(given.seen.target_state[at], wrote)
            read, written = read + (action is Action.READ), written + (action is Action.WRITE)
        assert not bool(given.counts[row, len(actions) - 1 :].any()), "nothing comes after the last WRITE"


@pytest.mark.parametrize("settings", AGENTS, ids=lambda settings: f"{settings.kind}-{settings.inputs}")
def test_single_steps_equal_whole_sequences(
    model: Translator, random_split: Callable[..., Split], settings: Settings
) -> None:
    torch.manual_seed(1)
    agent = Agent(settings, model.settings.width, 3).double().eval()
    batch = pad_batch(random_split(4, 5), np.arange(4))
    seen = make_targets(model, batch, search(model, batch, FOUR, 1), True, ahead=True).seen
    assert seen.lookahead is not None
    interval = torch.tensor([0, 2, 1, 0])
    whole, _ = agent(model, seen, interval, agent.start(4))
    state = agent.start(4)
    for step in range(whole.shape[1]):
        now = Observation(
            *(part[:, step : step + 1] for part in (seen.source, seen.target, seen.action)),
            *(part[:, step : step + 1] for part in (seen.source_state, seen.target_state, seen.lookahead)),
        )
        odds, state = agent(model, now, interval, state)
        torch.testing.assert_close(odds[:, 0], whole[:, step])


def test_lookahead_states_equal_cached_ones(model: Translator, random_split: Callable[..., Split]) -> None:
    """At every step: the state that the cached model has for the next token, after so much was read and written."""
    batch = pad_batch(random_split(6, 12), np.arange(6))
    path = search(model, batch, FOUR, 1)
    given = make_targets(model, batch, path, True, ahead=True)
    assert given.seen.lookahead is not None
    plain = make_targets(model, batch, path, True)
    torch.testing.assert_close(given.seen.target_state, plain.seen.target_state)
    for row in range(6):
        reads = path[row, : int((batch.labels[row] != PAD).sum())].tolist()
        cache = model.start(1, batch.source.shape[1], len(reads))
        model.read(cache, batch.source[row : row + 1], batch.source_lengths[row, :1])
        read = written = 0
        for step, action in enumerate(to_actions(reads)):
            counts = torch.tensor([[int(batch.target[row, written])], [max(read, 1)]])
            state = model.lookahead(cache, *counts)
            if step > 0:
                torch.testing.assert_close(given.seen.lookahead[row, step - 1], state[0])
            if action is Action.WRITE:
                cache.commit(state, torch.tensor([True]))
            read, written = read + (action is Action.READ), written + (action is Action.WRITE)


def test_loss_counts_only_what_the_agent_decides(model: Translator, random_split: Callable[..., Split]) -> None:
    batch = pad_batch(random_split(6, 9), np.arange(6))
    given = make_targets(model, batch, search(model, batch, FOUR, 1), True)
    odds = torch.zeros_like(given.action, dtype=torch.float64)
    expected = float(given.counts.sum()) * float(torch.log(torch.tensor(2.0, dtype=torch.float64)))
    assert float(loss(odds, given, 0.1)) == pytest.approx(expected)
    wild = torch.where(given.counts, odds, 1e6)
    assert float(loss(wild, given, 0.1)) == pytest.approx(expected)


def test_an_agent_learns_its_targets(model: Translator, random_split: Callable[..., Split]) -> None:
    batch = pad_batch(random_split(12, 10), np.arange(12))
    given = make_targets(model, batch, search(model, batch, FOUR, 1), True)
    torch.manual_seed(1)
    agent = Agent(Settings(hidden=32, dropout=0.0), model.settings.width, 1).double()
    adam = torch.optim.Adam(agent.parameters(), lr=1e-2)
    interval = torch.zeros(12, dtype=torch.long)
    for _ in range(120):
        odds, _ = agent(model, given.seen, interval, agent.start(12))
        adam.zero_grad()
        loss(odds, given, 0.0).backward()  # type: ignore[no-untyped-call]
        adam.step()
    right = ((odds > 0).long() == given.action)[given.counts]
    assert float(right.double().mean()) > 0.95
