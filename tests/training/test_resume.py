"""A run that was killed at any moment resumes and ends with the same bits as one that was never stopped."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.runs import (
    CPU,
    ENVIRONMENT,
    about,
    assert_same,
    call,
    changed,
    command,
    elsewhere,
    history,
    short_recipe,
    tensors,
    wait_for,
    write_toml,
)
from whilst.core.errors import StoppedError, UserError
from whilst.core.files import locked
from whilst.core.settings import Data, Recipe
from whilst.data.dataset import Dataset
from whilst.model.transformer import Translator
from whilst.training.tasks import Validation, validate
from whilst.training.train import train


@pytest.fixture
def recipe(toy_data: Data, toy_folder: Path, tmp_path: Path) -> Recipe:
    """Dropout, random reads, several micro-batches and averaged weights."""
    assert toy_folder == Path(toy_data.dataset)
    short = changed(short_recipe(toy_data, tmp_path / "run"), accumulate=2, log_every=1)
    return dataclasses.replace(short, model=dataclasses.replace(short.model, dropout=0.3))


def assert_same_run(left: Path, right: Path) -> None:
    """Compare all files of two runs, without times and paths."""
    names = {path.name for path in left.iterdir()}
    assert names == {path.name for path in right.iterdir()}
    weights = sorted(name.removesuffix(".safetensors") for name in names if name.endswith(".safetensors"))
    assert weights == ["last", "model"]
    for name in weights:
        assert_same(tensors(left, name), tensors(right, name))
        assert about(left, name) == about(right, name)
    assert history(left) == history(right)


def test_interrupted_at_several_places(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal during validation: the step is finished and saved, and the same call resumes."""
    recipe = changed(recipe, validate_every=3, save_every=100)
    whole = train(recipe, CPU)
    recipe = elsewhere(recipe, "stopped")

    def interrupting(model: Translator, recipe: Recipe, dataset: Dataset) -> Validation:
        signal.raise_signal(number)
        return validate(model, recipe, dataset)

    for step, number in ((3, signal.SIGINT), (6, signal.SIGTERM)):
        with monkeypatch.context() as patch:
            patch.setattr("whilst.training.tasks.validate", interrupting)
            with pytest.raises(StoppedError, match=f"stopped after step {step}; the same command") as stopped:
                train(recipe, CPU)
            assert stopped.value.code == 128 + number
    assert_same_run(train(recipe, CPU), whole)


def test_a_second_training_of_the_same_folder_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with locked(tmp_path / "run") as other:
        assert other is None
        with pytest.raises(UserError, match=rf"run: process {os.getpid()} on .* is training it; .* --set run=…"):
            train(recipe, CPU)
    assert train(recipe, CPU).is_dir()


@pytest.mark.parametrize("moment", ["loop.Loop.finish", "loop.RunState.write_summary"])
def test_cut_off_after_the_last_step(recipe: Recipe, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Before the summary."""
    whole = train(recipe, CPU)
    recipe = elsewhere(recipe, "stopped")

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(f"whilst.training.{moment}", fail)
        with pytest.raises(MemoryError):
            train(recipe, CPU)
    assert_same_run(train(recipe, CPU), whole)


def test_a_second_control_c_stops_at_once(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupting_twice(model: Translator, recipe: Recipe, dataset: Dataset) -> Validation:  # noqa: ARG001
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("whilst.training.tasks.validate", interrupting_twice)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, CPU)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_same_command_continues(
    recipe: Recipe, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    recipe = changed(recipe, steps=100_000, validate_every=100_000, save_every=100_000)
    path, run = write_toml(recipe, tmp_path / "recipe.toml"), Path(recipe.run)
    with subprocess.Popen(
        command("train", path, "--device", "cpu"), stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        wait_for(lambda: len(history(run)) >= 3, process)
        second = call("train", path, "--device", "cpu")
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert f"process {process.pid} on " in second.stderr
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    step = about(run)["step"]
    assert step >= 3
    stopped = f"whilst: {run}: stopped after step {step}; the same command continues"
    assert said.splitlines()[-1] == stopped
    again = call("train", path, "--device", "cpu", "--set", f"train.steps={step + 2}")
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines()[0].endswith(f"continuing from step {step}")
    assert about(run)["step"] == step + 2


# The program, killed in the middle of the first checkpoint from a given step on.
CUT_OFF = """
import json, os, runpy, signal, sys
from pathlib import Path
from whilst.model import checkpoint

def save_half(tensors, path, about):
    whole(tensors, path, about)
    if "last" in path.name and json.loads(about["about"])["step"] >= int(first):
        os.truncate(path, Path(path).stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)

whole, checkpoint.save_file = checkpoint.save_file, save_half
first = sys.argv.pop(1)
runpy.run_module("whilst", run_name="__main__")
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bits(recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(recipe, steps=40, validate_every=4, save_every=2, patience=9)
    whole = train(recipe, CPU)
    recipe = elsewhere(recipe, "killed")
    path, run = write_toml(recipe, tmp_path / "recipe.toml"), Path(recipe.run)
    arguments = ("train", path, "--device", "cpu")
    moments = random.Random(1)

    # At random moments, three times.
    reached = 0
    for _ in range(3):
        target = reached + moments.randint(1, 8)
        with subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
            wait_for(lambda: bool(rows := history(run)) and rows[-1]["step"] >= target, process)  # noqa: B023
            time.sleep(moments.random() * 0.05)
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        reached = about(run)["step"] if (run / "last.safetensors").is_file() else 0
        assert reached < 40

    # In the middle of a checkpoint: half of it lies beside the previous one.
    step = reached + 3
    cut = [sys.executable, "-c", CUT_OFF, str(step), *map(str, arguments)]
    done = subprocess.run(cut, capture_output=True, text=True, env=ENVIRONMENT, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(list(run.glob(".last.safetensors.*.tmp"))) == 1
    assert reached < about(run)["step"] < step + 2

    (run / ".tmpAb12cD").touch()  # safetensors leaves such a file when it is killed
    done = call(*arguments)
    assert done.returncode == 0, done.stderr
    assert "continuing from step" in done.stderr
    assert about(run)["step"] == 40
    assert_same_run(run, whole)
