"""One recipe with lists of values: a run for each place in the lists."""

import dataclasses
from pathlib import Path

import pytest

from tests.helpers.runs import call
from whilst.core.config import load_recipe, load_sweep
from whilst.core.errors import UserError

WAIT = """
run = "runs/wait"

[sweep]
"objective.k" = [1, 3]
"evaluate.policies" = [["wait-1"], ["wait-3"]]
"train.seed" = [7, 8]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "a.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_sweep_is_a_run_for_each_place_in_its_lists(tmp_path: Path) -> None:
    one, three = load_sweep(write(tmp_path, WAIT), ["train.steps=9"])
    assert (one.run, one.objective.k, one.evaluate.policies) == ("runs/wait/1", 1, ("wait-1",))
    assert (three.run, three.objective.k, three.evaluate.policies) == ("runs/wait/3", 3, ("wait-3",))
    assert [run.train.steps for run in (one, three)] == [9, 9]
    assert [run.agent.train.seed for run in (one, three)] == [7, 8], "the seed of a run is that of all its stages"


def test_a_sweep_starts_from_the_overridden_run(tmp_path: Path) -> None:
    runs = load_sweep(write(tmp_path, WAIT), ["run=x"])
    assert [run.run for run in runs] == ["x/1", "x/3"]


def test_one_run_of_a_sweep_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, WAIT)
    assert [run.run for run in load_sweep(path, [], ["3"])] == ["runs/wait/3"]
    with pytest.raises(UserError, match=r"--only 2: .*a\.toml has the runs 1, 3"):
        load_sweep(path, [], ["2"])


TWO = """
run = "runs/{data.source}/agents"
start = "runs/multi-path/{train.seed}"

[[sweep]]
"search.intervals" = [[[1, 5]], [[3, 7]], [[1, 5], [3, 7]]]
"evaluate.policies" = [["agent-1"], ["agent-3"], ["agent-1", "agent-3"]]

[[sweep]]
"train.seed" = [1, 2]
"""


def test_several_sweeps_are_multiplied(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    runs = load_sweep(path, ["data.source=de"])
    names = "1-5/1", "1-5/2", "3-7/1", "3-7/2", "1-5_3-7/1", "1-5_3-7/2"
    assert [run.run for run in runs] == [f"runs/de/agents/{name}" for name in names]
    assert [run.start for run in runs] == ["runs/multi-path/1", "runs/multi-path/2"] * 3
    assert {(run.search.intervals, run.evaluate.policies) for run in runs[2:4]} == {(((3, 7),), ("agent-3",))}
    assert [run.agent.train.seed for run in runs] == [1, 2] * 3


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["3-7/2"], ["3-7/2"]),
        (["2"], ["1-5/2", "3-7/2", "1-5_3-7/2"]),
        (["3-7/*", "1-5/1"], ["1-5/1", "3-7/1", "3-7/2"]),
    ],
)
def test_some_runs_of_several_sweeps_can_be_chosen(tmp_path: Path, only: list[str], names: list[str]) -> None:
    runs = load_sweep(write(tmp_path, TWO), [], only)
    assert [run.run.removeprefix("runs/src/agents/") for run in runs] == names


def test_a_path_may_contain_the_value_of_a_setting(tmp_path: Path) -> None:
    path = write(tmp_path, 'run = "r/{train.seed}"\nteacher = "full/{train.seed}"\ntrain.seed = 3')
    assert (load_recipe(path, []).run, load_recipe(path, ["train.seed=4"]).teacher) == ("r/3", "full/4")
    with pytest.raises(UserError, match=r"a\.toml: \{train\.sede\}: there is no setting 'train\.sede'"):
        load_recipe(path, ["start=x/{train.sede}"])


def test_a_recipe_names_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, WAIT)
    assert [run.file for run in load_sweep(path, [])] == [str(path)] * 2
    assert load_sweep(path, [])[0] == dataclasses.replace(load_sweep(path, [])[0], file="elsewhere")


def test_other_commands_read_the_recipe_without_its_sweep(tmp_path: Path) -> None:
    path = write(tmp_path, WAIT)
    assert load_recipe(path, []).run == "runs/wait"
    path.write_text('run = "runs/alone"', encoding="utf-8")
    assert load_sweep(path, []) == [load_recipe(path, [])]


def test_a_recipe_inherits_the_sweep_of_its_base_and_may_replace_its_lists(tmp_path: Path) -> None:
    write(tmp_path, 'run = "a"\n[sweep]\n"objective.latency_average" = [0.05, 1.0]')
    other = tmp_path / "b.toml"
    other.write_text('base = "a.toml"\nrun = "b"', encoding="utf-8")
    assert [run.run for run in load_sweep(other, [])] == ["b/0.05", "b/1.0"]
    other.write_text('base = "a.toml"\n[sweep]\n"objective.latency_average" = [2]', encoding="utf-8")
    (run,) = load_sweep(other, [])
    assert (run.run, run.objective.latency_average) == ("a/2", 2.0)


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ('"objective.k" = 3', "write it as"),
        ('"objective.k" = []', "write it as"),
        ("objective.k = [1, 2]", "write it as"),
        ('"objective.k" = [1, 2]\n"train.seed" = [1]', "the same length"),
        ('"objective.k" = [1, 1]', "1 is invalid or repeated"),
        ('"data.train" = [["a b"], ["c"]]', "a b is invalid or repeated"),
        ("", "write it as"),
        ('"objective.q" = [1, 2]', "unknown setting 'objective.q'"),
        ('"objective.k" = ["one", "two"]', "objective.k: must be a whole number"),
    ],
)
def test_a_sweep_with_a_mistake(tmp_path: Path, sweep: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_sweep(write(tmp_path, f"[sweep]\n{sweep}"), [])


def test_a_swept_setting_cannot_be_given_too(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--set objective\.k: .* choose a value with --only"):
        load_sweep(write(tmp_path, WAIT), ["objective.k=2"])


def test_train_makes_the_runs_of_a_sweep(tmp_path: Path) -> None:
    done = call("train", write(tmp_path, WAIT), "--only", "5")
    assert done.returncode == 2
    assert "--only 5" in done.stderr
