"""Translations of a model as training targets: stored, made anew for other weights, learnt by pupils."""

import dataclasses
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.runs import CPU, history, short_recipe
from whilst.core.errors import UserError
from whilst.core.files import read_json, write_json
from whilst.core.settings import Data, Evaluate, Limits, Recipe
from whilst.data.dataset import Dataset, TokenSequences
from whilst.data.vocabulary import EOS, Language
from whilst.decoding.batched import translate_batch
from whilst.model.checkpoint import load_run, save_tensors
from whilst.policy.fixed import Full
from whilst.training.distil import FOLDER, cached_translations, with_teacher
from whilst.training.train import train

SETTINGS = Evaluate(max_ratio=1.0, max_extra=2, batch=64)


@pytest.fixture(scope="module")
def teacher(toy_data: Data, toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    assert toy_folder == Path(toy_data.dataset)
    made = short_recipe(toy_data, tmp_path_factory.mktemp("teacher") / "run")
    steps = 100  # so that no translation is empty, whatever the random numbers
    made = dataclasses.replace(made, train=dataclasses.replace(made.train, steps=steps, validate_every=steps))
    train(made, CPU)
    return made


def test_translations_are_those_of_the_whole_source(teacher: Recipe, toy_dataset: Dataset, tmp_path: Path) -> None:
    trained = load_run(Path(teacher.run), CPU)
    found = cached_translations(trained, toy_dataset, tmp_path, SETTINGS, ("valid",))["valid"]
    sources = toy_dataset.split("valid").source
    assert len(found) == len(sources)
    for number in (0, 7, len(found) - 1):
        output = translate_batch(trained.model, [sources[number].tolist()], Full(), Limits(1.0, 2))[0]
        assert found[number].tolist() == [*output.units, EOS]


def test_translations_are_stored_until_the_weights_change(
    teacher: Recipe, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = load_run(Path(teacher.run), CPU)
    first = cached_translations(trained, toy_dataset, tmp_path, SETTINGS, ("valid",))["valid"]
    calls: list[str] = []

    def fake(*arguments: object) -> TokenSequences:
        calls.append(str(arguments[-1]))
        return first

    monkeypatch.setattr("whilst.training.distil.translate_side", fake)
    again = cached_translations(trained, toy_dataset, tmp_path, SETTINGS, ("valid",))["valid"]
    assert np.array_equal(again.tokens, first.tokens)
    assert calls == []
    weights = Path(shutil.copytree(teacher.run, tmp_path / "other")) / "model.safetensors"
    save_tensors(weights, dict(trained.model.state_dict()), {"other": "about"})
    other = load_run(weights.parent, CPU)
    cached_translations(other, toy_dataset, tmp_path, SETTINGS, ("valid",))
    assert calls == ["valid"]


def test_pupils_that_begin_together_have_the_text_translated_once(
    teacher: Recipe, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, calls = load_run(Path(teacher.run), CPU), list[str]()

    def slow(*arguments: object) -> TokenSequences:
        calls.append(str(arguments[-1]))
        time.sleep(0.3)
        return toy_dataset.split("valid").target

    monkeypatch.setattr("whilst.training.distil.translate_side", slow)
    with ThreadPoolExecutor(2) as pool:
        arguments = trained, toy_dataset, tmp_path, SETTINGS, ("valid",)
        found = [one.result()["valid"] for one in [pool.submit(cached_translations, *arguments) for _ in "ab"]]
    assert calls == ["valid"]
    assert np.array_equal(found[0].tokens, found[1].tokens)


def test_a_pupil_learns_from_references_and_translations(teacher: Recipe, toy_dataset: Dataset) -> None:
    taught = with_teacher(toy_dataset, Path(teacher.run), teacher.evaluate, CPU)
    before, after = toy_dataset.split("train"), taught.split("train")
    count = len(before.source)
    assert len(after.source) == len(after.target) == 2 * count
    for number in (0, 5, count - 1):
        assert np.array_equal(after.source[number], after.source[count + number])
        assert np.array_equal(after.target[number], before.target[number])
    trained = load_run(Path(teacher.run), CPU)
    found = cached_translations(trained, toy_dataset, trained.path, teacher.evaluate, ("train",))
    assert np.array_equal(after.target[count + 3], found["train"][3])
    assert np.array_equal(taught.split("valid").target.tokens, toy_dataset.split("valid").target.tokens)
    pupil = dataclasses.replace(
        teacher,
        run=f"{teacher.run}-pupil",
        teacher=teacher.run,
        stages=("translate", "evaluate"),
        evaluate=dataclasses.replace(teacher.evaluate, policies=("wait-3",)),
    )
    train(pupil, CPU)
    runs = (history(Path(recipe.run)) for recipe in (teacher, pupil))
    losses = [[row["train/loss"] for row in rows if "train/loss" in row] for rows in runs]
    assert losses[0] != losses[1]
    _, _, times = (Path(pupil.run) / "report" / "report.md").read_text(encoding="utf-8").partition("## Time")
    stages = [
        line.split(" | ")[0].strip("| ")
        for line in times.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    assert stages == ["stage", "teacher: translate", "translate", "evaluate", "together"], "it takes both"


def test_stored_translations_replace_the_teacher(teacher: Recipe, toy_dataset: Dataset, tmp_path: Path) -> None:
    first = with_teacher(toy_dataset, Path(teacher.run), teacher.evaluate, CPU).split("train")
    shutil.copytree(Path(teacher.run) / FOLDER, tmp_path / FOLDER)
    again = with_teacher(toy_dataset, tmp_path, teacher.evaluate, CPU).split("train")
    assert np.array_equal(again.target.tokens, first.target.tokens)
    made = tmp_path / FOLDER / "made.json"
    write_json(made, read_json(made) | {"of": "another text"})
    with pytest.raises(UserError, match=r"no recipe\.json"):
        with_teacher(toy_dataset, tmp_path, teacher.evaluate, CPU)


def test_a_teacher_must_write_the_same_units(teacher: Recipe, toy_dataset: Dataset) -> None:
    target = toy_dataset.target
    other = Language(target.name, target.segmenter, ["another"])
    strange = Dataset(toy_dataset.path, toy_dataset.manifest, toy_dataset.source, other)
    with pytest.raises(UserError, match="other units"):
        with_teacher(strange, Path(teacher.run), SETTINGS, CPU)
