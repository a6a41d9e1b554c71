"""The benches run and write what they print. The figures themselves are not tested."""

import functools
from pathlib import Path
from typing import Literal

import pytest

from tests.helpers.runs import short_recipe
from whilst.core.errors import UserError
from whilst.core.files import read_json
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.decoding import batched as decode
from whilst.decoding import graphed as graphed
from whilst.model.checkpoint import save_tensors, write_run
from whilst.model.transformer import Translator
from whilst.research.bench import common, decoding, training

SMALL = ["model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=16"]


@pytest.mark.parametrize("stage", ["translate", "search", "agent"])
def test_train_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Literal["translate", "search", "agent"]
) -> None:
    monkeypatch.setattr(common, "random_text", functools.partial(common.random_text, pairs=300, words=50))
    tokens = "train.batch_tokens=512" if stage == "translate" else f"{stage}.train.batch_tokens=512"
    training.train_bench(None, stage, 1, [*SMALL, tokens, "agent.hidden=8"], "cpu", tmp_path / "out.json")
    figures = read_json(tmp_path / "out.json")
    assert figures["target tokens/s"] > 0
    assert figures["peak memory (GiB)"] > 0
    assert figures["device"].startswith("CPU")
    assert figures["command"].startswith("whilst")


def test_decode_bench(tmp_path: Path) -> None:
    decoding.decode_bench(None, 3, 6, SMALL, "cpu", tmp_path / "out.json")
    figures = read_json(tmp_path / "out.json")
    cached, recomputed = figures["one by one, cached: ms a token"], figures["one by one, recomputed: ms a token"]
    assert figures["recomputed / cached"] == pytest.approx(recomputed / cached)
    assert figures["batched: sentences/s"] > 0


def test_decode_bench_of_a_run(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = short_recipe(toy_data, tmp_path)
    write_run(tmp_path, recipe, toy_dataset.source, toy_dataset.target)
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target))
    save_tensors(tmp_path / "model.safetensors", model.state_dict(), {})
    monkeypatch.setattr(decode, "on_gpu", lambda _: True)  # repeated steps, as there
    monkeypatch.setattr(decoding, "ALONE", 3)
    settings, out = ["evaluate.max_extra=2", "evaluate.batch=8"], tmp_path / "out.json"
    decoding.run_bench(tmp_path, PolicySpec.parse("wait-2"), 50, settings, "cpu", out)
    figures = read_json(out)
    assert figures["sentences"] == 50, "the test text has 20: it was repeated"
    assert figures["together, first pass: sentences/s"] > 0
    assert figures["together: sentences/s"] > 0
    assert figures["together: steps"] % graphed.CHECK == 0
    assert figures["one by one: target tokens/s"] > 0
    with pytest.raises(UserError, match="oracle-1"):
        decoding.run_bench(tmp_path, PolicySpec.parse("oracle-1"), None, [], "cpu", None)
    with pytest.raises(UserError, match="GPU"):
        decoding.run_bench(tmp_path, PolicySpec.parse("wait-2"), None, ["evaluate.precision=half"], "cpu", None)
