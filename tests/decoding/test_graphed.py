"""Steady steps, as a GPU records them: several READs in one, rows that are filled again; the plain loop's words."""

import copy
import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.conftest import UNITS, make_model
from tests.helpers.decoding import BySentence, policy, written
from whilst.core.cuda_graphs import RepeatedStep
from whilst.core.distributed import pick_device
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Agent as Settings
from whilst.core.settings import Limits, Model
from whilst.data.vocabulary import EOS
from whilst.decoding import batched as decode
from whilst.decoding import graphed
from whilst.decoding.batched import Decoding, translate_batch
from whilst.decoding.graphed import LOOKAHEADS, Graphed
from whilst.model.agent import Agent
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.learnt import AgentPolicy
from whilst.policy.patient import Patient

Kind = Literal["lstm", "gru", "linear"]
Inputs = Literal["embeddings", "states", "lookahead"]
sources = st.lists(
    st.integers(0, 14).flatmap(lambda n: st.lists(st.integers(EOS + 1, UNITS[0] - 1), min_size=n, max_size=n)),
    min_size=1,
    max_size=7,
).map(lambda rows: [[*row, EOS] for row in rows])


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
def test_recorded_steps_equal_lockstep(
    model: Translator,
    kind: Kind,
    inputs: Inputs,
    data: st.DataObject,
    rows: list[list[int]],
    seed: int,
    threshold: float,
) -> None:
    policy = AgentPolicy(PolicySpec("agent"), undecided(model, kind, inputs, seed), model, seed % 2, threshold)
    limits = data.draw(st.sampled_from([Limits(1.5, 4), Limits(0.5, 1), Limits(0, 1)]))
    plain = written(translate_batch(model, rows, policy, limits))
    assert written([translate_batch(model, [row], policy, limits)[0] for row in rows]) == plain
    assert written(Decoding(model, policy, limits, len(rows), graphed=True).translate(rows)) == plain


@pytest.mark.parametrize("inputs", get_args(Inputs))
def test_waits_vary_enough(model: Translator, sources: list[list[int]], inputs: Inputs) -> None:
    """Agents READ once, several times, and more often in a row than one step allows."""
    waits = set()
    for seed in range(10):
        policy = AgentPolicy(PolicySpec("agent"), undecided(model, "lstm", inputs, seed), model, 0, 0.7)
        for output in translate_batch(model, sources, policy, Limits(1.5, 4)):
            waits |= {after - before for before, after in zip([1, *output.reads], output.reads, strict=False)}
    assert waits >= {0, 1, 2, LOOKAHEADS, LOOKAHEADS + 1}


def test_several_lookaheads_equal_single_ones() -> None:
    """Their states, and the cache after `keep_lookahead`."""
    model = make_model(Model(width=16, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=24), seed=5)
    source = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, 0, 0]])
    lengths, chosen = torch.tensor([5, 3]), torch.tensor([2, 0])
    once, one = (model.start(2, 5, 4, lookaheads=3) for _ in range(2))
    for cache in (once, one):
        model.read(cache, source, lengths)
    for last in (torch.tensor([1, 1]), torch.tensor([5, 7])):
        reads = torch.minimum(torch.tensor([[1, 2, 3], [1, 2, 3]]), lengths[:, None])
        states = model.lookaheads(once, last, reads)
        for n in range(3):
            torch.testing.assert_close(states[:, n], model.lookahead(one, last, reads[:, n]))
        once.keep_lookahead(chosen)
        once.commit(states[torch.arange(2), chosen], torch.tensor([True, True]))
        one.commit(model.lookahead(one, last, reads[torch.arange(2), chosen]), torch.tensor([True, True]))
    for left, right in zip(once.decoder, one.decoder, strict=True):
        torch.testing.assert_close(left[..., :2, :], right[..., :2, :])


def texts(count: int, seed: int, longest: int = 30) -> list[list[int]]:
    """Most of them short, some long."""
    random = torch.Generator().manual_seed(seed)
    sizes = (torch.rand(count, generator=random) ** 3 * longest).long().tolist()
    return [[*torch.randint(EOS + 1, UNITS[0], (size,), generator=random).tolist(), EOS] for size in sizes]


LIMITS = Limits(1.5, 4)


class Recorded(RepeatedStep):
    """As on a GPU, but for the graph: recording does the step twice, the second time without effect."""

    def __init__(self, step: Any, get: Any, put: Any, beside: Any) -> None:
        super().__init__(step, get, put, beside)
        before = [tensor.clone() for tensor in get()]
        self.again()
        self.again()
        torch._foreach_copy_(get(), before)


@pytest.mark.parametrize("repeated", [RepeatedStep, Recorded])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("batch", [1, 9, 100])
def test_rows_are_reused(
    model: Translator, monkeypatch: pytest.MonkeyPatch, batch: int, share: float, repeated: type[RepeatedStep]
) -> None:
    """One by one, in groups, or all together; recordings of several sizes serve them, and the next text too."""
    monkeypatch.setattr(graphed, "RepeatedStep", repeated)
    monkeypatch.setattr(graphed, "COLUMNS", 8)
    monkeypatch.setattr(graphed, "REFILL", share)
    for chosen in (
        BySentence(),
        AgentPolicy(PolicySpec("agent"), undecided(model, "lstm", "lookahead", 1), model, 0, 0.6),
    ):
        decoding = Decoding(model, chosen, LIMITS, batch, graphed=True)
        for rows in (texts(24, 1, 20), texts(20, 2, 35), texts(10, 3, 12)):
            plain = translate_batch(model, rows, chosen, LIMITS)
            assert written(decoding.translate(rows)) == written(plain)
        assert decoding.recorded is not None
        assert len(decoding.recorded.recorded) > 2, "steps of several sizes, or this shows nothing"
        assert decoding.translate([]) == []


def test_monotone_heads_are_reset(monotone: Translator) -> None:
    rows = texts(30, 4, 12)
    plain = translate_batch(monotone, rows, policy("mma"), LIMITS)
    assert written(Decoding(monotone, policy("mma"), LIMITS, 4, graphed=True).translate(rows)) == written(plain)


def test_free_rows_are_refilled_early(model: Translator) -> None:
    """Rows that are filled again take fewer steps than one batch after the other."""
    rows, chosen = texts(64, 5, 40), policy("wait-3")

    def steps(parts: list[list[list[int]]]) -> int:
        decoding = Graphed(model, chosen, 8, 41, LIMITS)
        taken = 0
        for part in parts:
            decoding.translate(part)
            taken += len(decoding.times)
        return taken

    order = sorted(rows, key=len, reverse=True)
    assert steps([rows]) < 0.9 * steps([order[start : start + 8] for start in range(0, 64, 8)])


def test_times_count_from_the_beginning_of_a_sentence(model: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whilst.decoding.graphed.time.perf_counter", itertools.count().__next__)  # a second a look
    outputs = Decoding(model, policy("wait-2"), LIMITS, 2, graphed=True).translate(texts(40, 6))
    assert {output.times[0] for output in outputs} == {1000.0}, "the last ones too"
    for output in outputs:
        assert output.times == sorted(output.times)
        assert len(output.times) == len(output.reads)


def test_long_sentences_get_fewer_rows(model: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What rows have room for is bounded; a single sentence may have more."""
    rows, chosen = [*texts(12, 7, 12), *texts(3, 8, 90), [5] * 150 + [EOS]], policy("wait-2")
    made: list[tuple[int, int]] = []

    class Noted(Graphed):
        def __init__(self, model: Translator, policy: Policy, rows: int, width: int, limits: Limits) -> None:
            made.append((rows, width + limits.of(width)))
            super().__init__(model, policy, rows, width, limits)

    monkeypatch.setattr(decode, "Graphed", Noted)
    monkeypatch.setattr(decode, "MAX_TOKENS", 500)
    outputs = Decoding(model, chosen, LIMITS, 4, graphed=True).translate(rows)
    assert written(outputs) == written(translate_batch(model, rows, chosen, LIMITS))
    assert [rows for rows, _ in made] == [1, 4]
    assert made[1][0] * made[1][1] <= 500


class Watched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What is asked of the device, with the shapes of it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [part for part in tree_leaves(args) if torch.is_tensor(part)]
        self.calls.append((str(func), [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]))
        return func(*args, **(kwargs or {}))


@contextmanager
def watched(decoding: Graphed, calls: list[Any]) -> Iterator[None]:
    """Every step's calls."""
    step = decoding.step

    def watch(source: int, target: int) -> None:
        with Watched() as mode:
            step(source, target)
        calls.append(mode.calls)

    decoding.step = watch  # type: ignore[method-assign]
    yield


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("name", ["wait-3", "lstm", "gru", "linear", "mma"])
def test_every_step_does_the_same_operations(
    model: Translator, monotone: Translator, monkeypatch: pytest.MonkeyPatch, name: str, patient: bool
) -> None:
    """A CUDA graph repeats what it recorded: the same operations on the same shapes, and nothing that waits."""
    translator = monotone if name == "mma" else model
    kind: Any = name
    chosen: Policy
    if name in get_args(Kind):
        chosen = AgentPolicy(PolicySpec("agent"), undecided(model, kind, "lookahead", 1), model, 0, 0.6)
    else:
        chosen = policy(name)
    chosen = Patient(chosen, translator.logits) if patient else chosen
    monkeypatch.setattr(graphed, "RepeatedStep", Recorded)
    decoding = Graphed(translator, chosen, 3, 8, LIMITS)
    tensors = decoding.tensors()
    calls: list[Any] = []
    with watched(decoding, calls):
        decoding.translate(texts(9, 9, 8))
    assert len(decoding.recorded) == 1
    assert len(calls) > 12
    assert all(step == calls[0] for step in calls)
    waits = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal.default", "repeat_interleave")
    assert [call for call, _ in calls[0] if any(word in call for word in waits)] == []
    assert not any(dtype == torch.bool for call, shapes in calls[0] if "index" in call for _, dtype in shapes[1:2])
    assert all(now is before for now, before in zip(decoding.tensors(), tensors, strict=True)), "changed in place"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["wait-3", "full", "mma", *get_args(Kind)])
def test_half_precision_stays_half_and_ends(tiny: Model, name: Any, dtype: torch.dtype) -> None:
    """Where something assumed singles, it would fail, or the caches would become singles."""
    translator = make_model(replace(tiny, cross="monotone" if name == "mma" else "reads"))
    chosen = policy(name) if name not in get_args(Kind) else None
    if chosen is None:
        agent = Agent(Settings(kind=name, hidden=8, inputs="lookahead"), tiny.width, 2).eval()
        chosen = AgentPolicy(PolicySpec("agent"), agent.to(dtype), translator, 1, 0.5)
    translator.to(dtype)
    rows = texts(9, 10, 12)
    decoding = Graphed(translator, chosen, 3, 12, LIMITS)
    for outputs in (decoding.translate(rows), translate_batch(translator, rows, chosen, LIMITS)):
        for row, output in zip(rows, outputs, strict=True):
            assert 1 <= len(output.reads) <= LIMITS.of(len(row))
            assert output.reads == sorted(output.reads)
            assert output.reads[-1] <= len(row)
    held = (*decoding.tensors(), *decoding.batch.state.cache.decoder)
    assert {tensor.dtype for tensor in held if tensor.is_floating_point()} == {dtype}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="records CUDA graphs")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("name", ["wait-3", "full", "mma", *get_args(Kind)])
def test_a_gpu_writes_the_same(
    model: Translator,
    monotone: Translator,
    monkeypatch: pytest.MonkeyPatch,
    name: Any,
    patient: bool,
    dtype: torch.dtype,
) -> None:
    """The graphs themselves. Halves round, so that they need only come near: most sentences are the same."""
    monkeypatch.setattr(graphed, "COLUMNS", 8)
    translator = monotone if name == "mma" else model
    agent = undecided(model, name, "lookahead", 1) if name in get_args(Kind) else None

    def chosen(translator: Translator, agent: Agent | None) -> Policy:
        free = policy(name) if agent is None else AgentPolicy(PolicySpec("agent"), agent, translator, 0, 0.6)
        return Patient(free, translator.logits) if patient else free

    there = copy.deepcopy(translator).to(pick_device("cuda"), dtype)
    on_gpu = chosen(there, None if agent is None else copy.deepcopy(agent).to("cuda", dtype))
    decoding = Decoding(there, on_gpu, LIMITS, 5)
    for rows in (texts(24, 1, 20), texts(20, 2, 35), texts(10, 3, 12)):
        plain = written(translate_batch(translator, rows, chosen(translator, agent), LIMITS))
        same = [left == right for left, right in zip(written(decoding.translate(rows)), plain, strict=True)]
        assert sum(same) >= (len(rows) if dtype == torch.float64 else 0.6 * len(rows))
    assert decoding.recorded is not None
    assert all(recorded.graph is not None for recorded in decoding.recorded.recorded.values())
