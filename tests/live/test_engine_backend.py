"""Live on the engine: PyTorch's words and reads in fp32 under every policy, for ever, in the same memory."""

import sys
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st

from tests.helpers.decoding import policy
from tests.live.test_session import LETTERS, LIMITS, encode, guides, make_text
from tests.policy.test_learnt import learnt
from whilst.core.errors import UserError
from whilst.core.policy_spec import KINDS, PolicySpec
from whilst.core.settings import Agent, Evaluate
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import translate_batch
from whilst.engine import runtime
from whilst.engine.export import make_engine
from whilst.engine.runtime import Engine
from whilst.evaluation.trace import find_problem
from whilst.live.engine_backend import EngineBackend, Rule, make_rule
from whilst.live.evaluate_export import RecordingSession, translate_live
from whilst.live.session import SentenceEnd, Session
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.fixed import Diagonal
from whilst.policy.learnt import AgentPolicy
from whilst.policy.patient import Patient
from whilst.policy.registry import FACTORIES

parse = PolicySpec.parse

PACE = 3, 2
AGENTS = [PolicySpec("agent", "1"), PolicySpec("agent", "3")]
NAMES = ["wait-1", "wait-3", "full", "diagonal-2", "agent-1", "agent-3"]
words = st.lists(st.text(LETTERS[:-1], min_size=1, max_size=4), max_size=9)


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they grow more than once."""
    monkeypatch.setattr(runtime, "FIRST_CAPACITY", 2)


@pytest.fixture(scope="module", params=["embeddings", "states", "lookahead"])
def both(request: pytest.FixtureRequest, model: Translator) -> tuple[AgentPolicy, Engine]:
    agent = learnt(model, Agent(kind="lstm", hidden=8, inputs=request.param))
    return agent, make_engine(model, agent.agent, "fp32")


def pytorchs(name: str, agent: AgentPolicy, threshold: float) -> Policy:
    spec = parse(name)
    if spec in AGENTS:
        return replace(agent, interval=AGENTS.index(spec), threshold=threshold)
    return Diagonal(2, PACE) if name == "diagonal-2" else policy(name)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("ending", ["free", "patient"])
@pytest.mark.parametrize("name", NAMES)
@given(talk=st.lists(words, min_size=1, max_size=5), threshold=st.sampled_from([0.0, 0.3, 0.5, 0.6, 1.0]))
@limit(max_examples=6)
def test_sessions_equal_pytorch(
    both: tuple[AgentPolicy, Engine],
    name: str,
    ending: Literal["free", "patient"],
    guarded: bool,
    talk: list[list[str]],
    threshold: float,
) -> None:
    agent, engine = both
    text = make_text(guarded=guarded)
    sentences = [[*sentence, "m"] for sentence in talk]
    settings = Evaluate(threshold=threshold, ending=ending)
    backend = EngineBackend(engine, make_rule(parse(name), AGENTS, settings, PACE))
    session = RecordingSession(backend, text)
    events = [event for sentence in sentences for word in sentence for event in session.feed(word)]
    sources = [encode(text, sentence) for sentence in sentences]
    chosen = pytorchs(name, agent, threshold)
    chosen = Patient(chosen, agent.model.logits) if ending == "patient" else chosen
    wanted = translate_batch(agent.model, sources, chosen, LIMITS, writers=guides(text, sentences))
    assert [read for _, read in session.writes] == [read for one in wanted for read in one.reads]
    units = [unit for unit, _ in session.writes if unit != EOS]
    assert units == [unit for one in wanted for unit in one.units]
    assert [event.length for event in events if isinstance(event, SentenceEnd)] == list(map(len, sentences))


def test_each_line_is_one_sentence(both: tuple[AgentPolicy, Engine]) -> None:
    """A mark that ends a sentence elsewhere, or a comma in a long line, ends none here."""
    agent, engine = both
    text = make_text(longest=9)
    lines = ["ab m cd", "abc abc abc abc, abc abc abc", "m"]
    backend = EngineBackend(engine, make_rule(parse("agent-3"), AGENTS, Evaluate(), None))
    found = list(translate_live(backend, text, lines, ["x", "y z", "x"]))
    sources = [encode(text, line.split()) for line in lines]
    wanted = translate_batch(agent.model, sources, pytorchs("agent-3", agent, 0.5), LIMITS)
    assert [one.prediction for one in found] == [" ".join(text.target.decode(output.units)) for output in wanted]
    assert [one.source_length for one in found] == [3, 7, 1]
    for sentence, source, output in zip(found, sources, wanted, strict=True):
        reads = [min(g, len(source) - 1) for g in output.reads][: len(output.units)]
        assert list(sentence.reads) == reads
        assert not find_problem(sentence)


def capacities(steps: EngineBackend) -> list[int]:
    """The number of columns that a session's buffers have room for."""
    session = steps.session
    return [len(buffer.mask) for buffer in (session._encoder, session._source, session._decoder)]


@pytest.mark.parametrize("name", ["wait-1", "agent-3"])
def test_memory_stays_constant_over_two_thousand_sentences(model: Translator, name: str) -> None:
    agent = learnt(model, Agent(kind="lstm", hidden=8, inputs="lookahead")).agent
    text = make_text(longest=20, target="word")
    steps = EngineBackend(make_engine(model, agent, "fp32"), make_rule(parse(name), AGENTS, Evaluate(), None))
    session = Session(steps, text)
    random = np.random.default_rng(3)
    ends, largest = 0, [0, 0]  # capacity during the first, long sentence, and during the others
    for number, length in enumerate([19, *random.integers(1, 4, 1999)]):
        talk = [LETTERS[n] for n in random.integers(0, 12, length)]
        ends += sum(isinstance(event, SentenceEnd) for word in talk for event in session.feed(word))
        largest[number > 0] = max(largest[number > 0], *capacities(steps))
        ends += sum(isinstance(event, SentenceEnd) for event in session.finish())
        if number == 1000:
            blocks = sys.getallocatedblocks()
    assert ends == 2000
    assert largest[0] > 19
    assert largest[1] < largest[0], "the memory of the long sentence is given back"
    assert sys.getallocatedblocks() - blocks < 500, "not half an object for a sentence"
    session.feed("a")
    assert capacities(steps)[0] == runtime.FIRST_CAPACITY


def test_rules_of_policies() -> None:
    assert make_rule(parse("wait-4"), [], Evaluate(), None) == Rule(4)
    assert make_rule(parse("diagonal-2"), [], Evaluate(), PACE) == Rule(2, PACE)
    assert make_rule(parse("agent-3"), AGENTS, Evaluate(threshold=0.4), None) == Rule(interval=1, threshold=0.4)
    patient = Evaluate(ending="patient")
    assert make_rule(parse("wait-4"), [], patient, None) == Rule(4, is_patient=True)
    assert make_rule(parse("diagonal-2"), [], patient, PACE) == Rule(2, PACE, is_patient=True)
    assert make_rule(parse("agent-3"), AGENTS, patient, None) == Rule(interval=1, is_patient=True)
    named = make_rule(parse("agent-3.threshold-0.7"), AGENTS, Evaluate(threshold=0.4), None)
    assert named == Rule(interval=1, threshold=0.7)


@pytest.mark.parametrize(
    ("name", "agents", "message"),
    [
        ("wait-0", [], "policy wait-0: K must be a whole number"),
        ("wait-99999999999999999999", [], "policy wait-99999999999999999999: K must"),
        ("wait-" + 5000 * "9", [], "policy wait-9{40}: K must"),
        ("agent-1.threshold-7", AGENTS, "agent-1.threshold-7: a threshold is a number from 0 to 1"),
        ("agent-1.threshold-nan", AGENTS, "a threshold is a number from 0 to 1"),
        ("agent-1.threshold-", AGENTS, "a threshold is a number from 0 to 1"),
        ("diagonal-x", [], "policy diagonal-x: K must"),
        ("diagonal-2", [], "length ratio is not known"),
        ("full-2", [], "full-2: full takes no argument"),
        ("mma", [], "others need PyTorch"),
        ("agent-1", [], "there is no agent"),
        ("agent-2", AGENTS, "knows agent-1, agent-3"),
    ],
)
def test_policies_without_rules_are_errors(name: str, agents: list[PolicySpec], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_rule(parse(name), agents, Evaluate(), None)


def test_every_kind_has_a_factory() -> None:
    assert FACTORIES.keys() == KINDS.keys()
