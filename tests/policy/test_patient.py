"""Translations that may not end before their source: every way to decode READs on in the same places."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as limit

from tests.decoding.test_graphed import sources as rows_of
from tests.decoding.test_graphed import undecided
from tests.helpers.decoding import BySentence, policy, translate_online, translate_recomputed, written
from tests.live.test_session import LIMITS, Recording, assert_as_batched, make_text
from tests.policy.test_learnt import learnt
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Agent, Evaluate, Limits
from whilst.decoding import batched
from whilst.decoding.batched import translate_batch
from whilst.evaluation.identity import Decoding
from whilst.live.session import Session
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.fixed import Diagonal
from whilst.policy.learnt import AgentPolicy
from whilst.policy.patient import Patient

NAMES = ["wait-1", "wait-3", "diagonal", "by-sentence", "states", "lookahead", "linear"]


def make_policy(model: Translator, name: str) -> Policy:
    match name:
        case "diagonal":
            return Diagonal(2, (3, 2))
        case "by-sentence":
            return BySentence()
        case "states" | "lookahead":
            return AgentPolicy(PolicySpec("agent"), undecided(model, "lstm", name, 3), model, 0, 0.3)
        case "linear":
            return AgentPolicy(PolicySpec("agent"), undecided(model, "linear", "lookahead", 3), model, 0, 0.3)
    return policy(name)


@pytest.mark.parametrize("name", NAMES)
@given(rows=rows_of)
@limit(max_examples=12)
def test_all_decoders_agree(model: Translator, name: str, rows: list[list[int]]) -> None:
    limits, free = Limits(1.5, 4), make_policy(model, name)
    patient = Patient(free, model.logits)
    found = written(translate_batch(model, rows, patient, limits))
    assert written(batched.Decoding(model, patient, limits, len(rows), graphed=True).translate(rows)) == found
    online = [translate_online(model, row, patient, limits, n) for n, row in enumerate(rows)]
    assert written(online) == found
    if name != "by-sentence":
        assert written([translate_recomputed(model, row, patient, limits) for row in rows]) == found
    for row, (units, reads) in zip(rows, found, strict=True):
        assert reads[-1] == len(row) or len(units) == limits.of(len(row)), "ended, or was cut"


@pytest.mark.parametrize("name", NAMES)
def test_only_early_ends_change(model: Translator, sources: list[list[int]], name: str) -> None:
    limits, free = Limits(1.5, 4), make_policy(model, name)
    ended = translate_batch(model, sources, free, limits)
    waited = translate_batch(model, sources, Patient(free, model.logits), limits)
    early = 0
    for row, before, after in zip(sources, ended, waited, strict=True):
        if len(before.reads) == len(before.units) or before.reads[-1] == len(row):
            assert (before.units, before.reads) == (after.units, after.reads)
        else:
            early += 1
            count = len(before.units)
            assert (after.units[:count], after.reads[:count]) == (before.units, before.reads[:count])
            assert after.reads[count] > before.reads[-1]
    assert early, "nothing was tested"


@pytest.mark.parametrize("inputs", ["states", "lookahead"])
def test_live_sessions_are_patient(model: Translator, inputs: str) -> None:
    agent = learnt(model, replace(Agent(kind="lstm", hidden=8), inputs=inputs))  # type: ignore[arg-type]
    text = make_text()
    sentences = [["abc", "de", "fa", "gh", "m"], ["b", "m"], ["cd", "ad", "fgh", "abc", "ab", "m"]]
    for free in (agent, policy("wait-1")):
        patient = Patient(free, model.logits)
        steps = Recording(model, patient, text)
        session = Session(steps, text)
        events = [event for sentence in sentences for word in sentence for event in session.feed(word)]
        assert_as_batched(model, patient, text, sentences, steps, events)
        for source, units, reads in steps.outputs:
            assert reads[-1] == len(source) or len(units) == LIMITS.of(len(source))


def test_records_have_names_of_their_own() -> None:
    settings = Evaluate(ending="patient", unknown="keep")
    assert str(Decoding.of(PolicySpec.parse("wait-3"), settings)) == "wait-3.unknown-keep.ending-patient"
    assert str(Decoding.of(PolicySpec.parse("full"), settings)) == "full.unknown-keep", "nothing can change"
    assert str(Decoding.of(PolicySpec.parse("mma"), settings)) == "mma.unknown-keep"
