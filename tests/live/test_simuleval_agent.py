"""The real `simuleval` command with our agent: words, delays and figures of `whilst evaluate` on the same text."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.test_simuleval import FOLDER
from tests.helpers.commands import whilst
from tests.helpers.policies import FILE, forgotten
from tests.helpers.runs import CPU, ENVIRONMENT, changed, short_recipe
from whilst.core.config import read_recipe
from whilst.core.settings import Agent, Data, Search
from whilst.data.prepare import prepare
from whilst.evaluation.record import read_record
from whilst.evaluation.trace import read_trace
from whilst.training.train import train

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["word", "sentencepiece"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, toy_data: Data) -> Path:
    """Trained for some seconds, with room: random weights babble, and what is cut is said later when live."""
    folder = tmp_path_factory.mktemp("simuleval")
    data = replace(toy_data, dataset=str(folder / "set"), units=request.param, size=60)
    prepare(data)
    short = changed(short_recipe(data, folder / "run"), steps=400, batch_tokens=800, validate_every=400)
    short = changed(short, validate_bleu=False, keep="loss", save_every=400)
    short = replace(short, evaluate=replace(short.evaluate, max_extra=100))
    agent = Agent(hidden=16, train=replace(short.train, steps=30, validate_every=30))
    search = Search(intervals=((1, 4), (3, 6)))
    train(replace(short, stages=("translate", "agent"), search=search, agent=agent), CPU)
    return folder / "run"


def simuleval(run: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    text = run.parent / "set"
    files = "--source", text / "test.source.txt", "--target", text / "test.target.txt", "--output", out
    metrics = "--latency-metrics", "AL", "LAAL", "AP", "DAL"
    return subprocess.run(
        [sys.executable, "-c", "from simuleval.cli import main; main()", *map(str, files), *metrics, *arguments],
        env=ENVIRONMENT
        | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, FOLDER))), "XDG_CACHE_HOME": str(run.parent / "cache")},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "engine"), [("agent-1", "onnx"), ("wait-2", "torch"), ("ends-2", "torch")])
def test_simuleval_finds_what_evaluate_finds(run: Path, tmp_path: Path, policy: str, engine: str) -> None:
    agent = (
        ["--agent-class", "whilst.live.simuleval_agent.Whilst"]
        if engine == "onnx"
        else ["--agent", str(ROOT / "whilst" / "live" / "simuleval_agent.py")]
    )
    if policy == "ends-2" and read_recipe(run).data.units != "word":
        pytest.skip("after so little training words of many pieces have no end, and are cut (docs/simuleval.md)")
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    mine = ["--policy-file", str(tmp_path / "mine.py")] * (policy == "ends-2")
    of_run = "--model", str(run), "--policy", policy, *mine
    done = simuleval(run, tmp_path, *agent, *of_run, "--engine", engine, "--clean")
    assert done.returncode == 0, done.stderr
    with forgotten():
        said = whilst("evaluate", run, "--policy", policy, *mine, "--device", "cpu", "--out", tmp_path)
    assert said.code == 0, said.err
    ours = read_trace(tmp_path / f"test.{policy}.jsonl.xz")
    theirs = [json.loads(line) for line in (tmp_path / "instances.log").read_text(encoding="utf-8").splitlines()]
    assert [row["prediction"] for row in theirs] == [sentence.prediction for sentence in ours]
    assert [row["delays"] for row in theirs] == [list(sentence.delays) for sentence in ours]
    assert len({sentence.delays for sentence in ours}) > 9
    scores = read_record(tmp_path / f"test.{policy}.json").scores
    with (tmp_path / "scores.tsv").open(encoding="utf-8") as file:
        (figures,) = csv.DictReader(file, delimiter="\t")
    assert [float(figures[name]) for name in ("AL", "LAAL", "AP", "DAL")] == pytest.approx(
        [scores.al_word, scores.laal, scores.ap, scores.dal], abs=5.1e-4
    )


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    agent = "--agent-class", "whilst.live.simuleval_agent.Whilst"
    done = simuleval(tmp_path / "run", tmp_path, *agent, "--model", "nowhere")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("whilst: model 'nowhere': no such folder")
    assert "Traceback" not in done.stderr
