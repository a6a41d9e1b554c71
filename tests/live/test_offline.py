"""Live sessions of models that need whole sentences: the words of an evaluation, also on a server."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from tests.helpers.pretrained import ENGLISH, make_marian
from tests.helpers.random_runs import make_run, make_varied_run
from whilst.core.config import build
from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data, Recipe
from whilst.core.settings import Model as Settings
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.evaluation.evaluate import Loaded, opener, policy_or_rule, to_sentence, translate_lines
from whilst.evaluation.record import read_record
from whilst.evaluation.trace import Sentence
from whilst.live.loading import Model, ModelOptions, open_model
from whilst.live.session import SessionState, Word
from whilst.live.torch_backend import Offline, OfflineBackend
from whilst.server.served import EngineOptions, serve_model
from whilst.server.torch_pool import OfflinePool

POLICIES = "full", "wait-2", "local-agreement-2", "align-att-2"
SIZES = Settings(width=32, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=64, encoder="bidirectional")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, toy_data: Data, toy_dataset: Dataset) -> Path:
    """A run whose encoder is bidirectional."""
    return make_run(tmp_path_factory.mktemp("offline") / "run", toy_data, toy_dataset, SIZES, agent=False)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers", reason="needs the extra hf")
    return f"hf:{make_marian(tmp_path_factory.mktemp('offline') / 'marian')}"


@pytest.fixture(scope="module")
def lines(toy_dataset: Dataset) -> list[str]:
    return toy_dataset.text("test")[0][:6]


def opened(name: str | Path, latency: str = "medium") -> Model:
    with notes.capture() as messages:
        model = open_model(ModelOptions(str(name), latency))
    assert not messages.get()
    return model


def without_times(sentences: Sequence[Sentence]) -> list[Sentence]:
    return [replace(one, elapsed=()) for one in sentences]


def evaluated(name: str | Path, lines: Sequence[str], policy: str) -> list[Sentence]:
    trained: Loaded = opener([], "cpu")(Path(name))
    outputs = translate_lines(
        trained, lines, policy_or_rule(trained, PolicySpec.parse(policy)), trained.recipe.evaluate
    )
    return [
        to_sentence(n, line, "", output, trained)
        for n, (line, output) in enumerate(zip(lines, outputs, strict=True))
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_translates_live_as_in_an_evaluation(whole: Path, lines: list[str], policy: str) -> None:
    live = opened(whole, policy).translate(lines, policy)
    assert without_times(live) == without_times(evaluated(whole, lines, policy))
    assert all(one.elapsed == tuple(sorted(one.elapsed)) for one in live)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_checkpoint_translates_live_as_in_an_evaluation(checkpoint: str, policy: str) -> None:
    live = opened(checkpoint).translate(ENGLISH, policy)
    assert without_times(live) == without_times(evaluated(checkpoint, ENGLISH, policy))
    assert any(one.delays[0] < one.source_length for one in live) == (policy != "full")


def test_a_causal_run_can_translate_anew_too(
    tmp_path: Path, toy_data: Data, toy_dataset: Dataset, lines: list[str]
) -> None:
    run = make_varied_run(tmp_path / "run", toy_data, toy_dataset)
    live = opened(run, "local-agreement-2").translate(lines, "local-agreement-2")
    assert without_times(live) == without_times(evaluated(run, lines, "local-agreement-2"))
    with pytest.raises(UserError, match="policy local-agreement-2: translates the source anew after every word"):
        open_model(ModelOptions(str(run), "wait-1", "torch")).policy_of("local-agreement-2")


def test_latencies_of_offline_models(whole: Path) -> None:
    model = opened(whole)
    assert model.latencies == {
        f"{name}": f"local-agreement-{n}" for name, n in zip(("low", "medium", "high"), (2, 3, 4), strict=True)
    }
    with pytest.raises(UserError, match="policy agent-1: a full-sentence model only supports full"):
        model.policy_of("agent-1")
    with pytest.raises(UserError, match="needs the whole source"):
        open_model(ModelOptions(str(whole), engine="onnx"))


def test_words_are_decided_on_when_they_are_whole(checkpoint: str) -> None:
    """A word of several units makes one translation, not one for each."""
    model = opened(checkpoint)
    backend, state = model.backend("wait-1"), SessionState(model.text)
    state.add_words("Fluorescent river")
    assert len(model.text.source.encode(["Fluorescent"])) > 3
    hypotheses = []
    while (request := state.next_request()) is not None:
        state.handle_result(request, backend.run(request))
        assert isinstance(backend, OfflineBackend)
        hypotheses += [len(backend.sentence.source)] * backend.sentence.current
    assert sorted(set(hypotheses)) == [
        len(model.text.source.encode(words)) for words in (["Fluorescent"], ["Fluorescent", "river"])
    ]


def test_sessions_of_a_server_are_translated_in_one_batch(whole: Path, lines: list[str]) -> None:
    served = serve_model(str(whole), [], EngineOptions("torch"))
    pool = served.pool(3)
    assert isinstance(pool, OfflinePool)
    names = ["local-agreement-2", "align-att-2", "wait-2"]
    states, events = [SessionState(served.model.text) for _ in names], [list[str]() for _ in names]
    for slot, (name, state) in enumerate(zip(names, states, strict=True)):
        state.add_words(lines[slot])
        state.end_sentence()
        pool.use(slot, name)
    while requests := {slot: made for slot, state in enumerate(states) if (made := state.next_request())}:
        operation = min(one.operation.value for one in requests.values())
        chosen = {slot: one for slot, one in requests.items() if one.operation.value == operation}
        results = pool.do(list(chosen.items()))
        for (slot, one), result in zip(chosen.items(), results, strict=True):
            events[slot] += [
                event.text for event in states[slot].handle_result(one, result) if isinstance(event, Word)
            ]
    for slot, name in enumerate(names):
        session = served.model.session(name)
        alone = [*session.feed(lines[slot]), *session.finish()]
        assert events[slot] == [event.text for event in alone if isinstance(event, Word)]
    with pytest.raises(UserError, match=r"--precision fp16: .* is an offline model and needs fp32"):
        serve_model(str(whole), [], EngineOptions("torch", "fp16"))


def test_commands(whole: Path, checkpoint: str) -> None:
    done = whilst(
        "live", "--model", checkpoint, "--latency", "wait-2", stdin=b"The river runs past the old mill.\n"
    )
    assert (done.code, done.out.split()[:1]) == (0, ["Der"]), done.err
    done = whilst("live", "--model", whole, "--source", "en", stdin=b"one")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--source and --target are for hf: models" in done.err
    done = whilst("live", "--model", checkpoint, "--engine", "onnx", stdin=b"one")
    assert done.code == 2
    assert "runs on PyTorch; leave it out" in done.err


def test_evaluations_have_records(whole: Path, checkpoint: str, tmp_path: Path, toy_data: Data) -> None:
    chosen = [f"--policy={name}" for name in POLICIES]
    done = whilst("evaluate", whole, *chosen, "--out", tmp_path / "own")
    assert done.code == 0, done.err
    titles = [str(read_record(tmp_path / "own" / f"test.{name}.json").system) for name in POLICIES]
    assert titles == [f"full-sentence{rest}" for rest in ("", "", ", LocalAgreement", ", AlignAtt")]
    record = read_record(tmp_path / "own" / "test.local-agreement-2.json")
    assert (record.decoding.policy.kind, record.decoding.policy.count) == ("local-agreement", 2)
    data = replace(toy_data, dataset=str(tmp_path / "dataset"), source="en", target="de")
    prepare(data)
    sources = "--source=en", "--target=de", f"--set=data.dataset={data.dataset}"
    done = whilst("evaluate", checkpoint, "--policy=align-att-2", *sources, "--out", tmp_path / "hf")
    assert done.code == 0, done.err
    record = read_record(tmp_path / "hf" / "test.align-att-2.json")
    assert str(record.system) == f"full-sentence, on {checkpoint[3:]}, AlignAtt"
    assert build(Recipe, record.settings).checkpoint == checkpoint[3:]
    assert whilst("report", tmp_path / "own", "--out", tmp_path / "report").code == 0


def test_backends_are_offline(whole: Path) -> None:
    model = opened(whole)
    assert isinstance(model, Offline)
    assert isinstance(model.backend(), OfflineBackend)
