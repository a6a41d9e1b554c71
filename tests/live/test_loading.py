"""From names to models: run folders, exports, copies in the cache, the package's own; with and without PyTorch."""

import contextlib
import dataclasses
import errno
import io
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from tests.helpers.random_runs import make_run, make_varied_run
from tests.helpers.runs import ENVIRONMENT, command
from whilst.core.errors import UserError
from whilst.core.files import find_model
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data
from whilst.core.settings import Model as Settings
from whilst.data.dataset import Dataset
from whilst.engine import runtime
from whilst.engine.export import export
from whilst.engine.runtime import MANIFEST, load_exported
from whilst.evaluation.record import read_record, record_path
from whilst.evaluation.trace import read_trace
from whilst.live import loading
from whilst.live.engine_backend import EngineBackend
from whilst.live.loading import Model, ModelOptions, open_exported, open_model
from whilst.live.session import Event, Session, Word
from whilst.live.torch_backend import TorchBackend
from whilst.model.run_folder import AGENT, SEARCH

# Starts the command as `whilst` does, in a Python that has no PyTorch.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
sys.argv[0] = "whilst"
from whilst.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toy_data: Data, toy_dataset: Dataset) -> Path:
    return make_varied_run(tmp_path_factory.mktemp("loading") / "run", toy_data, toy_dataset)


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    export(run, run.with_name("exported"))
    return run.with_name("exported")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's cache is touched."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "whilst" / "engines"


@pytest.fixture(scope="module")
def lines(toy_dataset: Dataset) -> list[str]:
    return toy_dataset.text("test")[0]


def talk(opened: Model, lines: list[str]) -> list[Event]:
    session = Session(opened.backend(), opened.text)
    return [event for line in lines for part in (session.feed(line), session.finish()) for event in part]


def opened(wanted: ModelOptions) -> tuple[Model, list[str]]:
    """With the messages to the user."""
    with contextlib.redirect_stderr(io.StringIO()) as messages:
        model = open_model(wanted)
    return model, messages.getvalue().splitlines()


@pytest.mark.parametrize("latency", ["low", "high", "wait-2", "diagonal-2", "full"])
def test_both_engines_write_the_same(run: Path, exported: Path, latency: str, lines: list[str]) -> None:
    model, _ = opened(ModelOptions(str(run), latency, "torch"))
    assert (model.engine, type(model.backend())) == ("PyTorch", TorchBackend)
    said = talk(model, lines)
    for name in (run, exported):
        other, _ = opened(ModelOptions(str(name), latency, "onnx", "fp32"))
        assert (other.engine, type(other.backend()), other.policy) == ("ONNX fp32", EngineBackend, model.policy)
        assert talk(other, lines) == said
    words = [event.text for event in said if isinstance(event, Word)]
    assert len(set(words)) > 5, "or it always says the same"
    assert model.translate([]) == []


def test_thresholds(run: Path, lines: list[str]) -> None:
    """As far as it goes: one that nobody reaches waits for everything."""
    never, _ = opened(ModelOptions(str(run), "low", "onnx", "fp32", ("evaluate.threshold=1",)))
    full, _ = opened(ModelOptions(str(run), "full", "onnx", "fp32"))
    usual, _ = opened(ModelOptions(str(run), "low", "onnx", "fp32"))
    assert talk(never, lines) == talk(full, lines) != talk(usual, lines)
    for engine in ("onnx", "torch"):
        named, _ = opened(ModelOptions(str(run), "agent-1.threshold-1", engine, "fp32"))
        assert talk(named, lines) == talk(full, lines)
    with pytest.raises(UserError, match="was trained with it"):
        opened(ModelOptions(str(run), "low", "onnx", "fp32", ("model.width=8",)))


def test_a_copy_is_made_once_for_each_content(run: Path, kept: Path, tmp_path: Path, lines: list[str]) -> None:
    first, notes = opened(ModelOptions(str(run)))
    assert first.engine == "ONNX int8"
    assert len(notes) == 1
    assert str(kept) in notes[0]
    again, notes = opened(ModelOptions(str(run)))
    assert notes == []
    assert talk(again, lines) == talk(first, lines)
    (copy,) = kept.iterdir()
    names = {path.name for path in copy.iterdir()}
    assert "read.int8.onnx" in names
    assert "read.fp32.onnx" not in names, "only what is wanted"
    changed = make_copy(run, tmp_path / "changed")
    (changed / "recipe.json").write_bytes((run / "recipe.json").read_bytes() + b" ")
    key, same = runtime.cache_key(run), make_copy(run, tmp_path / "same")
    assert runtime.cache_key(changed) != key == runtime.cache_key(same)


@pytest.mark.parametrize("latency", ["agent-77", "wait-0", "mma", "agent-1.threshold-2"])
def test_wrong_policies_are_errors(run: Path, latency: str) -> None:
    with pytest.raises(UserError, match=rf"policy {latency}: "):
        opened(ModelOptions(str(run), latency, "onnx"))


def test_the_diagonal_needs_a_length_ratio(exported: Path) -> None:
    """The dataset may not have been there when the export was made."""
    copy = dataclasses.replace(load_exported(exported, "fp32"), length_ratio=None)
    with pytest.raises(UserError, match="length ratio is not known"):
        open_exported(copy, ModelOptions("", "diagonal-2", "onnx", "fp32"))


def make_copy(run: Path, place: Path) -> Path:
    return Path(shutil.copytree(run, place))


def test_a_damaged_copy_is_made_again(run: Path, kept: Path) -> None:
    opened(ModelOptions(str(run)))
    (copy,) = kept.iterdir()
    (copy / "words.int8.onnx").write_bytes(b"")
    _, notes = opened(ModelOptions(str(run)))
    assert len(notes) == 1
    assert (copy / "words.int8.onnx").stat().st_size > 0


def test_concurrent_processes_leave_one_copy(run: Path, kept: Path) -> None:
    processes = [
        subprocess.Popen(
            command("live", "--model", run, "--latency", "wait-1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT | {"XDG_CACHE_HOME": str(kept.parent.parent)},
        )
        for _ in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda process: process.communicate(b"ros kan", timeout=100), processes))
    assert [process.returncode for process in processes] == [0, 0], done
    assert done[0][0] == done[1][0] != b""
    assert len(list(kept.iterdir())) == 1, "and nothing unfinished"


def test_the_first_of_two_copies_stays(run: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process finishes while this one is at work."""
    make = runtime._make

    def slower(run: Path, entry: Path, precision: str) -> None:
        make(run, entry, precision)
        stamp = (entry / MANIFEST).stat().st_ino
        make(run, entry, precision)
        assert (entry / MANIFEST).stat().st_ino == stamp

    monkeypatch.setattr(runtime, "_make", slower)
    assert opened(ModelOptions(str(run)))[0].engine == "ONNX int8"
    assert len(list(kept.iterdir())) == 1


@pytest.mark.parametrize("trouble", ["full", "forbidden", "homeless"])
def test_without_disk_space_the_engine_stays_in_memory(
    trouble: str, run: Path, kept: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = talk(opened(ModelOptions(str(run), "low", "onnx", "fp32"))[0], lines)
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(kept / "new"))
        if trouble == "full":
            patch.setattr(Path, "write_bytes", fail)
        elif trouble == "forbidden":
            (kept / "new").write_text("a file")
        else:
            patch.delenv("XDG_CACHE_HOME")
            patch.setattr(Path, "expanduser", homeless)
        model, notes = opened(ModelOptions(str(run), "low", "onnx", "fp32"))
    assert talk(model, lines) == expected
    assert "cannot be cached" in notes[-1]
    assert "\n" not in notes[-1]
    assert not list(kept.glob("new/whilst/engines/*/")), "nothing half made"


def fail(path: Path, data: bytes) -> int:  # noqa: ARG001
    raise OSError(errno.ENOSPC, "No space left on device")


def homeless(path: Path) -> Path:
    if str(path).startswith("~"):
        raise RuntimeError("Could not determine home directory.")
    return path


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_pytorch_is_used_without_onnx_packages(run: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: None if name == package else object())
    assert opened(ModelOptions(str(run)))[0].engine == "PyTorch"


def test_pytorch_runs_models_without_export(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> None:
    settings = Settings(width=16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16, cross="monotone")
    made = make_run(tmp_path / "mma", toy_data, toy_dataset, settings, agent=False)
    model, _ = opened(ModelOptions(str(made), "low"))
    assert (model.engine, model.policy) == ("PyTorch", PolicySpec("mma"))
    with pytest.raises(UserError, match="cannot be exported"):
        opened(ModelOptions(str(made), "low", "onnx"))


def test_names(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_model(str(run)) == run
    with pytest.raises(UserError, match="model 'nowhere': no such folder, and no model of that name"):
        find_model("nowhere")
    monkeypatch.setattr("whilst.core.files.MODELS", tmp_path)
    make_copy(run, tmp_path / "a-b")
    assert find_model("a-b") == tmp_path / "a-b"
    for name in ("b-a", "", "../a-b/x"):
        with pytest.raises(UserError, match="whilst comes with a-b"):
            find_model(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "tensorrt"}, "--engine tensorrt: must be auto, torch, onnx"),
        ({"precision": "fp8"}, "--precision fp8: must be fp32 or int8"),
        ({"engine": "onnx", "device": "cuda"}, "--engine onnx works on the CPU"),
    ],
)
def test_wrong_options(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ModelOptions("x", **changes)  # type: ignore[arg-type]


def test_pytorch_cannot_use_an_export(exported: Path) -> None:
    with pytest.raises(UserError, match="PyTorch cannot use"):
        opened(ModelOptions(str(exported), "low", "torch"))


def without_torch(stdin: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)]
    return subprocess.run(line, input=stdin, capture_output=True, text=True, env=ENVIRONMENT, timeout=100)


def test_an_export_translates_without_pytorch(run: Path, exported: Path, lines: list[str]) -> None:
    text = "\n\n".join(lines[:5])
    chosen = "--latency", "low", "--precision", "fp32"
    done = without_torch(text, "live", "--model", exported, *chosen)
    assert (done.returncode, done.stderr) == (0, "")
    torchs = whilst("live", "--model", run, "--latency", "low", "--engine", "torch", stdin=text.encode())
    assert done.stdout == torchs.out != ""
    refused = without_torch(text, "live", "--model", run, *chosen, "--engine", "torch")
    assert refused.returncode != 0, "or PyTorch was there"


def test_evaluating_an_export_equals_its_run(run: Path, exported: Path, tmp_path: Path) -> None:
    names = "agent-1", "agent-1.threshold-0.45", "wait-2", "diagonal-2", "full"
    chosen = [word for name in names for word in ("--policy", name)]
    said = [
        whilst("evaluate", run, *chosen, "--device", "cpu", "--out", tmp_path),
        whilst("evaluate", exported, *chosen, "--precision", "fp32", "--out", tmp_path),
    ]
    assert [done.code for done in said] == [0, 0], said
    for name in names:
        batched, live = (tmp_path / f"test.{name}{ending}.jsonl.xz" for ending in ("", ".fp32"))
        for one, other in zip(read_trace(batched), read_trace(live), strict=True):
            assert (one.prediction, one.delays, one.reads) == (other.prediction, other.delays, other.reads)
        wanted, found = (read_record(record_path(trace)) for trace in (batched, live))
        assert found.scores == wanted.scores
        assert (found.system, found.model_sha256) == (wanted.system, wanted.model_sha256)
        assert (found.policy, found.source_sha256) == (f"{name}.fp32", wanted.source_sha256)
        assert found.settings["evaluate"] == wanted.settings["evaluate"]


def test_an_export_is_evaluated_on_the_cpu(exported: Path) -> None:
    said = whilst("evaluate", exported, "--device", "cuda")
    assert (said.code, said.err) == (2, "whilst: --engine onnx works on the CPU: leave out --device cuda\n")


@pytest.mark.parametrize("what", ["recipe.json", "model.safetensors"])
def test_incomplete_runs_are_errors_of_one_line(run: Path, tmp_path: Path, what: str) -> None:
    made = make_copy(run, tmp_path / "run")
    (made / what).unlink()
    for engine in ("torch", "onnx"):
        said = whilst("live", "--model", made, "--latency", "wait-1", "--engine", engine)
        assert (said.code, said.err.count("\n")) == (2, 1), said.err
        assert said.err.startswith(f"whilst: {made}: n")


def test_export_tells_where_the_agent_is(run: Path, tmp_path: Path) -> None:
    """`live` looks for it by itself; an export is of the folder that was named."""
    whole = make_copy(run, tmp_path / "run")
    shutil.rmtree(whole / AGENT)
    make_copy(run, whole / SEARCH)
    assert f"without an agent; export {whole / SEARCH}" in whilst("export", whole, tmp_path / "a").err
    assert "agent" not in whilst("export", whole / SEARCH, tmp_path / "b").err
