"""Run folders that other runs depend on are not replaced, mixed up or measured by mistake."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.runs import CPU, LAST, about, changed, elsewhere, short_recipe, whole_recipe
from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256
from whilst.core.settings import Data, Evaluate, Recipe
from whilst.data.dataset import Dataset, TokenSequences
from whilst.data.prepare import prepare
from whilst.evaluation.record import read_record
from whilst.model.checkpoint import load_run
from whilst.training.loop import Loop
from whilst.training.tasks import Validation, make_task
from whilst.training.train import in_order, stages, train


@pytest.fixture(scope="module")
def whole(toy_data: Data, toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A run with all stages."""
    assert toy_folder == Path(toy_data.dataset)
    evaluate = Evaluate(policies=("agent-1",), max_ratio=0.2, max_extra=2)
    recipe = whole_recipe(toy_data, tmp_path_factory.mktemp("whole") / "run", evaluate)
    train(recipe, CPU)
    return recipe


def only(recipe: Recipe, *names: Any, **settings: Any) -> Recipe:
    return dataclasses.replace(recipe, stages=names, **settings)


def test_an_agent_alone_does_not_replace_a_translator(whole: Recipe) -> None:
    run = Path(whole.run)
    before = sha256(run / "model.safetensors")
    with pytest.raises(UserError, match=f"^run: {run} has a trained model.*--set run={run}/search"):
        train(only(whole, "agent", start=f"{run}/search"), CPU)
    assert sha256(run / "model.safetensors") == before
    again = elsewhere(only(whole, "agent", start=f"{run}/search"), "agent alone")
    for _ in range(2):  # the second call finds the copy of the translator
        train(again, CPU)
    assert sha256(Path(again.run) / "model.safetensors") == sha256(run / "search" / "model.safetensors")


def test_evaluation_alone_uses_the_recipes_settings(whole: Recipe) -> None:
    evaluate = dataclasses.replace(whole.evaluate, split="valid", max_extra=1, policies=("wait-1",))
    train(only(whole, "evaluate", evaluate=evaluate), CPU)
    record = read_record(Path(whole.run) / "evaluations" / "valid.wait-1.json")
    assert (record.split, record.settings["evaluate"]["max_extra"]) == ("valid", 1)


def test_an_agent_belongs_to_the_weights_that_it_was_trained_for(whole: Recipe) -> None:
    tuned = Path(whole.run) / "search"
    assert about(tuned / "agent", "model")["start"] == sha256(tuned / "model.safetensors")
    assert load_run(tuned, CPU).agent is not None
    other = elsewhere(whole, "changed")
    train(other, CPU)
    tuned = Path(other.run) / "search"
    before = (tuned / "model.safetensors").read_bytes()
    (tuned / "model.safetensors").write_bytes((Path(other.run) / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match="was trained for other weights"):
        load_run(tuned, CPU)
    (tuned / "model.safetensors").write_bytes(before)
    train(changed(only(other, "translate", "search"), seed=5), CPU, restart=True)
    assert load_run(tuned, CPU).agent is None, "a restarted run has none"
    train(other, CPU, restart=True)
    assert load_run(tuned, CPU).agent is not None


def test_a_finished_run_keeps_its_weights(
    toy_data: Data, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later runs compare the checksum of the file."""
    assert toy_folder == Path(toy_data.dataset)
    recipe = changed(short_recipe(toy_data, tmp_path), steps=4)
    run = train(recipe, CPU)
    assert about(run)["best"] == about(run, "model")["validation"]
    before = sha256(run / "model.safetensors")
    monkeypatch.setattr(Loop, "validate", lambda *_: pytest.fail("validated again"))
    train(recipe, CPU)
    assert sha256(run / "model.safetensors") == before


def test_a_start_must_have_the_units_of_the_text(whole: Recipe, toy_data: Data, tmp_path: Path) -> None:
    """Otherwise ids would mean other words."""
    data = dataclasses.replace(toy_data, minimum_frequency=100, dataset=str(tmp_path / "dataset"))
    other = Dataset.open(prepare(data))
    run = Path(whole.run)
    for name in ("search", "agent"):
        start = only(whole, name, start=str(run), run=str(tmp_path / name))
        stage = stages(start)[0]
        with pytest.raises(UserError, match=f"^start: {run} reads other units than"):
            make_task(stage, other, CPU)
    wide = dataclasses.replace(stage, model=dataclasses.replace(stage.model, width=64))
    with pytest.raises(UserError, match=r"^model\.width: 64, but .* has 32"):
        make_task(wide, Dataset.open(Path(toy_data.dataset)), CPU)
    taught = only(whole, "translate", teacher=str(run), run=str(tmp_path / "taught"))
    with pytest.raises(UserError, match=f"^teacher: {run} reads other units than"):
        make_task(stages(taught)[0], other, CPU)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies": ("wiat-3",)}, "policy 'wiat-3': unknown"),
        ({"policies": ("agent-7",)}, "policy agent-7: this run knows agent-1, agent-2"),
        ({"policies": ("oracle-7",)}, "policy oracle-7"),
        ({"policies": ("diagonal-x",)}, "policy diagonal-x"),
        ({"split": "train"}, "choose valid or test"),
    ],
)
def test_policies_are_checked_before_training(
    toy_data: Data, toy_folder: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    assert toy_folder == Path(toy_data.dataset)
    recipe = whole_recipe(toy_data, tmp_path / "run", dataclasses.replace(Evaluate(), **settings))
    with pytest.raises(UserError, match=message):
        train(recipe, CPU)
    assert not (tmp_path / "run").exists()


def test_two_spellings_of_a_path_are_one_folder(toy_data: Data) -> None:
    one = dataclasses.replace(short_recipe(toy_data, Path("runs/one")), run="runs/one/")
    two = dataclasses.replace(short_recipe(toy_data, Path("runs/two")), start="runs/one")
    assert in_order([two, one]) == [one, two]


def test_any_loss_is_better_than_nan() -> None:
    broken = Validation(float("nan"))
    assert Validation(3.0).better(broken, "loss")
    assert not broken.better(Validation(3.0), "loss")


def test_damaged_units_are_a_user_error(tmp_path: Path) -> None:
    TokenSequences.from_lists([[5, 2], [2]]).save(tmp_path, "train.source")
    assert np.array_equal(TokenSequences.open(tmp_path, "train.source").tokens, [5, 2, 2])
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "train.source.tokens.npy").write_bytes(b"")
    with pytest.raises(UserError, match=r"train\.source is missing or damaged"):
        TokenSequences.open(tmp_path, "train.source")
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        Dataset.open(tmp_path)


def test_the_shared_run_has_short_later_stages(whole: Recipe) -> None:
    """The tests above rely on it."""
    assert whole.search.train == whole.agent.train == LAST
    assert read_json(Path(whole.run) / "times.json").keys() == {"translate", "search", "agent", "evaluate"}
