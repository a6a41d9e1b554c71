"""Small runs that the tests of training, resuming and of the commands share."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whilst.core.config import to_table
from whilst.core.settings import Agent, Data, Evaluate, Model, Recipe, Search, Train
from whilst.model.checkpoint import load_tensors

CPU = torch.device("cpu")
MODEL = Model(width=32, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=64, dropout=0.1)
SHORT = Train(
    steps=8,
    batch_tokens=400,
    lr=0.01,
    warmup=2,
    ema=0.9,
    validate_every=2,
    save_every=3,
    log_every=2,
)
LAST = dataclasses.replace(SHORT, steps=2, validate_bleu=False, keep="loss")  # of later stages
# One thread each: tests run side by side.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def short_recipe(data: Data, run: Path) -> Recipe:
    return Recipe(run=str(run), data=data, model=MODEL, train=SHORT)


def whole_recipe(data: Data, run: Path, evaluate: Evaluate) -> Recipe:
    """All stages."""
    return Recipe(
        run=str(run),
        stages=("translate", "search", "agent", "evaluate"),
        data=data,
        model=MODEL,
        train=dataclasses.replace(SHORT, steps=4, validate_every=4),
        search=Search(intervals=((1, 5), (2, 6)), train=LAST),
        agent=Agent(hidden=8, train=LAST),
        evaluate=evaluate,
    )


def changed(recipe: Recipe, **settings: Any) -> Recipe:
    """The recipe with other settings of training."""
    return dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, **settings))


def elsewhere(recipe: Recipe, name: str) -> Recipe:
    """The same in another folder beside."""
    return dataclasses.replace(recipe, run=str(Path(recipe.run).with_name(name)))


def write_toml(recipe: Recipe, path: Path) -> Path:
    """A recipe as a file; what is None is left out."""

    def lines(table: dict[str, Any], where: str) -> list[str]:
        plain = {name: value for name, value in table.items() if value is not None and not isinstance(value, dict)}
        written = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
        for name, inner in table.items():
            if isinstance(inner, dict):
                written += [f"[{where}{name}]", *lines(inner, f"{where}{name}.")]
        return written

    path.write_text("\n".join(lines(to_table(recipe), "")), encoding="utf-8")
    return path


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "whilst", *map(str, arguments)]


def call(*arguments: str | Path, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
    """Run a command as people do, but piped."""
    done = subprocess.run(
        command(*arguments),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=ENVIRONMENT,
        timeout=100,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 100
    while not condition():
        assert process.poll() is None, "it ended before it should"
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.005)


def history(run: Path) -> list[dict[str, Any]]:
    path = run / "history.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def tensors(run: Path, name: str = "last") -> dict[str, Tensor]:
    return load_tensors(run / f"{name}.safetensors", CPU)[0]


def about(run: Path, name: str = "last") -> dict[str, Any]:
    return load_tensors(run / f"{name}.safetensors", CPU)[1]


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """To the bit."""
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype, name
        assert torch.equal(tensor, right[name]), name


class Replayed:
    """Replaces CapturedGraph on a CPU: runs the work again instead of replaying a graph."""

    def __init__(self, work: Callable[..., Tensor], inputs: Sequence[Tensor], *_: Any) -> None:
        self.work = work
        work(*inputs)  # recording runs it too

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        return self.work(*inputs)
