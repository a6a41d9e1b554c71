"""`whilst calibrate`, and what uses its table: every command that translates, exports and bundles."""

import shutil
from pathlib import Path

import pytest

import whilst
from tests.helpers.commands import whilst as call
from tests.helpers.random_runs import make_run, make_varied_run
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.evaluation.calibrate import TOLERANCE, next_threshold
from whilst.model.lags import Lag, LagTable, read_lags

TABLE = LagTable(
    "0",
    20,
    tuple(
        Lag(f"agent-{first}.threshold-{threshold}", lag, lag, lag, lag, 30.0)
        for first, threshold, lag in ((1, 0.4, 1.0), (1, 0.6, 3.0), (3, 0.4, 3.5), (3, 0.6, 5.5))
    ),
)
CHOSEN = "lag-2.5 is agent-1.threshold-0.55: 2.5 words behind on the development set"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's cache is touched."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory, toy_data: Data, toy_dataset: Dataset) -> Path:
    """With a table that was not measured. Shared: do not change it."""
    run = make_varied_run(tmp_path_factory.mktemp("lags") / "run", toy_data, toy_dataset)
    TABLE.write(run)
    return run


@pytest.fixture(scope="module")
def line(toy_dataset: Dataset) -> bytes:
    return toy_dataset.text("test")[0][0].encode()


def test_the_searched_latency_is_reached(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> None:
    """On the development set; and it is what an evaluation measures."""
    run = make_varied_run(tmp_path / "run", toy_data, toy_dataset)
    done = call("calibrate", run, "--sentences", "0", "--device", "cpu")
    assert done.code == 0, done.err
    assert done.err.splitlines()[-1] == str(run / "agent" / "lags.json")
    table = read_lags(run)
    assert table.sentences == len(toy_dataset.split("valid").source)
    for first in ("1", "3"):
        mine = [row for row in table.rows if row.spec.argument == first]
        assert mine[0].policy == f"oracle-{first}"
        near = min(mine[1:], key=lambda row: abs(row.al - mine[0].al))
        assert abs(near.al - mine[0].al) <= TOLERANCE
        assert f"oracle-{first} has AL {mine[0].al:.2f}, {near.policy} {near.al:.2f}\n" in done.err
        settings = ["evaluate.split=valid"]
        names = [row.policy for row in (mine[0], near)]
        records = whilst.evaluate(run, names, device="cpu", settings=settings, out=tmp_path / first)
        for row, record in zip((mine[0], near), records, strict=True):
            assert record.scores.al == pytest.approx(row.al, abs=1e-3)
            assert record.scores.laal == pytest.approx(row.laal, abs=1e-3)
            assert record.scores.sacrebleu == pytest.approx(row.sacrebleu, abs=1e-3)


def test_a_sample_is_spread_evenly(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> None:
    run = make_varied_run(tmp_path / "run", toy_data, toy_dataset)
    assert call("calibrate", run, "--sentences", "3", "--device", "cpu").code == 0
    assert read_lags(run).sentences == 3


def test_only_agents_are_calibrated(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> None:
    run = make_run(tmp_path / "run", toy_data, toy_dataset, agent=False)
    assert f"{run} has no agent" in call("calibrate", run).err
    for engine in ("onnx", "torch"):
        done = call("live", "--model", run, "--lag", "3", "--engine", engine)
        assert (done.code, done.err) == (
            2,
            f"whilst: {run}: its lags are not known; calibrate a run with an agent\n",
        )


def test_where_a_searched_latency_is_expected() -> None:
    rows = [Lag(f"agent-1.threshold-{threshold}", 0, al, 0, 0, 0) for threshold, al in ((0.6, 4.0), (0.4, 2.0))]
    for al, threshold in ((3.0, 0.5), (2.5, 0.45), (4.0, 0.6), (1.0, 0.2), (9.0, 0.8)):
        assert next_threshold(rows, al) == pytest.approx(threshold)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_live(calibrated: Path, engine: str, line: bytes) -> None:
    chosen = "live", "--model", calibrated, "--engine", engine, "--precision", "fp32"
    done = call(*chosen, "--lag", "2.5", stdin=line)
    assert done.code == 0
    assert done.err.splitlines()[-1] == f"whilst: {CHOSEN}"
    assert done.out == call(*chosen, "--latency", "agent-1.threshold-0.55", stdin=line).out != ""


def test_translate_and_evaluate(calibrated: Path, line: bytes, tmp_path: Path) -> None:
    done = call("translate", calibrated, "--lag", "2.5", "--device", "cpu", stdin=line)
    named = call("translate", calibrated, "--policy", "agent-1.threshold-0.55", "--device", "cpu", stdin=line)
    assert (done.code, done.out, done.err) == (0, named.out, f"{CHOSEN}\n")
    said = call("evaluate", calibrated, "--lag", "2.5", "--lag", "4.5", "--device", "cpu", "--out", tmp_path)
    assert CHOSEN in said.err
    traces = {path.name for path in tmp_path.glob("*.json")}
    assert traces == {"test.agent-1.threshold-0.55.json", "test.agent-3.json"}, "whose threshold is 0.5"


def test_python_and_sessions(calibrated: Path, line: bytes) -> None:
    for engine in ("torch", "onnx"):
        model = whilst.open_model(calibrated, engine=engine, precision="fp32")
        session = model.session("lag-2.5")
        events = [*session.feed(line.decode()), *session.finish()]
        [sentence] = model.translate([line.decode()], policy="lag-2.5")
        assert sentence.words == [event.text for event in events if isinstance(event, whilst.Word)]
        assert model.policy_of("lag-2.5") == PolicySpec("agent", "1", 0.55)
        with pytest.raises(UserError, match=r"policy lag-9: the lags of this agent are from 1.0 to 5.5 words"):
            model.session("lag-9")


def test_an_export_and_a_bundle_keep_the_table(calibrated: Path, line: bytes, tmp_path: Path) -> None:
    exported, bundled = tmp_path / "exported", tmp_path / "bundled"
    assert call("export", calibrated, exported, "--precision", "int8").code == 0
    assert call("bundle", calibrated, bundled).code == 0
    for folder in (exported, bundled, bundled / "engine"):
        assert read_lags(folder) == TABLE
        done = call("live", "--model", folder, "--lag", "2.5", stdin=line)
        assert (done.code, done.err) == (0, f"whilst: {CHOSEN}\n")
    assert call("translate", exported, "--lag", "2.5", stdin=line).err == f"{CHOSEN}\n"
    said = call("evaluate", exported, "--lag", "2.5", "--lag", "4.5", "--out", tmp_path / "evaluations")
    assert CHOSEN in said.err
    assert (tmp_path / "evaluations" / "test.agent-1.threshold-0.55.int8.json").is_file()
    TABLE.write(bundled)  # as calibrating a bundle does: its manifest still holds
    assert call("live", "--model", bundled, "--latency", "low", stdin=line).code == 0


def test_an_old_table_is_not_exported(calibrated: Path, line: bytes, tmp_path: Path) -> None:
    run = Path(shutil.copytree(calibrated, tmp_path / "run"))
    path = run / "agent" / "lags.json"
    path.write_text(path.read_text().replace('"model.safetensors": "', '"model.safetensors": "0'))
    said = call("export", run, tmp_path / "out", "--precision", "int8").err
    assert said.startswith(f"left out: {path}: was measured with other weights, which have changed since; run ")
    assert not (tmp_path / "out" / "lags.json").exists()
    assert call("live", "--model", run, "--latency", "low", "--engine", "torch", stdin=line).err == ""
    done = call("live", "--model", run, "--lag", "2.5", "--engine", "torch", stdin=line)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "other weights" in done.err


def test_one_of_two_options(calibrated: Path) -> None:
    for arguments in (("live", "--latency", "low", "--model"), ("translate", "--policy", "wait-1")):
        done = call(*arguments, calibrated, "--lag", "3")
        assert (done.code, done.err) == (
            2,
            f"whilst: --lag and {arguments[2]}: both choose the policy; leave one out\n",
        )
