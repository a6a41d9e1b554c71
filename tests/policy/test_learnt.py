"""Policies with state: agent and oracle decide alike in batches, alone, token by token, and recomputed."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import pytest
import torch

from tests.conftest import make_split
from tests.helpers.decoding import translate_online, translate_recomputed
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Agent as Settings
from whilst.core.settings import Limits, Search
from whilst.data.batches import pad_batch
from whilst.data.dataset import Split
from whilst.decoding.batched import Decoding, translate, translate_batch
from whilst.decoding.output import Output
from whilst.model.agent import Agent, observe, targets
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.fixed import Oracle
from whilst.policy.learnt import AgentPolicy
from whilst.search.binary_search import search

Kind = Literal["lstm", "gru", "linear"]
LIMITS = Limits(1.5, 4)
FOUR = Search(intervals=((1, 4),), slope="one")
KINDS = (
    Settings(kind="lstm", hidden=8),
    Settings(kind="gru", hidden=8),
    Settings(kind="linear", hidden=8),
    *(Settings(kind=kind, hidden=8, inputs="lookahead") for kind in get_args(Kind)),
)


def learnt(model: Translator, settings: Settings) -> AgentPolicy:
    """A random agent that cares, and READs about as often as it WRITEs."""
    torch.manual_seed(3)
    agent = Agent(settings, model.settings.width, 2).double().eval()
    batch = pad_batch(make_split(20, 20), np.arange(20))
    path = search(model, batch, FOUR, 1)
    seen = targets(batch, path, observe(model, batch, path, own_words=True, lookahead=True)).seen
    with torch.no_grad():
        agent.tokens.weight.mul_(5)
        agent.action.weight.mul_(0.1)  # or it would do for ever what it did last
        odds, _ = agent(model, seen, torch.ones(20, dtype=torch.long), agent.start(20))
        agent.out.bias.sub_(odds.median())
    return AgentPolicy(PolicySpec("agent"), agent, model, interval=1)


Essence = list[tuple[list[int], list[int]]]


def essence(outputs: Sequence[Output]) -> Essence:
    return [(output.units, output.reads) for output in outputs]


def three_ways(model: Translator, sources: list[list[int]], policy: Policy) -> tuple[Essence, Essence, Essence]:
    alone = [translate_batch(model, [source], policy, LIMITS, [n])[0] for n, source in enumerate(sources)]
    live = [translate_online(model, source, policy, LIMITS, n) for n, source in enumerate(sources)]
    graphed = Decoding(model, policy, LIMITS, len(sources), graphed=True).translate(sources)
    assert essence(graphed) == essence(alone)
    for batch in (1, 5):
        assert essence(Decoding(model, policy, LIMITS, batch, graphed=True).translate(sources)) == essence(alone)
    return essence(translate(model, sources, policy, LIMITS, 5)), essence(alone), essence(live)


@pytest.mark.parametrize("settings", KINDS, ids=lambda settings: f"{settings.kind}-{settings.inputs}")
def test_agents_decide_alike_in_all_decoders(
    model: Translator, sources: list[list[int]], settings: Settings
) -> None:
    policy = learnt(model, settings)
    batched, alone, live = three_ways(model, sources, policy)
    assert batched == alone == live
    assert batched == essence([translate_recomputed(model, source, policy, LIMITS) for source in sources])
    waits = [g[i + 1] - g[i] for _, g in batched for i in range(len(g) - 1)]
    assert len(set(waits)) > 1, "an agent that always does the same shows nothing"


def test_a_higher_threshold_reads_more(model: Translator, sources: list[list[int]]) -> None:
    base = learnt(model, KINDS[0])
    means = []
    for threshold in (0.0, 0.5, 1.01):
        policy = AgentPolicy(PolicySpec("agent"), base.agent, model, 1, threshold)
        outputs = translate(model, sources, policy, LIMITS, 4)
        shares = (np.mean(output.reads) / len(s) for output, s in zip(outputs, sources, strict=True))
        means.append(np.mean(list(shares)))
    assert means[0] < means[1] < means[2] == 1.0


def test_decoding_follows_the_oracle(model: Translator, random_split: Callable[..., Split]) -> None:
    split = random_split(9, 22)
    sources = [split.source[i].tolist() for i in range(9)]
    found = search(model, pad_batch(split, np.arange(9)), FOUR, 1).tolist()
    lengths = split.target.lengths.tolist()
    reads = [row[:length] for row, length in zip(found, lengths, strict=True)]
    batched, alone, live = three_ways(model, sources, Oracle(PolicySpec("oracle"), reads))
    assert batched == alone == live
    for (_, given), wanted, source in zip(batched, reads, sources, strict=True):
        assert given[: len(wanted)] == wanted[: len(given)]
        assert all(g == len(source) for g in given[len(wanted) :]), "past the reference everything is read"
