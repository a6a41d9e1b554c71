"""Two processes under torchrun train as one does with the same micro-batches, and one can resume for two."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.helpers.runs import (
    CPU,
    ENVIRONMENT,
    about,
    changed,
    elsewhere,
    history,
    short_recipe,
    tensors,
    wait_for,
    write_toml,
)
from whilst.core.settings import Data, Evaluate, Recipe
from whilst.training.loop import stop_signals
from whilst.training.train import train


def launch(*recipes: Recipe) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    files = [str(write_toml(recipe, Path(recipe.run).with_suffix(".toml"))) for recipe in recipes]
    return [*launcher, "-m", "whilst", "train", *files, "--device", "cpu"]


def torchrun(*recipes: Recipe) -> subprocess.CompletedProcess[str]:
    return subprocess.run(launch(*recipes), capture_output=True, text=True, env=ENVIRONMENT, timeout=100)


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")  # noqa: B023


def test_two_processes_do_what_one_does(toy_data: Data, toy_folder: Path, tmp_path: Path) -> None:
    assert toy_folder == Path(toy_data.dataset)
    recipe = short_recipe(toy_data, tmp_path / "one")
    # The rate of the paper's preset does not depend on the length of the run, so that it may grow below.
    recipe = changed(recipe, preset="paper", clip=1.0, steps=12, accumulate=2, log_every=1, validate_every=4)
    recipe = changed(recipe, validate_bleu=False, keep="loss")  # a single word that flips would be no mistake
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, dropout=0.3))
    one = train(recipe, CPU)

    recipe = elsewhere(recipe, "two")
    done = torchrun(changed(recipe, steps=8))
    assert done.returncode == 0, done.stderr
    two = Path(recipe.run)
    assert about(two)["step"] == 8
    said = done.stderr.splitlines()
    # Each message is printed by one process only.
    validated = [line.split("validation")[0].split() for line in said if "  validation loss " in line]
    assert validated == [["step", "4"], ["step", "8"]]
    rows = history(two)
    assert [row["step"] for row in rows if "train/loss" in row] == list(range(1, 9))
    assert [row["step"] for row in rows if "valid/loss" in row] == [4, 8]

    # One process resumes where two stopped.
    assert train(recipe, CPU) == two
    for mine, theirs in zip(history(one), history(two), strict=True):
        assert mine.pop("valid/bleu", None) is theirs.pop("valid/bleu", None) is None
        assert mine == pytest.approx(theirs, rel=1e-5)
    assert_close(tensors(two), tensors(one))
    assert_close(tensors(two, "model"), tensors(one, "model"))
    assert about(one)["place"] == about(two)["place"]


@pytest.mark.slow
def test_several_recipes_and_a_teacher(toy_data: Data, toy_folder: Path, tmp_path: Path) -> None:
    """The first process translates for pupils and evaluates while the other waits."""
    assert toy_folder == Path(toy_data.dataset)
    evaluate = Evaluate(policies=("wait-1",), max_ratio=0.2, max_extra=2)
    recipe = dataclasses.replace(short_recipe(toy_data, tmp_path / "one"), evaluate=evaluate)
    recipe = changed(recipe, steps=2, accumulate=2, validate_bleu=False, keep="loss")
    teacher = dataclasses.replace(recipe, stages=("translate", "evaluate"))
    pupil = dataclasses.replace(elsewhere(teacher, "two"), teacher=teacher.run)
    done = torchrun(pupil, teacher)
    assert done.returncode == 0, done.stderr
    for run in (teacher.run, pupil.run):
        assert (Path(run) / "evaluations" / "test.wait-1.json").is_file()
    assert [done.stderr.count(said) for said in ("recipe 2 of 2", "translated by", "nothing left")] == [1, 1, 0]
    again = torchrun(teacher, pupil)
    assert again.returncode == 0, again.stderr
    assert [again.stderr.count(said) for said in ("evaluated already", "nothing left to do")] == [2, 2]


def test_torchrun_may_repeat_a_signal() -> None:
    """It sends one to its processes, which had it already if it came from a terminal or a cluster."""
    with stop_signals(alone=False) as received:
        assert received() == 0
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        assert received() == signal.SIGINT


@pytest.mark.slow
def test_all_processes_stop_at_the_same_step(toy_data: Data, toy_folder: Path, tmp_path: Path) -> None:
    """Otherwise one would wait for the gradients of the other."""
    assert toy_folder == Path(toy_data.dataset)
    recipe = changed(short_recipe(toy_data, tmp_path / "one"), steps=10_000, accumulate=2, validate_every=10_000)
    launcher = subprocess.Popen(launch(recipe), stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    run = Path(recipe.run)
    wait_for(lambda: (run / "last.safetensors").is_file(), launcher)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    assert (second := torchrun(recipe)).returncode
    assert second.stderr.count(f"whilst: {run}: process {children[0]} on ") == 1, second.stderr
    os.kill(int(children[-1]), signal.SIGTERM)  # only one process gets the signal
    _, said = launcher.communicate(timeout=100)
    steps = re.findall(r"stopped after step (\d+)", said)
    assert len(steps) == 2, said
    assert len(set(steps)) == 1
    assert about(run)["step"] == int(steps[0])
