"""Every system of a pair by one command: the order of its runs, what is skipped, and what ends in the results."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.paper_results import ROOT
from tests.helpers.runs import call, whole_recipe, write_toml
from whilst.core.errors import UserError
from whilst.core.settings import Data, Evaluate
from whilst.data.prepare import prepare
from whilst.evaluation.record import read_records
from whilst.research import reproduce
from whilst.research.reproduce import Run, choose, estimate, execute, find_plan, load_plan

SWEEP = """
base = "base.toml"
run = "runs/tuned"
start = "runs/base"
stages = ["agent", "evaluate"]
[evaluate]
policies = ["agent-1", "agent-1.threshold-0.7"]
[sweep]
"train.seed" = [1, 2]
"""


@pytest.fixture
def plan(toy_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two agents on a translator, which the plan names last; the current folder is that of the pair's recipes."""
    folder = tmp_path / "recipes/toy.src-tgt"
    folder.mkdir(parents=True)
    recipe = whole_recipe(toy_data, Path("runs/base"), Evaluate(policies=("wait-1",)))
    write_toml(recipe, folder / "base.toml")
    text = (folder / "base.toml").read_text(encoding="utf-8")
    changed = text.replace(json.dumps(list(recipe.stages)), '["translate", "evaluate"]')
    (folder / "base.toml").write_text(changed, encoding="utf-8")
    (folder / "tuned.toml").write_text(SWEEP, encoding="utf-8")
    (folder / "plan.txt").write_text("# agents\ntuned.toml\nbase.toml # the translator\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder / "plan.txt"


def names(only: list[str]) -> list[str]:
    return [run.name for run, _ in choose(load_plan(find_plan("src-tgt"), []), only)]


def test_a_plan_is_found_by_its_folder_or_its_languages(plan: Path) -> None:
    for name in ("src-tgt", "toy.src-tgt", str(plan.parent)):
        assert find_plan(name).resolve() == plan
    with pytest.raises(UserError, match=r"--run de-en: name one of the plans: toy\.src-tgt"):
        find_plan("de-en")


@pytest.mark.usefixtures("plan")
def test_only_brings_what_the_chosen_runs_need() -> None:
    assert names([]) == ["tuned/1", "tuned/2", "base"]
    assert names(["base"]) == ["base"]
    assert names(["tuned/2"]) == ["tuned/2", "base"]
    assert names(["tuned"]) == names(["tuned/*"]) == ["tuned/1", "tuned/2", "base"]
    with pytest.raises(UserError, match="--only mma: the plan has tuned, base"):
        names(["mma"])


def fake(failing: str, begun: list[str]) -> Callable[..., object]:
    """In place of `Run.start`: runs of this name fail."""

    def start(run: Run, device: str) -> object:  # noqa: ARG001
        begun.append(run.name)
        return subprocess.Popen([sys.executable, "-c", f"exit({run.name == failing:d})"])

    return start


@pytest.mark.usefixtures("plan")
def test_runs_come_after_those_that_they_need_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(Run, "start", fake("tuned/1", begun))
    for wanted in (["base", "tuned/1", "tuned/2"], ["tuned/1"]):  # the second call runs again what failed
        begun.clear()
        left = execute(choose(load_plan(find_plan("src-tgt"), []), []), 1, "cpu")
        assert begun == wanted
        assert [run.name for run in left] == ["tuned/1"]
    begun.clear()
    left = execute(choose(load_plan(find_plan("src-tgt"), []), []), 0, "cpu")
    assert ([run.name for run in left], begun) == (["tuned/1"], []), "without jobs nothing is run"
    changed = choose(load_plan(find_plan("src-tgt"), ["train.steps=9"]), ["base"])
    assert [run.is_finished for run, _ in changed] == [False], "other settings are another run"


@pytest.mark.usefixtures("plan")
def test_what_needs_a_failed_run_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(Run, "start", fake("base", begun))
    left = execute(choose(load_plan(find_plan("src-tgt"), []), []), 2, "cpu")
    assert begun == ["base"]
    assert [run.name for run in left] == ["base", "tuned/1", "tuned/2"]


@pytest.mark.usefixtures("plan")
def test_the_command_of_a_run_is_one_that_people_can_type() -> None:
    tuned, _, base = load_plan(find_plan("src-tgt"), ["evaluate.batch=8"])
    sets = ["--no-text", "--set", "evaluate.batch=8"]
    assert tuned.command == ["train", "recipes/toy.src-tgt/tuned.toml", "--only", "1", *sets]
    assert base.command == ["train", "recipes/toy.src-tgt/base.toml", *sets]


@pytest.mark.parametrize("pair", ["en-vi", "vi-en"])
def test_the_plans_of_the_repository_have_estimates(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    runs = {run.name: run for run, _ in choose(load_plan(find_plan(pair), []), [])}
    seconds = {name: estimate(run.recipe, Path("results")) for name, run in runs.items()}
    assert {"full", "bs-simt", "seeds/3", "paper/authors/9-13/3", "ladder/whole/3"} <= seconds.keys()
    assert 60 < seconds["paper/paper/1-5/1"] < seconds["paper-multi-path/1"] < seconds["full"]


def test_options_of_run_need_it() -> None:
    done = call("paper", "--only", "mma")
    assert (done.returncode, done.stderr) == (2, "whilst: --only, --dry-run, --set: belong to --run PAIR\n")


@pytest.mark.slow
@pytest.mark.usefixtures("plan")
def test_a_plan_is_run_and_documented_and_not_run_again(toy_data: Data) -> None:
    prepare(toy_data)
    results = Path("results")
    results.mkdir()
    for finished, jobs in ((0, 2), (3, 2), (3, 0)):
        document = reproduce.reproduce("src-tgt", results, results / "paper", [], [], jobs, "cpu")
        logs = Path("runs/toy.src-tgt.plan")
        assert (logs / "tuned/2.log").read_text(encoding="utf-8").count("nothing left to do") == 0, finished
        assert "agent-1" in document.read_text(encoding="utf-8")
    assert not list(Path("runs").rglob("last.safetensors")), "weights only, which others start from"
    assert len(list(Path("runs").rglob("model.safetensors"))) == 5
    records = read_records([results])
    agents = ["agent-1", "agent-1", "agent-1.threshold-0.7", "agent-1.threshold-0.7"]
    assert sorted(record.policy for record in records) == [*agents, "wait-1"]
    [folder] = [path for path in results.iterdir() if path.name.endswith("src-tgt")]
    assert {path.name for path in folder.iterdir()} >= {"records.jsonl", "report.md", "curve.svg"}
    assert not [path for path in folder.iterdir() if path.is_dir()], "all are in the archive"
