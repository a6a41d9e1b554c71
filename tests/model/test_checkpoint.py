"""Checkpoints: complete or absent, bit-exact, and clear errors for wrong files."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.helpers.decoding import policy
from whilst.core.config import FORMAT, read_recipe
from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256, write_json
from whilst.core.settings import Limits, Model, Recipe
from whilst.data.dataset import Dataset
from whilst.decoding.batched import translate
from whilst.model import checkpoint
from whilst.model.checkpoint import load_run, load_state, load_tensors, save_state, save_tensors, write_run
from whilst.model.transformer import Translator
from whilst.training import optim
from whilst.training.optim import PRESETS

CPU = torch.device("cpu")


def error_of(call: Callable[[], object], path: Path) -> str:
    """The message of the call's UserError: one line that begins with the file's or folder's name."""
    with pytest.raises(UserError) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def trained(settings: Model, updates: int, seed: int) -> tuple[dict[str, nn.Module], torch.optim.AdamW]:
    """A model, its average and an Adam that made some updates on random gradients."""
    torch.manual_seed(seed)
    parts: dict[str, nn.Module] = {name: Translator(settings, 17, 13) for name in ("model", "averaged")}
    adam = optim.adam(parts["model"], PRESETS["fast"])
    for _ in range(updates):
        step(parts["model"], adam)
    return parts, adam


def step(model: nn.Module, adam: torch.optim.AdamW, seed: int | None = None) -> None:
    if seed is not None:
        torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    adam.step()


def moments(parts: dict[str, nn.Module], adam: torch.optim.AdamW) -> dict[str, Tensor]:
    """All that an update depends on, by the name of the weight."""
    found = {f"{part}.{name}": t for part, module in parts.items() for name, t in module.state_dict().items()}
    for name, parameter in parts["model"].named_parameters():
        found |= {f"{name}.{key}": value for key, value in adam.state[parameter].items()}
    return found


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype, name
        assert torch.equal(tensor, right[name]), name


def test_a_state_is_restored_bit_exactly(tiny: Model, tmp_path: Path) -> None:
    """Also when it is loaded, saved and loaded again."""
    parts, adam = trained(tiny, updates=3, seed=1)
    path = tmp_path / "last.safetensors"
    save_state(path, parts, adam, {"step": 3, "place": (1, 2)})
    for seed in (2, 3):
        others, other = trained(tiny, updates=seed, seed=seed)
        about = load_state(path, others, other)
        assert about == {"step": 3, "place": [1, 2]}
        assert_same(moments(others, other), moments(parts, adam))
        save_state(path, others, other, about)
    step(parts["model"], adam, seed=4)
    step(others["model"], other, seed=4)
    assert_same(moments(others, other), moments(parts, adam))


def test_a_state_from_before_the_first_update(tiny: Model, tmp_path: Path) -> None:
    parts, adam = trained(tiny, updates=0, seed=1)
    save_state(tmp_path / "last.safetensors", parts, adam, {})
    others, other = trained(tiny, updates=0, seed=2)
    load_state(tmp_path / "last.safetensors", others, other)
    assert_same(moments(others, other), moments(parts, adam))


def test_loading_keeps_the_settings_of_the_optimiser(tiny: Model, tmp_path: Path) -> None:
    parts, adam = trained(tiny, updates=1, seed=1)
    save_state(tmp_path / "last.safetensors", parts, adam, {})
    load_state(tmp_path / "last.safetensors", parts, adam)
    assert [group["weight_decay"] for group in adam.param_groups] == [PRESETS["fast"].weight_decay, 0.0]
    assert adam.param_groups[0]["betas"] == (0.9, 0.98)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    save_tensors(path, {"a": torch.ones(3)}, {"step": 1})

    def fail(tensors: dict[str, Tensor], file: Path, about: dict[str, str]) -> None:  # noqa: ARG001
        file.write_bytes(b"half of a fi")
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(OSError, match="No space"):
        save_tensors(path, {"a": torch.zeros(3)}, {"step": 2})
    tensors, about = load_tensors(path, CPU)
    assert about == {"step": 1}
    assert torch.equal(tensors["a"], torch.ones(3))
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208


def test_tensors_that_share_memory_or_lie_across_it(tmp_path: Path) -> None:
    table = torch.arange(6.0).view(2, 3)
    save_tensors(tmp_path / "a.safetensors", {"across": table.T}, {})
    tensors, about = load_tensors(tmp_path / "a.safetensors", CPU)
    assert torch.equal(tensors["across"], table.T)
    assert about == {}


# Wrong or damaged files.


def test_damaged_states(tiny: Model, tmp_path: Path) -> None:
    parts, adam = trained(tiny, updates=1, seed=1)
    path = tmp_path / "last.safetensors"
    save_state(path, parts, adam, {"step": 1})
    whole = path.read_bytes()
    for bad in (b"", b"garbage", whole[: len(whole) // 2], whole[:-1], b"\xff" * 100):
        path.write_bytes(bad)
        assert "cannot be read" in error_of(lambda: load_state(path, parts, adam), path)
    path.unlink()
    error_of(lambda: load_state(path, parts, adam), path)


def test_states_of_something_else(tiny: Model, tmp_path: Path) -> None:
    parts, adam = trained(tiny, updates=1, seed=1)
    path = tmp_path / "last.safetensors"
    save_file({"weight": torch.ones(2)}, path)  # of another program
    assert "other" in error_of(lambda: load_state(path, parts, adam), path)
    larger: dict[str, nn.Module] = {name: Translator(tiny, 18, 13) for name in parts}
    save_state(path, larger, optim.adam(larger["model"], PRESETS["fast"]), {"step": 1})
    assert "other" in error_of(lambda: load_state(path, parts, adam), path)
    save_file({}, path, {"about": "{not json"})
    assert "cannot be read" in error_of(lambda: load_tensors(path, CPU), path)


# A run folder.


@pytest.fixture
def run(toy_dataset: Dataset, tiny: Model, tmp_path: Path) -> Path:
    """A run whose model was never trained."""
    folder = tmp_path / "run"
    recipe = Recipe(run="elsewhere", model=tiny)
    write_run(folder, recipe, toy_dataset.source, toy_dataset.target)
    torch.manual_seed(1)
    model = Translator(tiny, len(toy_dataset.source), len(toy_dataset.target))
    save_tensors(folder / "model.safetensors", dict(model.state_dict()), {"step": 7})
    return folder


def test_a_run_folder_can_be_moved(run: Path, toy_dataset: Dataset, tmp_path: Path) -> None:
    before = load_run(run, CPU)
    moved = tmp_path / "moved" / "here"
    shutil.copytree(run, moved)
    shutil.rmtree(run)
    after = load_run(moved, CPU)
    assert after.about == {"step": 7}
    assert after.recipe == before.recipe
    assert not after.model.training
    assert after.source.units == toy_dataset.source.units
    assert_same(dict(after.model.state_dict()), dict(before.model.state_dict()))
    split = toy_dataset.split("test")
    sources = [split.source[i].tolist() for i in range(3)]
    outputs = [
        [output.units for output in translate(model, sources, policy("wait-3"), Limits(1.0, 5), batch=2)]
        for model in (before.model, after.model)
    ]
    assert outputs[0] == outputs[1]
    assert after.checksum == sha256(moved / "model.safetensors")


def test_a_recipe_is_restored(run: Path, tiny: Model) -> None:
    assert read_recipe(run) == Recipe(run="elsewhere", model=tiny)


def test_folders_without_a_run(run: Path, tmp_path: Path) -> None:
    assert "not a run folder" in error_of(lambda: load_run(tmp_path / "absent", CPU), tmp_path / "absent")
    assert "not a run folder" in error_of(lambda: load_run(tmp_path, CPU), tmp_path)
    (run / "model.safetensors").unlink()
    assert "no model.safetensors yet" in error_of(lambda: load_run(run, CPU), run)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "recipe": []}'])
def test_recipes_that_are_damaged(run: Path, content: str) -> None:
    (run / "recipe.json").write_text(content, encoding="utf-8")
    error_of(lambda: load_run(run, CPU), run)


def test_recipes_of_another_version(run: Path) -> None:
    record = read_json(run / "recipe.json")
    write_json(run / "recipe.json", record | {"format": 99})
    assert "another version" in error_of(lambda: load_run(run, CPU), run)
    record["recipe"]["train"]["speed"] = 3
    write_json(run / "recipe.json", record)
    assert "unknown setting 'train.speed'" in error_of(lambda: load_run(run, CPU), run)


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"name": "x", "segmenter": "morse", "units": []}'])
def test_languages_that_are_damaged(run: Path, content: str | None) -> None:
    if content is None:
        (run / "source.json").unlink()
    else:
        (run / "source.json").write_text(content, encoding="utf-8")
    error_of(lambda: load_run(run, CPU), run)


def test_weights_of_another_model(run: Path, tiny: Model) -> None:
    weights = run / "model.safetensors"
    save_tensors(weights, dict(Translator(tiny, 5, 5).state_dict()), {})
    assert "other" in error_of(lambda: load_run(run, CPU), weights)
    weights.write_bytes(b"no weights at all")
    assert "cannot be read" in error_of(lambda: load_run(run, CPU), weights)


def test_writing_a_run_again_changes_nothing(run: Path, toy_dataset: Dataset) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    write_run(run, read_recipe(run), toy_dataset.source, toy_dataset.target)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert json.loads(before["recipe.json"])["format"] == FORMAT
