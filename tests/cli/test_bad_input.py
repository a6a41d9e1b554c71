"""Input that no one means: one line that says what to do, and exit code 2, before anything is computed."""

import math
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.helpers.commands import whilst
from tests.helpers.evaluations import make
from whilst.cli import main
from whilst.evaluation.record import write_record

RECIPE = """
run = "run"
[data]
dataset = "set"
folder = "."
train = ["a", "a"]
valid = ["a", "a"]
test = ["a", "a"]
size = 20
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nested = "[" * 100_000 + "]" * 100_000
    files = {
        "recipe.toml": RECIPE,
        "a": "a b\nb a\n",
        "file": "x",
        "nul": "a\0b\nb a\n",
        "deep.toml": f"a = {nested}",
    }
    for name, text in (files | {"deep.json": nested, "deep.jsonl": f"{nested}\n"}).items():
        Path(name).write_text(text, encoding="utf-8")
    Path("folder").mkdir()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("prepare recipe.toml --set data.size=1000000000000", "data.size: must be from 1 to a million"),
        (
            "prepare recipe.toml --set data.minimum_frequency=100000",
            "no unit of src is seen 100000 times; lower it",
        ),
        ('prepare recipe.toml --set data.train=["folder","a"]', "folder: is a folder; name a file in it"),
        ('prepare recipe.toml --set data.train=["a","nul"]', "nul:1: has a NUL byte"),
        ("train recipe.toml --set model.width=1000000", "billion weights; choose less"),
        ("train recipe.toml --set model.encoder_layers=100000000", "billion weights; choose less"),
        ("train recipe.toml --set train.steps=1e20", "train.steps: must be a number below 1e+15, not 1e+20"),
        ("train recipe.toml --set train.steps=100000000000000000000", "train.steps: must be a number below"),
        ("train recipe.toml --set train.lr=nan", "train.lr: must be a number below"),
        ("train recipe.toml --set run=file", "run: file is a file; name a folder"),
        ("train recipe.toml --set run=file/run", "run: file is a file; name a folder"),
        ("train deep.toml", "deep.toml: not a recipe: its lists are nested too deeply"),
        ("evaluate run --out file", "--out: file is a file; name a folder"),
        ("report folder --out file/report", "--out: file is a file; name a folder"),
        ("report deep.json", "deep.json: not valid JSON (nested too deeply)"),
        ("score deep.jsonl", "deep.jsonl:1: not valid JSON (nested too deeply)"),
        ("serve --origin not-an-address", "--origin not-an-address: write it as https://example.org"),
        ("serve --origin https://example.org/page", "write it as https://example.org, without a path"),
        ("serve --idle -1", "Invalid value for '--idle': "),
        ("analyse run --points 100000", "Invalid value for '--points': "),
    ],
)
def test_it_is_one_line(command: str, message: str) -> None:
    done = whilst(*command.split())
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, ""), done.err
    assert message in done.err


def test_records_with_nan() -> None:
    record = make("multi-path", "wait-1", 2.0, 20.0)
    for number in (2.0, math.nan):
        write_record(Path("r.json"), replace(record, seconds=number))
        done = whilst("report", "r.json", "--out", "report")
        assert (done.code, done.err.count("\n")) == (2 if math.isnan(number) else 0, 1), done.err
    assert done.err == "whilst: r.json: seconds: must be a number below 1e+15, not nan\n"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 4 bytes\nError code 12")])
def test_too_little_memory(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", mock.Mock(side_effect=error))
    assert whilst("train") == (2, "", "whilst: not enough memory; choose a smaller model or smaller batches\n")
    monkeypatch.setattr(main, "app", mock.Mock(side_effect=RuntimeError("a mistake of ours")))
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        whilst("train")
