"""Bundles: small, whole, the same words as their run, and found by their names."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from tests.helpers.commands import whilst
from tests.helpers.random_runs import make_varied_run
from tests.helpers.runs import CPU, changed, short_recipe, tensors
from whilst.core.errors import UserError
from whilst.core.files import read_json, write_json
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.engine.export import bundle
from whilst.model.checkpoint import load_run, save_tensors
from whilst.model.run_folder import AGENT, BUNDLE, check_bundle
from whilst.training.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toy_data: Data, toy_dataset: Dataset) -> Path:
    return make_varied_run(tmp_path_factory.mktemp("bundle") / "run", toy_data, toy_dataset)


@pytest.fixture
def made(run: Path, tmp_path: Path) -> Path:
    bundle(run, tmp_path / "models" / "a-b")
    return tmp_path / "models" / "a-b"


def test_a_bundle_is_a_run_of_half_the_size(run: Path, made: Path) -> None:
    before, after = load_run(run, CPU), load_run(made, CPU)
    assert after.agent is not None
    for module in (after.model, after.agent):
        assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    for place in (Path(), Path(AGENT)):
        whole, half = tensors(run / place, "model"), tensors(made / place, "model")
        assert whole.keys() == half.keys()
        for name, weights in whole.items():
            assert half[name].dtype == torch.float16
            torch.testing.assert_close(half[name].float(), weights, rtol=2**-11, atol=2**-24)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (run, made)]
    assert sizes[1] < 0.6 * sizes[0]
    assert after.recipe.model == before.recipe.model
    assert (after.recipe.run, after.recipe.data.dataset) == ("a-b", "data/dataset"), "no folder of this machine"
    assert str(run.parent) not in "".join(path.read_text() for path in made.rglob("*.json"))


def test_the_command_writes_a_card_and_leaves_one_that_is_there(run: Path, tmp_path: Path) -> None:
    said = whilst("bundle", run, tmp_path / "out")
    assert (said.code, said.out, said.err.count("\n")) == (0, "", 1)
    card = tmp_path / "out/README.md"
    assert "| latencies | low: agent-1, medium: agent-1, high: agent-3 |" in card.read_text(encoding="utf-8")
    card.write_text("Mine.\n", encoding="utf-8")
    said = whilst("bundle", run, tmp_path / "out")
    assert "README.md stays as it is" in said.err
    assert card.read_text(encoding="utf-8") == "Mine.\n"


def test_it_needs_no_dataset(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "run"))
    text = (other / "recipe.json").read_text().replace("/dataset", "/gone")
    (other / "recipe.json").write_text(text)
    assert whilst("bundle", other, tmp_path / "out").code == 0
    assert read_json(tmp_path / "out" / BUNDLE)["pace"] is None


def test_it_is_found_by_its_name(made: Path, toy_dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whilst.core.files.MODELS", made.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.parent.parent / "cache"))
    text = "\n\n".join(toy_dataset.text("test")[0][:4]).encode()
    said = [
        whilst("live", "--model=a-b", f"--latency={latency}", f"--engine={engine}", "--precision=fp32", stdin=text)
        for latency in ("low", "high", "diagonal-2")
        for engine in ("torch", "onnx")
    ]
    assert [done.code for done in said] == [0] * 6, said
    assert [done.out for done in said[::2]] == [done.out for done in said[1::2]]
    assert len({done.out for done in said}) > 1


@pytest.mark.parametrize("name", ["model.safetensors", "agent/model.safetensors", "source.json", BUNDLE])
def test_a_damaged_bundle_says_so(made: Path, name: str) -> None:
    (made / name).write_bytes((made / name).read_bytes()[:-2])
    said = whilst("live", "--model", made)
    assert said.code == 2
    assert said.err.startswith(f"whilst: {made}")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("name", ["format", "pace", "files"])
def test_a_bundle_that_does_not_say_all_says_so(made: Path, name: str) -> None:
    write_json(made / BUNDLE, {key: value for key, value in read_json(made / BUNDLE).items() if key != name})
    with pytest.raises(UserError, match="is damaged or of another version"):
        check_bundle(made)


def test_a_bundle_with_a_list_of_files_says_so(made: Path) -> None:
    write_json(made / BUNDLE, read_json(made / BUNDLE) | {"files": ["model.safetensors"]})
    with pytest.raises(UserError, match="is damaged or of another version"):
        check_bundle(made)


def test_weights_that_are_too_large_are_refused(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "run"))
    weights = tensors(run, "model")
    weights["source_embedding.weight"][5, 5] = 1e6
    save_tensors(other / "model.safetensors", weights, {})
    with pytest.raises(UserError, match=r"source_embedding.weight has weights too large"):
        bundle(other, tmp_path / "out")


def test_without_weights_pytorch_has_those_of_the_engine(run: Path, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "models" / "light"
    assert whilst("bundle", run, out, "--parts", "engine").code == 0
    assert not (out / "model.safetensors").exists()
    wanted, found = load_run(made, CPU), load_run(out, CPU)
    assert found.checksum == wanted.checksum
    assert found.agent is not None
    for (name, before), after in zip(
        wanted.model.state_dict().items(), found.model.state_dict().values(), strict=True
    ):
        largest = before.abs().max(dim=-1, keepdim=True).values
        assert ((after - before).abs() <= largest * (0.51 / 127)).all(), name


def test_without_weights_a_run_can_start_from_it(run: Path, tmp_path: Path, toy_data: Data) -> None:
    bundle(run, tmp_path / "light", "engine")
    data = dataclasses.replace(toy_data, like=str(tmp_path / "light"), dataset=str(tmp_path / "set"))
    prepare(data)
    recipe = changed(short_recipe(data, tmp_path / "run"), steps=2, validate_every=2)
    begun = dataclasses.replace(recipe, start=str(tmp_path / "light"), model=load_run(run, CPU).recipe.model)
    train(begun, CPU)
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_without_engine_one_is_made(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle(run, tmp_path / "light", "weights")
    assert not (tmp_path / "light" / "engine").exists()
    said = whilst("live", "--model", tmp_path / "light", "--engine", "onnx", stdin=b"a b\n")
    assert (said.code, "making the CPU engine" in said.err) == (0, True)


def test_other_folders_stay_as_they_are(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not an earlier bundle"):
        bundle(run, tmp_path)
