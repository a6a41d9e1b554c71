"""Pools: each session gets the words it would get alone, whatever other sessions do."""

import copy
import mmap
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st

from tests.helpers.decoding import policy
from tests.live.test_session import LETTERS, NAMES, make_policy, make_text
from whilst.core.settings import Model
from whilst.live.session import Event, Operation, Request, Session, SessionState, TextPipeline
from whilst.live.torch_backend import TorchBackend
from whilst.model.cache import lazy_zeros
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.learnt import AgentPolicy
from whilst.server import torch_pool
from whilst.server.served import Pool, SinglePool
from whilst.server.torch_pool import BatchPool

SLOTS = 4
TEXT = make_text(longest=12, guarded=True)
words = st.lists(st.text(LETTERS, min_size=1, max_size=3), max_size=8)
talks = st.lists(st.tuples(st.sampled_from(NAMES), words), min_size=1, max_size=9)


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    """So that slots are computed in several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_pool, "PART", 2)
        yield


@pytest.fixture(scope="module")
def policies(model: Translator) -> dict[str, Policy]:
    return {name: make_policy(model, name) for name in NAMES}


def batched(model: Translator, policies: dict[str, Policy], text: TextPipeline = TEXT) -> BatchPool:
    return BatchPool(model, policies.__getitem__, SLOTS, *text.longest)


def torch_backend(model: Translator, chosen: Policy, text: TextPipeline = TEXT) -> TorchBackend:
    return TorchBackend(model, chosen, *text.longest)


def alone(steps: TorchBackend, talk: list[str], text: TextPipeline = TEXT) -> list[Event]:
    session = Session(steps, text)
    return [event for word in talk for event in session.feed(word)] + session.finish()


class Talk:
    """A session in a slot, fed word by word."""

    def __init__(self, pool: Pool, slot: int, name: str, words: list[str]) -> None:
        self.slot, self.words = slot, list(words)
        self.script = SessionState(TEXT)
        self.events: list[Event] = []
        self.done = False
        pool.use(slot, name)

    def tell(self) -> None:
        """The next word, or the end; only when all that was told is done."""
        if self.words:
            self.script.add_words(self.words.pop(0))
        else:
            self.script.end_sentence()
            self.done = True
        self.events += self.script.close_finished()


def together(pool: Pool, talks: list[tuple[str, list[str]]], turn: Callable[[int], int]) -> list[list[Event]]:
    """At each turn the talks choose at random whether they take part; who is finished makes room for another."""
    waiting = list(enumerate(talks))
    running: dict[int, Talk] = {}
    free = list(range(SLOTS))
    events: list[list[Event]] = [[] for _ in talks]
    while waiting or running:
        if waiting and free and turn(2):
            number, (name, words) = waiting.pop(0)
            running[number] = Talk(pool, free.pop(), name, words)
        for number, talk in list(running.items()):
            if talk.script.next_request() is None and turn(2):
                if talk.done:
                    events[number] = talk.events
                    free.append(running.pop(number).slot)
                else:
                    talk.tell()
        for step in Operation:
            asks = {
                n: ask
                for n, talk in running.items()
                if (ask := talk.script.next_request()) and ask.operation is step
            }
            chosen = {n: ask for n, ask in asks.items() if turn(3)}
            if chosen:
                results = pool.do([(running[n].slot, ask) for n, ask in chosen.items()])
                for (number, ask), result in zip(chosen.items(), results, strict=True):
                    running[number].events += running[number].script.handle_result(ask, result)
    return events


@given(talks=talks, seed=st.integers(0, 1000))
@limit(max_examples=60)
def test_batched_sessions_equal_single_ones(
    model: Translator, policies: dict[str, Policy], talks: list[tuple[str, list[str]]], seed: int
) -> None:
    found = together(batched(model, policies), talks, Random(seed).randrange)
    assert found == [alone(torch_backend(model, policies[name]), words) for name, words in talks]


@given(talks=talks, seed=st.integers(0, 1000))
@limit(max_examples=10)
def test_single_pool_equals_sessions(
    model: Translator, policies: dict[str, Policy], talks: list[tuple[str, list[str]]], seed: int
) -> None:
    pool = SinglePool(lambda name: torch_backend(model, policies[name]))
    found = together(pool, talks, Random(seed).randrange)
    assert found == [alone(torch_backend(model, policies[name]), words) for name, words in talks]


def test_latencies_of_one_agent_share_a_call(model: Translator, policies: dict[str, Policy]) -> None:
    first = policies["lookahead"]
    assert isinstance(first, AgentPolicy)
    agent = copy.deepcopy(first.agent)
    with torch.no_grad():
        agent.latency.weight.mul_(9)  # so that it matters
    both: dict[str, Policy] = {name: replace(first, agent=agent, interval=n) for n, name in enumerate("ab")}
    calls: list[int] = []
    hook = agent.register_forward_pre_hook(lambda _, arguments: calls.append(len(arguments[2])))
    talk = [*"abcdefg"]
    try:
        pool = batched(model, both)
        found = together(pool, [("a", talk), ("b", talk)], lambda _: 1)
    finally:
        hook.remove()
    assert max(calls) == 2
    assert found == [alone(torch_backend(model, both[name]), talk) for name in "ab"]
    assert found[0] != found[1], "the latency matters"


def test_monotone_heads(tiny: Model, translator: Callable[..., Translator]) -> None:
    model = translator(replace(tiny, cross="monotone"))
    chosen = {"mma": policy("mma")}
    talks = [("mma", ["abc", "d", "em", "f"]), ("mma", ["g", "hij", "km"]), ("mma", ["ab"]), ("mma", [*"abcdefm"])]
    found = together(batched(model, chosen), talks, Random(3).randrange)
    assert found == [alone(torch_backend(model, chosen["mma"]), words) for _, words in talks]


def test_only_slots_with_work_are_computed(model: Translator, policies: dict[str, Policy]) -> None:
    pool = batched(model, policies)
    rows: list[int] = []
    hook = model.encoder[0].register_forward_pre_hook(lambda _, arguments: rows.append(len(arguments[0])))
    try:
        for slot in range(3):
            pool.use(slot, "wait-1")
        pool.do([(0, Request(Operation.BEGIN)), (1, Request(Operation.BEGIN)), (2, Request(Operation.BEGIN))])
        pool.do([(0, Request(Operation.READ, 5)), (2, Request(Operation.READ, 6))])
    finally:
        hook.remove()
    assert rows == [2]


def test_deciders_of_unused_policies_are_freed(model: Translator) -> None:
    pool = BatchPool(model, policy, SLOTS, 8, 8)
    for k in range(1, 50):
        pool.use(0, f"wait-{k}")
        pool.do([(0, Request(Operation.BEGIN))])
    assert len(pool._deciders) == 1


def test_a_failed_call_can_be_repeated_for_fewer_slots(
    model: Translator, policies: dict[str, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that the model does not know, after one that it does."""
    monkeypatch.setattr(torch_pool, "PART", 1)
    pool = batched(model, policies)
    for slot in (0, 1):
        pool.use(slot, "wait-1")
    pool.do([(0, Request(Operation.BEGIN)), (1, Request(Operation.BEGIN))])
    with pytest.raises(IndexError):
        pool.do([(0, Request(Operation.READ, 5)), (1, Request(Operation.READ, 999))])
    pool.do([(0, Request(Operation.READ, 5))])
    assert pool.state.cache.read.tolist()[:2] == [1, 0]
    steps = torch_backend(model, policies["wait-1"])
    steps.run(Request(Operation.BEGIN))
    steps.run(Request(Operation.READ, 5))
    assert pool.do([(0, Request(Operation.WRITE))]) == [steps.run(Request(Operation.WRITE))]


def test_kernels_without_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Strict)
    assert lazy_zeros((2, 3), torch.float32).tolist() == [[0.0] * 3] * 2
