"""How long training takes, measured before it starts."""

import dataclasses
from pathlib import Path

import pytest

from tests.helpers.runs import CPU, changed, history, short_recipe, whole_recipe
from whilst.core.console import duration
from whilst.core.settings import Data, Evaluate, Recipe
from whilst.data.dataset import Dataset
from whilst.training import estimate as estimates
from whilst.training.estimate import announce, estimate
from whilst.training.train import stages, train


@pytest.fixture
def recipe(toy_data: Data, toy_folder: Path, tmp_path: Path) -> Recipe:
    assert toy_folder == Path(toy_data.dataset)
    return whole_recipe(toy_data, tmp_path / "run", Evaluate(policies=("wait-1", "wait-3")))


def with_seconds(recipe: Recipe, seconds: float, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Every update, every label and every translated text takes so long."""
    monkeypatch.setattr(estimates, "time_call", lambda work, _: (seconds, work()))
    return recipe


def test_all_stages_are_measured_and_nothing_is_written(recipe: Recipe, toy_dataset: Dataset) -> None:
    times = estimate(recipe, stages(recipe), toy_dataset, CPU)
    assert list(times) == ["translate", "search", "agent", "evaluate"]
    assert all(0 < seconds < 60 for seconds in times.values())
    assert not Path(recipe.run).exists()


def test_time_grows_with_the_work(recipe: Recipe, toy_dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = changed(with_seconds(recipe, 2.0, monkeypatch), validate_bleu=False, keep="loss")
    recipe = dataclasses.replace(recipe, stages=("translate",))

    def seconds(recipe: Recipe) -> float:
        return estimate(recipe, stages(recipe), toy_dataset, CPU)["translate"]

    # 2 s for 256 tokens, which is long enough to be measured
    assert seconds(recipe) == pytest.approx(2.0 * 4 * 400 / 256)
    assert seconds(changed(recipe, steps=8)) == pytest.approx(2 * seconds(recipe))
    assert seconds(changed(recipe, accumulate=3)) == pytest.approx(3 * seconds(recipe))
    validated = changed(recipe, validate_bleu=True, steps=8, validate_every=4)
    assert seconds(validated) > seconds(changed(recipe, steps=8))


def test_over_an_hour_there_is_a_warning_before_training(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = dataclasses.replace(recipe, stages=("translate", "agent"))
    with_seconds(recipe, 1000.0, monkeypatch)
    train(recipe, CPU)
    first, second, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{recipe.run}: about ")
    assert " h on CPU (" in first
    assert second.startswith("warning: this takes over an hour; choose a smaller")
    for name in ("steps", "batch_tokens", "model.width", "model.encoder_layers", "--device cuda"):
        assert name in second
    assert " steps" in rest[0]
    train(dataclasses.replace(recipe, stages=("translate", "agent", "evaluate")), CPU)
    assert "about" not in capsys.readouterr().err, "it is trained already"


def test_short_training_has_no_warning(
    recipe: Recipe, toy_dataset: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    announce(recipe, stages(recipe), toy_dataset, CPU)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "translate" in said
    assert "evaluate" in said


def test_measuring_changes_no_training(
    toy_data: Data, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toy_folder == Path(toy_data.dataset)
    rows = []
    for name in ("measured", "not"):
        train(short_recipe(toy_data, tmp_path / name), CPU)
        rows.append(history(tmp_path / name))
        monkeypatch.setattr("whilst.training.train.announce", lambda *_: None)
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_the_estimate_is_near_the_truth(toy_data: Data, toy_dataset: Dataset, tmp_path: Path) -> None:
    """Within a factor of three: other work on the machine comes and goes."""
    recipe = changed(short_recipe(toy_data, tmp_path), steps=150, batch_tokens=1500, validate_every=150)
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, width=96))
    expected = estimate(recipe, stages(recipe), toy_dataset, CPU)["translate"]
    began = estimates.clock(CPU)
    train(recipe, CPU)
    assert expected / 3 < estimates.clock(CPU) - began < 3 * expected


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (742_000, "206 h")]
)
def test_durations_are_rounded(seconds: float, text: str) -> None:
    assert duration(seconds) == text
