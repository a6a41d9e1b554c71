"""The setting `logger`: the figures of a training go to a function of the user's own."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.helpers.runs import CPU, changed, history, short_recipe
from whilst.core.errors import UserError
from whilst.core.settings import Data, Recipe
from whilst.training.train import train

MODULE = """
import contextlib, json

@contextlib.contextmanager
def log(recipe, step):
    with open("log.jsonl", "a") as file:
        file.write(json.dumps([recipe.run, step]) + "\\n")
        yield lambda step, figures: file.write(json.dumps([step, figures]) + "\\n")
        file.write(json.dumps("closed") + "\\n")

@contextlib.contextmanager
def refuse(recipe, step):
    raise PermissionError("not logged in")
    yield

@contextlib.contextmanager
def fail(recipe, step):
    yield lambda step, figures: figures["train/perplexity"]
"""


@pytest.fixture
def recipe(toy_data: Data, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    assert toy_folder == Path(toy_data.dataset)
    (tmp_path / "own_logger.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    short = changed(short_recipe(toy_data, tmp_path / "run"), steps=4, log_every=1, validate_every=2)
    return dataclasses.replace(short, logger="own_logger:log")


def test_a_logger_has_all_figures_of_the_history_and_the_speed(recipe: Recipe) -> None:
    run = train(recipe, CPU)
    train(changed(recipe, steps=5), CPU)
    first, *logged = map(json.loads, Path("log.jsonl").read_text().splitlines())
    assert first == [str(run), 0]
    assert logged.count("closed") == 2
    assert logged[logged.index("closed") + 1] == [str(run), 4]
    rows = [{"step": line[0]} | line[1] for line in logged if isinstance(line[0], int)]
    assert all(row.pop("train/tokens_per_second") > 0 for row in rows if "train/loss" in row)
    assert rows == [{name: value for name, value in row.items() if value is not None} for row in history(run)]


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        ("no_such:log", "logger no_such:log: ModuleNotFoundError: No module named 'no_such'"),
        ("own_logger:lok", "logger own_logger:lok: AttributeError: "),
        ("own_logger:refuse", "logger own_logger:refuse: own_logger.py:13: PermissionError: not logged in"),
        ("own_logger:fail", "logger own_logger:fail: own_logger.py:18: KeyError: 'train/perplexity'"),
    ],
)
def test_its_mistakes_are_one_line(recipe: Recipe, logger: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}") as error:
        train(dataclasses.replace(recipe, logger=logger), CPU)
    assert "\n" not in str(error.value)
