"""`whilst serve` as a process: its messages, signals, killed workers; the models and engines it serves."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from websockets.exceptions import ConnectionClosed, InvalidMessage

from tests.helpers.commands import whilst
from tests.helpers.runs import CPU, ENVIRONMENT, command, short_recipe
from tests.helpers.serving import Client, WordAt, wait_until, words_of
from tests.live.test_terminal import write_model
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Agent as AgentSettings
from whilst.core.settings import Data, Search
from whilst.data.dataset import Dataset
from whilst.data.vocabulary import Language
from whilst.decoding.policies import policy_for
from whilst.live import loading
from whilst.live.engine_backend import EngineBackend
from whilst.live.session import Session, SessionState, TextPipeline
from whilst.live.torch_backend import TorchBackend
from whilst.model.agent import Agent
from whilst.model.checkpoint import load_run, save_tensors, write_run
from whilst.model.run_folder import AGENT, SEARCH
from whilst.research.bench_serve import Load as BenchLoad
from whilst.research.bench_serve import largest, serve_bench, talk
from whilst.server.run import ServeOptions, default_workers, serve
from whilst.server.served import EngineOptions, SinglePool, serve_model

parse = PolicySpec.parse


@pytest.fixture(scope="module")
def run(toy_dataset: Dataset, toy_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("serve") / "run", toy_data, toy_dataset)


def make_run(folder: Path, toy_data: Data, toy_dataset: Dataset) -> Path:
    """An untrained run with an agent of three latencies."""
    search = Search(intervals=((1, 3), (2, 4), (4, 6)))
    recipe = dataclasses.replace(short_recipe(toy_data, folder), search=search, agent=AgentSettings(hidden=8))
    torch.manual_seed(4)
    for place in (folder, folder / SEARCH):
        write_model(place, recipe, toy_dataset)
    write_run(folder / SEARCH / AGENT, recipe, toy_dataset.source, toy_dataset.target)
    weights = Agent(recipe.agent, recipe.model.width, 3).state_dict()
    save_tensors(folder / SEARCH / AGENT / "model.safetensors", weights, {})
    return folder


class ServeProcess:
    def __init__(self, *arguments: str | Path, wait: bool = True) -> None:
        defaults = "--port", "0", "--engine", "torch", "--workers", "1"  # later arguments replace them
        serve = command("serve", *defaults, *arguments)
        self.process = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.output = ""
        if wait:
            self.read_summary()

    def read_summary(self) -> None:
        assert self.process.stderr is not None
        while "token" not in self.output:
            line = self.process.stderr.readline()
            assert line, self.output
            self.output += line
        found = re.search(r"http://127.0.0.1:(\d+)", self.output)
        assert found is not None
        self.port = int(found[1])
        assert self.is_healthy(), "it is ready when it says so"

    def is_healthy(self) -> bool:
        with contextlib.suppress(OSError):
            return b"ok" in self.get("/readyz")
        return False

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            found: bytes = answer.read()
        return found

    def workers(self) -> list[int]:
        found = re.findall(rb'whilst_resident_bytes{process="(\d+)"}', self.get("/metrics"))
        return sorted(map(int, found))

    def sessions(self) -> dict[int, int]:
        found = re.findall(rb'whilst_open_sessions{process="(\d+)"} (\d+)', self.get("/metrics"))
        return {int(process): int(count) for process, count in found if int(count)}

    def connect(self, path: str = "/v1/stream") -> Client:
        return Client(f"ws://127.0.0.1:{self.port}{path}", {})

    def wait(self) -> tuple[int, str]:
        """Exit code and the rest of stderr."""
        rest = self.process.communicate(timeout=60)[1]
        return self.process.returncode, rest


@contextlib.contextmanager
def serve_process(*arguments: str | Path, wait: bool = True) -> Iterator[ServeProcess]:
    server = ServeProcess(*arguments, wait=wait)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


def expected(run: Path, words: list[str], name: str) -> list[WordAt]:
    trained = load_run(run / SEARCH, CPU)
    text = TextPipeline.of(trained.recipe, trained.source, trained.target)
    policy = policy_for(trained, parse(name), trained.recipe.evaluate)
    session = Session(TorchBackend(trained.model, policy, *text.longest), text)
    return words_of([event for word in words for event in session.feed(word)] + session.finish())


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_summary_and_graceful_shutdown(run: Path, toy_dataset: Dataset, number: signal.Signals) -> None:
    words = " ".join(toy_dataset.text("test")[0][:2]).split()[:-1]
    with serve_process("--model", run, "--sessions", "3", "--idle", "60") as server:
        assert "latencies low = agent-1, medium = agent-2, high = agent-4\n" in server.output
        assert "3 sessions" in server.output
        assert f"{run}: src to tgt" in server.output
        with server.connect() as client:
            assert client.start()["latency"] == "agent-2"
            for word in words:
                client.send_words(word)
            client.receive_until("commit")
            server.process.send_signal(number)
            assert client.receive_until("final")["source_words"] == len(words)
            assert client.receive()["code"] == "shutdown"
            assert client.close_code() == 1012
            assert client.words == expected(run, words, "agent-2")
        assert server.wait() == (0, "")


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_others_go_on(run: Path, toy_dataset: Dataset) -> None:
    words = " ".join(toy_dataset.text("test")[0][:3]).split()
    with (
        serve_process("--model", run, "--workers", "2", "--sessions", "30") as server,
        contextlib.ExitStack() as stack,
    ):
        wait_until(lambda: len(server.workers()) == 2, "both start")
        clients = [stack.enter_context(server.connect()) for _ in range(16)]
        for client in clients:
            client.start(latency="wait-2")
            client.send_words(words[0])
            client.receive_until("commit")
        counts: dict[int, int] = {}
        wait_until(lambda: counts.update(server.sessions()) or sum(counts.values()) == 16, "metrics of both")
        assert len(counts) == 2, "both have sessions"
        victim, count = counts.popitem()
        os.kill(victim, signal.SIGKILL)
        answered = 0
        for _ in range(30):  # none waits for the next worker; those that came just before the kill are reset
            with contextlib.suppress(ConnectionError, ConnectionClosed, InvalidMessage), server.connect() as client:
                assert client.start()["type"] == "ready"
                answered += 1
        assert answered
        lost = 0
        for client in clients:
            try:
                for word in words[1:]:
                    client.send_words(word)
                client.finish()
                client.receive_until("final")
                assert client.words == expected(run, words, "wait-2")
            except ConnectionClosed:
                lost += 1
        assert lost == count
        wait_until(lambda: len(set(server.workers()) - {victim}) == 2, "replacement")
        with server.connect() as client:
            assert client.start()["type"] == "ready"
        server.process.send_signal(signal.SIGINT)
        code, output = server.wait()
        assert code == 0
        assert f"worker {victim} ended with -9" in output


def test_the_engine_is_chosen_as_for_live(monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_model("en-vi", [], EngineOptions())
    assert served.engine == "ONNX int8"
    assert isinstance(served.pool(1), SinglePool)
    with pytest.raises(UserError, match="--precision fp16: needs an engine"):
        EngineOptions(precision="fp16")
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    assert serve_model("en-vi", [], EngineOptions()).engine.startswith("PyTorch ")


def test_as_many_workers_as_cores_but_four_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for cores, expected_workers in ((1, 1), (2, 2), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)), raising=False)
        assert default_workers("cpu") == expected_workers
        assert default_workers("cuda") == 1
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_workers("cpu") == 1


@pytest.mark.slow
def test_it_is_ready_when_it_says_so(run: Path) -> None:
    """Until then connections are refused: they do not wait for the model."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for workers in ("1", "2"):
        with serve_process("--model", run, "--workers", workers, "--port", str(port), wait=False) as server:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            server.read_summary()
            assert server.port == port
            with server.connect() as client:
                assert client.start()["type"] == "ready"
            assert len(server.workers()) == int(workers)


def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    done = whilst("serve", "--port", "0", "--model", run, "--engine", "magic")
    assert (done.code, done.err) == (2, "whilst: --engine magic: must be auto, torch, onnx\n")
    with pytest.raises(UserError, match="not a run folder"):
        serve(ServeOptions((str(tmp_path),), port=0))
    with pytest.raises(UserError, match=r"--host 192.0.2.1 --port 0: cannot be served at"):
        serve(ServeOptions((str(run),), "192.0.2.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for workers in (1, 2):
            with pytest.raises(UserError, match=f"--port {port}: cannot be served at .*in use"):
                serve(ServeOptions((str(run),), port=port, workers=workers))


def test_latencies_of_a_run_without_an_agent(run: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for path in run.iterdir():
        if path.is_file():
            (plain / path.name).symlink_to(path)
    served = serve_model(str(plain), [], EngineOptions("torch"))
    assert served.model.latencies == {"low": "wait-1", "medium": "wait-3", "high": "wait-5"}


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_an_unknown_latency_is_an_error_before_the_session(
    run: Path, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    served = serve_model(str(run), [], EngineOptions(engine))
    assert str(served.model.policy_of("agent-1.threshold-0.6")) == "agent-1.threshold-0.6"
    huge = ["wait-" + count * "9" for count in (30, 5000)]
    for name in ("mma", "agent-1.threshold-2", "wait-0", *huge, "fast", "agent-9"):
        with pytest.raises(UserError) as caught:
            served.model.policy_of(name)
        assert len(str(caught.value)) < 200


def translated(run: Path, words: list[str], how: EngineOptions) -> list[WordAt]:
    """By the pool of a server, at high latency."""
    served = serve_model(str(run), [], how)
    pool, state = served.pool(2), SessionState(served.model.text)
    pool.use(1, str(served.model.policy_of("high")))
    events = []
    for word in words:
        state.add_words(word)
        events += state.close_finished()
        while (request := state.next_request()) is not None:
            events += state.handle_result(request, pool.do([(1, request)])[0])
    return words_of(events)


@pytest.mark.parametrize("how", [EngineOptions("torch"), EngineOptions("onnx", "fp32")])
def test_every_engine_translates_like_a_session(
    run: Path, toy_dataset: Dataset, how: EngineOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = " ".join(toy_dataset.text("test")[0][:4]).split()
    assert translated(run, words, how) == expected(run, words, "agent-4")


CALLS = {
    "mkldnn": ("_reorder_linear_weight", "_linear_pointwise"),
    "quantized": ("linear_prepack_fp16", "linear_dynamic_fp16"),
}


def without(monkeypatch: pytest.MonkeyPatch, place: str, missing: str) -> None:
    """PyTorch without this call."""
    there = {name: getattr(getattr(torch.ops, place), name) for name in CALLS[place] if name != missing}
    monkeypatch.setattr(torch.ops, place, SimpleNamespace(**there))


@pytest.mark.parametrize("missing", [*CALLS["mkldnn"], "none, but one is wrong"])
def test_without_prepacked_layers_it_uses_those_of_pytorch(
    run: Path, toy_dataset: Dataset, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    without(monkeypatch, "mkldnn", missing)
    if missing not in CALLS["mkldnn"]:
        monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda inputs, weight, *_: inputs @ weight.T + 1)
        monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", lambda weight, _: weight)
    words = toy_dataset.text("test")[0][0].split()
    assert translated(run, words, EngineOptions("torch")) == expected(run, words, "agent-4")


@pytest.mark.parametrize("missing", CALLS["quantized"])
def test_fp16_without_support_is_an_error(run: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    without(monkeypatch, "quantized", missing)
    with pytest.raises(UserError, match="--precision fp16: not available on this machine; leave it out"):
        serve_model(str(run), [], EngineOptions("torch", "fp16"))


@pytest.mark.parametrize("kept", [True, False])
def test_threads_of_exported_graphs(run: Path, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path if kept else Path(__file__)))
    before = torch.get_num_threads()
    pool = serve_model(str(run), [], EngineOptions("onnx", "fp32", threads=2)).pool(1)
    assert torch.get_num_threads() == before, "those of PyTorch do not change"
    assert isinstance(pool, SinglePool)
    steps = pool._make("wait-1")
    assert isinstance(steps, EngineBackend)
    graphs = steps.session.engine.graphs.values()
    assert {graph.get_session_options().intra_op_num_threads for graph in graphs} == {1}, "a call is too short"


@pytest.mark.parametrize("wanted", [0, 3, 8, 9, 23, 100, 400])
def test_the_search_for_the_largest_load(wanted: int) -> None:
    tried: list[int] = []

    def attempt(number: int) -> bool:
        tried.append(number)
        return number <= wanted

    found = largest(attempt, 8, 400)
    assert found <= wanted
    assert found >= min(wanted, 400) * 0.9 - 1 or wanted < 8
    assert len(tried) == len(set(tried)) <= 12


@pytest.mark.slow
def test_the_bench(run: Path, tmp_path: Path) -> None:
    assert len(talk(Language.load(run, "source"))) > 50
    out = tmp_path / "serve.json"
    serve_bench(str(run), 3, BenchLoad(3, 10.0, 1.0, "low"), 60_000, 4, [], out)
    found = json.loads(out.read_text(encoding="utf-8"))
    (probe,) = found["rows"]
    assert (found["streams within it"], probe["streams"], probe["lost"], probe["wrong"]) == (3, 3, 0, 0)
    assert probe["words"] == 30
    assert 0 < probe["p50"] <= probe["p95"] <= probe["p99"] <= probe["most"]
