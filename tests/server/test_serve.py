"""`whilst serve` as people start it: what it says, how it stops, what becomes of a worker that is killed."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from websockets.exceptions import ConnectionClosed

from tests.helpers.runs import CPU, ENVIRONMENT, call, command, short_recipe
from tests.helpers.sites import Client, texts, until
from tests.live.test_terminal import write_model
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Agent as AgentSettings
from whilst.core.settings import Data, Search
from whilst.data.dataset import Dataset
from whilst.evaluation.evaluate import choose
from whilst.live.eager import steps_of, text_of
from whilst.live.engine_steps import OnEngine
from whilst.live.session import Session, SessionState
from whilst.model.agent import Agent
from whilst.model.checkpoint import load_run, save_tensors, write_run
from whilst.model.run_folder import AGENT, SEARCH
from whilst.research.bench.serve import Load as BenchLoad
from whilst.research.bench.serve import largest, serve_bench, source_language, talk
from whilst.server.metrics import Metrics
from whilst.server.packed import PRECISIONS, Packed16, Packed32, PackedLSTM, can_pack, pack
from whilst.server.pool import Single
from whilst.server.run import ServeOptions, serve
from whilst.server.served import How, serve_model

parse = PolicySpec.parse


@pytest.fixture(scope="module")
def run(toy_dataset: Dataset, toy_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("serve") / "run", toy_data, toy_dataset)


def make_run(folder: Path, toy_data: Data, toy_dataset: Dataset) -> Path:
    """A run that was never trained, with an agent of three latencies."""
    search = Search(intervals=((1, 3), (2, 4), (4, 6)))
    recipe = dataclasses.replace(short_recipe(toy_data, folder), search=search, agent=AgentSettings(hidden=8))
    torch.manual_seed(4)
    for place in (folder, folder / SEARCH):
        write_model(place, recipe, toy_dataset)
    write_run(folder / SEARCH / AGENT, recipe, toy_dataset.source, toy_dataset.target)
    weights = Agent(recipe.agent, recipe.model.width, 3).state_dict()
    save_tensors(folder / SEARCH / AGENT / "model.safetensors", weights, {})
    return folder


class Served:
    """The command in a process of its own."""

    def __init__(self, *arguments: str | Path) -> None:
        line = command("serve", "--port", "0", *arguments)
        self.process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        assert self.process.stderr is not None
        self.said = ""
        while "token" not in self.said:
            said = self.process.stderr.readline()
            assert said, self.said
            self.said += said
        found = re.search(r"http://127.0.0.1:(\d+)", self.said)
        assert found is not None
        self.port = int(found[1])
        until(self.answers, "starting")

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return b"ok" in self.get("/healthz")
        return False

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            found: bytes = answer.read()
        return found

    def workers(self) -> list[int]:
        """Processes with this one as their parent that serve (others help multiprocessing)."""
        found = re.findall(rb'whilst_resident_bytes{process="(\d+)"}', self.get("/metrics"))
        return sorted(map(int, found))

    def sessions(self) -> dict[int, int]:
        found = re.findall(rb'whilst_sessions{process="(\d+)"} (\d+)', self.get("/metrics"))
        return {int(process): int(count) for process, count in found if int(count)}

    def connect(self) -> Client:
        return Client(f"ws://127.0.0.1:{self.port}/v1/stream", {})

    def wait(self) -> tuple[int, str]:
        """Exit code, and what it said at the end."""
        rest = self.process.communicate(timeout=60)[1]
        return self.process.returncode, rest


@contextlib.contextmanager
def serving(*arguments: str | Path) -> Iterator[Served]:
    served = Served(*arguments)
    try:
        yield served
    finally:
        served.process.kill()
        served.process.communicate()


def expected(run: Path, words: list[str], name: str) -> list[tuple[str, int, int]]:
    trained = load_run(run / SEARCH, CPU)
    text = text_of(trained)
    session = Session(steps_of(trained, choose(parse(name), trained, trained.recipe.evaluate, None), text), text)
    return texts([event for word in words for event in session.feed(word)] + session.finish())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_it_is_and_ends_in_order(run: Path, toy_dataset: Dataset, number: signal.Signals) -> None:
    words = " ".join(toy_dataset.text("test")[0][:2]).split()[:-1]
    with serving("--model", run, "--sessions", "3", "--idle", "60") as served:
        assert "latencies low = agent-1, medium = agent-2, high = agent-4\n" in served.said
        assert "3 sessions" in served.said
        assert f"{run}: src to tgt" in served.said
        with served.connect() as client:
            assert client.start()["latency"] == "agent-2"
            for word in words:
                client.say(word)
            client.receive_until("commit")
            served.process.send_signal(number)
            assert client.receive_until("final")["source_words"] == len(words)
            assert client.receive()["code"] == "shutdown"
            assert client.closed() == 1012
            assert client.words == expected(run, words, "agent-2")
        assert served.wait() == (0, "")


@pytest.mark.slow
def test_a_worker_that_is_killed_takes_only_its_own_sessions_along(run: Path, toy_dataset: Dataset) -> None:
    words = " ".join(toy_dataset.text("test")[0][:3]).split()
    with serving("--model", run, "--workers", "2", "--sessions", "30") as served, contextlib.ExitStack() as left:
        until(lambda: len(served.workers()) == 2, "both begin")
        clients = [left.enter_context(served.connect()) for _ in range(16)]
        for client in clients:
            client.start(latency="wait-2")
            client.say(words[0])
            client.receive_until("commit")
        counts: dict[int, int] = {}
        until(lambda: counts.update(served.sessions()) or sum(counts.values()) == 16, "all are counted")
        assert len(counts) == 2, "or all have gone to one worker"
        victim, count = counts.popitem()
        os.kill(victim, signal.SIGKILL)
        lost = 0
        for client in clients:
            try:
                for word in words[1:]:
                    client.say(word)
                client.finish()
                client.receive_until("final")
                assert client.words == expected(run, words, "wait-2")
            except ConnectionClosed:
                lost += 1
        assert lost == count
        until(lambda: len(set(served.workers()) - {victim}) == 2, "another one takes its place")
        with served.connect() as client:
            assert client.start()["type"] == "ready"
        served.process.send_signal(signal.SIGINT)
        code, said = served.wait()
        assert code == 0
        assert f"worker {victim} ended with -9" in said


def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    done = call("serve", "--port", "0", "--model", run, "--engine", "magic")
    assert (done.returncode, done.stderr) == (2, "whilst: --engine magic: write batch, single, onnx\n")
    with pytest.raises(UserError, match="not a run folder"):
        serve(ServeOptions(str(tmp_path), port=0))
    with pytest.raises(UserError, match=r"--host 192.0.2.1 --port 0: cannot be served at"):
        serve(ServeOptions(str(run), "192.0.2.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for workers in (1, 2):
            with pytest.raises(UserError, match=f"--port {port}: cannot be served at .*in use"):
                serve(ServeOptions(str(run), port=port, workers=workers))


def test_a_run_without_an_agent_waits(run: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for path in run.iterdir():
        if path.is_file():
            (plain / path.name).symlink_to(path)
    served = serve_model(str(plain), [], How())
    assert served.latencies == {"low": "wait-1", "medium": "wait-3", "high": "wait-5"}


@pytest.mark.parametrize("engine", ["batch", "onnx"])
def test_a_latency_that_the_model_has_not_is_said_at_once(
    run: Path, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a session begins with it, and fails."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    served = serve_model(str(run), [], How(engine))
    assert served.policy("agent-1.threshold-0.6") == "agent-1.threshold-0.6"
    huge = ["wait-" + count * "9" for count in (30, 5000)]
    for name in ("mma", "agent-1.threshold-2", "wait-0", *huge, "fast", "agent-9"):
        with pytest.raises(UserError) as caught:
            served.policy(name)
        assert len(str(caught.value)) < 200


def spoken(run: Path, words: list[str], how: How) -> list[tuple[str, int, int]]:
    """What a session of high latency says, alone."""
    served = serve_model(str(run), [], how)
    pool, script = served.pool(2), SessionState(served.text)
    pool.use(1, served.policy("high"))
    events = []
    for word in words:
        script.add_words(word)
        events += script.close_finished()
        while (ask := script.next_request()) is not None:
            events += script.handle_result(ask, pool.do(ask.operation, [(1, ask.unit)])[0])
    return texts(events)


@pytest.mark.parametrize("how", [How(), How("single"), How("onnx", "fp32")])
def test_a_run_translates_as_live(
    run: Path, toy_dataset: Dataset, how: How, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights that are laid out anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = " ".join(toy_dataset.text("test")[0][:4]).split()
    assert spoken(run, words, how) == expected(run, words, "agent-4")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_packed_layers_are_the_same(run: Path, precision: str) -> None:
    """And rows come out the same, to the bit, whoever is beside them."""
    model = load_run(run, CPU).model
    assert can_pack(model, precision)
    near = 2e-3 if precision == "fp16" else 1e-5
    plain = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    pack(model, PRECISIONS[precision])
    assert not [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    packed = [layer for layer in model.modules() if isinstance(layer, Packed32 | Packed16)]
    for one, other in zip(plain, packed, strict=True):
        states = torch.randn(40, 1, one.in_features)
        found = other(states)
        torch.testing.assert_close(one(states), found, rtol=near, atol=near)
        for some in (slice(0, 1), slice(7, 9), slice(3, 33)):
            assert torch.equal(other(states[some]), found[some])


CALLS = {
    "mkldnn": ("_reorder_linear_weight", "_linear_pointwise"),
    "quantized": ("linear_prepack_fp16", "linear_dynamic_fp16"),
}


def without(monkeypatch: pytest.MonkeyPatch, place: str, missing: str) -> None:
    """A PyTorch that lacks this call."""
    there = {name: getattr(getattr(torch.ops, place), name) for name in CALLS[place] if name != missing}
    monkeypatch.setattr(torch.ops, place, SimpleNamespace(**there))


@pytest.mark.parametrize("missing", [*CALLS["mkldnn"], "none, but one is wrong"])
def test_without_such_calls_it_uses_pytorchs_own_layers(
    run: Path, toy_dataset: Dataset, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    without(monkeypatch, "mkldnn", missing)
    if missing not in CALLS["mkldnn"]:
        monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda inputs, weight, *_: inputs @ weight.T + 1)
        monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", lambda weight, _: weight)
    words = toy_dataset.text("test")[0][0].split()
    assert spoken(run, words, How()) == expected(run, words, "agent-4")


@pytest.mark.parametrize("missing", CALLS["quantized"])
def test_without_16_bits_it_says_so(run: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    without(monkeypatch, "quantized", missing)
    with pytest.raises(UserError, match="--precision fp16: this machine cannot; leave it away"):
        serve_model(str(run), [], How(precision="fp16"))


def test_a_packed_agent_is_the_same() -> None:
    core = nn.LSTM(6, 4, batch_first=True)
    packed = PackedLSTM(core, Packed32)
    inputs, state = torch.randn(3, 1, 6), (torch.randn(1, 3, 4), torch.randn(1, 3, 4))
    torch.testing.assert_close(core(inputs, state), packed(inputs, state))


@pytest.mark.parametrize("kept", [True, False])
def test_exported_graphs_have_as_many_threads_as_wanted(
    run: Path, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path if kept else Path(__file__)))
    before = torch.get_num_threads()
    pool = serve_model(str(run), [], How("onnx", "fp32", threads=2)).pool(1)
    assert torch.get_num_threads() == before, "PyTorch's are another matter, and all of the process has them"
    assert isinstance(pool, Single)
    steps = pool._make("wait-1")
    assert isinstance(steps, OnEngine)
    graphs = steps.session._engine.graphs.values()
    assert {graph.get_session_options().intra_op_num_threads for graph in graphs} == {2}


def test_counts_of_all_workers(tmp_path: Path) -> None:
    first, second = Metrics(tmp_path), Metrics(tmp_path)
    first._add("whilst_sessions_total", labels='kind="stream"')
    second._add("whilst_sessions_total", 2, 'kind="stream"')
    second.save()
    (tmp_path / f"{os.getpid()}.json").rename(tmp_path / "1.json")
    first.save()
    lines = first.render().splitlines()
    assert 'whilst_sessions_total{process="1", kind="stream"} 2' in lines
    assert f'whilst_sessions_total{{process="{os.getpid()}", kind="stream"}} 1' in lines
    assert lines.count("# TYPE whilst_sessions_total counter") == 1
    os.utime(tmp_path / "1.json", (0, 0))
    assert 'process="1"' not in first.render(), "that one has ended"


@pytest.mark.parametrize("wanted", [0, 3, 8, 9, 23, 100, 400])
def test_the_search_finds_about_how_many(wanted: int) -> None:
    tried: list[int] = []

    def attempt(number: int) -> bool:
        tried.append(number)
        return number <= wanted

    found = largest(attempt, 8, 400)
    assert found <= wanted
    assert found >= min(wanted, 400) * 0.9 - 1 or wanted < 8
    assert len(tried) == len(set(tried)) <= 12


@pytest.mark.slow
def test_the_bench_speaks_and_counts(run: Path, tmp_path: Path) -> None:
    assert len(talk(source_language(str(run)))) > 50
    out = tmp_path / "serve.json"
    serve_bench(str(run), 3, BenchLoad(3, 10.0, 1.0, "low"), 60_000, 4, [], out)
    found = json.loads(out.read_text(encoding="utf-8"))
    (probe,) = found["probes"]
    assert (found["streams"], probe["streams"], probe["lost"], probe["wrong"]) == (3, 3, 0, 0)
    assert probe["words"] == 30
    assert 0 < probe["p50"] <= probe["p95"] <= probe["p99"] <= probe["most"]
