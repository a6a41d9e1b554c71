"""The engine against PyTorch: the same numbers and the same words in fp32, nearly so in int8."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import UNITS, make_model, make_split
from tests.policy.test_learnt import learnt
from whilst.core.errors import UserError
from whilst.core.settings import Agent, Limits, Model
from whilst.data.vocabulary import BOS, EOS
from whilst.decoding.batched import translate_batch
from whilst.decoding.output import Output
from whilst.engine import runtime
from whilst.engine.export import make_engine
from whilst.engine.graphs import Graph
from whilst.engine.runtime import Engine, EngineAgent, EngineSession, Floats
from whilst.model.agent import Observation
from whilst.model.transformer import Translator
from whilst.policy.fixed import WaitK

LIMITS = Limits(1.5, 4)
AGENTS = (
    Agent(kind="lstm", hidden=8, inputs="embeddings"),
    Agent(kind="lstm", hidden=8, inputs="states"),
    Agent(kind="lstm", hidden=8, inputs="lookahead"),
    Agent(kind="gru", hidden=8, inputs="states"),
    Agent(kind="linear", hidden=8, inputs="lookahead"),
)


@pytest.fixture(scope="module", params=["pre", "post"])
def pair(request: pytest.FixtureRequest, tiny: Model) -> tuple[Translator, Engine]:
    model = make_model(replace(tiny, norm=request.param))
    return model, make_engine(model, None, "fp32")


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they grow more than once."""
    monkeypatch.setattr(runtime, "FIRST_CAPACITY", 2)


def assert_near(found: Floats, expected: torch.Tensor) -> None:
    """Float against double."""
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=2e-5)


Action = tuple[str, int]  # read, look or write; a token


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["read", "read", "look", "write"]), st.integers(4, 12)),
        max_size=40,
    )
)
def test_any_order_of_calls_gives_the_translators_numbers(
    pair: tuple[Translator, Engine], actions: list[Action]
) -> None:
    model, engine = pair
    session = EngineSession(engine)
    cache = model.start(1, 41, 41)
    last = BOS
    one = torch.ones(1, dtype=torch.long)
    with torch.inference_mode():
        for kind, token in [("read", 5), *actions]:
            if kind == "read":
                model.read(cache, one[None] * token, one)
                expected = cache.encoded[0, int(cache.read) - 1]
                assert_near(session.read(token), expected)
                continue
            states = model.lookahead(cache, one * last, one * session.read_count)
            assert_near(session.lookahead(), states[0])
            assert_near(session.logits(), model.logits(states)[0])
            if kind == "write":
                cache.commit(states, one.bool())
                session.commit(token)
                assert_near(session.decoded, cache.decoded[0])
                last = token
            assert (session.read_count, session.written_count) == (int(cache.read), int(cache.written))


def live(
    engine: Engine, source: list[int], wants: Callable[[EngineSession], Callable[[], bool]]
) -> tuple[list[int], list[int]]:
    """Units and reads of one sentence; `wants` makes of a session what says whether to WRITE."""
    session = EngineSession(engine)
    write = wants(session)
    session.read(source[0])
    units: list[int] = []
    reads: list[int] = []
    while True:
        wanted = write()  # asked after every action, also where the answer does not matter
        if not wanted and session.read_count < len(source):
            session.read(source[session.read_count])
            continue
        unit = session.next_token()
        session.commit(unit)
        reads.append(session.read_count)
        if unit != EOS:
            units.append(unit)
        if unit == EOS or len(reads) >= LIMITS.of(len(source)):
            return units, reads


def essence(outputs: list[Output]) -> list[tuple[list[int], list[int]]]:
    return [(output.units, output.reads) for output in outputs]


def test_words_under_wait_k_are_pytorchs(pair: tuple[Translator, Engine]) -> None:
    model, engine = pair
    split = make_split(30, 5, longest=20)
    sources = [split.source[i].tolist() for i in range(30)]
    mine = [live(engine, source, lambda s: lambda: s.read_count - s.written_count >= 3) for source in sources]
    assert mine == essence(translate_batch(model, sources, WaitK(3), LIMITS))
    assert len({tuple(units) for units, _ in mine}) > 15  # or every sentence became the same


@pytest.mark.parametrize("kind", AGENTS, ids=lambda kind: f"{kind.kind}-{kind.inputs}")
def test_the_agent_decides_as_pytorchs(model: Translator, kind: Agent) -> None:
    policy = learnt(model, kind)
    engine = make_engine(model, policy.agent, "fp32")
    split = make_split(12, 21)
    sources = [split.source[i].tolist() for i in range(12)]

    def wants(session: EngineSession) -> Callable[[], bool]:
        deciding = EngineAgent(session, interval=1)
        return lambda: deciding.log_odds() >= 0

    mine = [live(engine, source, wants) for source in sources]
    assert mine == essence(translate_batch(model, sources, policy, LIMITS))


@pytest.mark.parametrize("kind", AGENTS, ids=lambda kind: f"{kind.kind}-{kind.inputs}")
def test_the_agents_odds_are_pytorchs(model: Translator, kind: Agent) -> None:
    policy = learnt(model, kind)
    engine = make_engine(model, policy.agent, "fp32")
    session = EngineSession(engine)
    deciding = EngineAgent(session, interval=1)
    state = policy.agent.start(1)
    random = np.random.default_rng(4)

    def vector(values: Floats) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.double)[None, None]

    for step in range(25):
        wrote = step > 0 and bool(random.integers(2))
        if wrote:
            session.lookahead()
            session.commit(int(random.integers(4, UNITS[1])))
        else:
            session.read(int(random.integers(4, UNITS[0])))
        ahead = session.lookahead()
        source, target, action = (
            torch.tensor([[n]]) for n in (session.last_read, session.last_written, int(wrote))
        )
        states = vector(session.encoded), vector(session.decoded), vector(ahead)
        seen = Observation(source, target, action, *states)
        with torch.inference_mode():
            odds, state = policy.agent(model, seen, torch.ones(1, dtype=torch.long), state)
        assert deciding.log_odds() == pytest.approx(float(odds), rel=1e-3, abs=1e-3)


def test_sessions_do_not_meet(pair: tuple[Translator, Engine]) -> None:
    _, engine = pair
    alone = EngineSession(engine)
    for token in (4, 5, 6):
        alone.read(token)
    expected = alone.lookahead()
    first, second = EngineSession(engine), EngineSession(engine)
    for token in (4, 5, 6):
        first.read(token)
        second.read(token + 5)
        second.lookahead()
        second.commit(7)
    assert (first.lookahead() == expected).all()


def test_sessions_run_in_threads_of_their_own(pair: tuple[Translator, Engine]) -> None:
    _, engine = pair

    def work(number: int) -> list[int]:
        return live(engine, [4 + number, 5, *range(4, 17)], lambda s: lambda: s.read_count > s.written_count)[0]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(12))) == [work(number) for number in range(12)]


def test_eight_bits_are_nearly_enough(tiny: Model) -> None:
    """The larger the model, the nearer: this one is small."""
    model = make_model(replace(tiny, width=64, heads=4, feed_forward=128), seed=5)
    exact, rough = make_engine(model, None, "fp32"), make_engine(model, None, "int8")
    random = np.random.default_rng(6)
    same = []
    one, other = EngineSession(exact), EngineSession(rough)
    for _ in range(60):
        token = int(random.integers(4, UNITS[0]))
        one.read(token)
        other.read(token)
        states = one.lookahead(), other.lookahead()
        cosine = float(states[0] @ states[1] / np.linalg.norm(states[0]) / np.linalg.norm(states[1]))
        assert cosine > 0.99
        assert cosine < 0.9999999  # else it was not int8
        logits = one.logits()
        same.append(logits.argmax() == other.logits().argmax())
        unit = int(logits.argmax())
        one.commit(unit)
        other.commit(unit)
    assert np.mean(same) > 0.9


def test_weights_of_eight_bits_are_off_by_half_a_step() -> None:
    random = np.random.default_rng(3)
    weight = random.normal(size=(6, 40)).astype(np.float32) * np.array([1, 0.01, 100, 1, 0, 1], np.float32)[:, None]
    value = random.normal(3, size=(1, 40)).astype(np.float32)  # not around 0, where a wrong zero would be lost
    graph = Graph("one", int8=True)
    graph.output("out", graph.linear(graph.input("in", 1, 40), weight, np.ones(6, np.float32)), 1, 6)
    (found,) = runtime.load_graph(graph.serialise()).run(None, {"in": value})
    input_step, weight_step = value.max() / 255, np.abs(weight).max(1) / 127
    bound = np.abs(weight).sum(1) * input_step / 2 + np.abs(value).sum() * weight_step / 2
    error = np.abs(found[0] - (value @ weight.T)[0] - 1)
    assert (error <= bound * 1.05 + 1e-6).all()
    assert error[0] > 0


@pytest.mark.parametrize("vnni", [False, True])
def test_products_of_integers_are_exact_on_every_cpu(vnni: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of 16 bits would overflow: 255 * 127 * 2."""
    if vnni and not runtime.has_vnni():
        pytest.skip("this CPU has no VNNI")
    monkeypatch.setattr(runtime, "has_vnni", lambda: vnni)
    graph = Graph("one", int8=True)
    signs = np.array([[1], [-1]], np.float32)
    graph.output("out", graph.linear(graph.input("in", 1, 64), np.tile(signs, 64)), 1, 2)
    value = np.full((1, 64), 255, np.float32)
    (found,) = runtime.load_graph(graph.serialise()).run(None, {"in": value})
    np.testing.assert_allclose(found[0], 255 * 64 * signs[:, 0], rtol=1e-6)


def test_the_engine_runs_without_torch() -> None:
    code = "import sys, whilst.engine; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_sentence_that_is_too_long_is_refused(pair: tuple[Translator, Engine]) -> None:
    _, engine = pair
    session = EngineSession(Engine({**engine.tables, "positions": engine.tables["positions"][:3]}, engine.graphs))
    for _ in range(3):
        session.read(5)
    with pytest.raises(UserError, match="too long"):
        session.read(5)


def test_what_makes_no_sense_is_not_done(pair: tuple[Translator, Engine]) -> None:
    session = EngineSession(pair[1])
    with pytest.raises(AssertionError, match="call read first"):
        session.lookahead()
    session.read(5)
    for token in (-1, UNITS[0]):
        with pytest.raises(ValueError, match="there are only 17"):
            session.read(token)
