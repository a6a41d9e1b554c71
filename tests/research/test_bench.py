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
from whilst.model.checkpoint import save_tensors, write_run
from whilst.model.transformer import Translator
from whilst.research import bench

SMALL = ["model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=16"]


@pytest.mark.parametrize("stage", ["translate", "search", "agent"])
def test_train_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Literal["translate", "search", "agent"]
) -> None:
    monkeypatch.setattr(bench, "random_dataset", functools.partial(bench.random_dataset, pairs=300, words=50))
    tokens = "train.batch_tokens=512" if stage == "translate" else f"{stage}.train.batch_tokens=512"
    bench.train_bench(None, stage, 1, [*SMALL, tokens, "agent.hidden=8"], "cpu", tmp_path / "out.json")
    figures = read_json(tmp_path / "out.json")
    (row,) = figures["rows"]
    assert row["target tokens/s"] > 0
    assert row["peak memory (GiB)"] > 0
    assert figures["device"].startswith("CPU")
    assert figures["command"].startswith("whilst")


def test_decode_bench(tmp_path: Path) -> None:
    bench.decode_bench(bench.random_work(3, 6, SMALL, "cpu"), tmp_path / "out.json")
    rows = read_json(tmp_path / "out.json")["rows"]
    assert [row["way"] for row in rows] == ["in batches of 3", "one by one"]
    for row in rows:
        assert row["ms a token"] == pytest.approx(1000 / row["target tokens/s"])


def test_decode_bench_of_a_run(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = short_recipe(toy_data, tmp_path)
    write_run(tmp_path, recipe, toy_dataset.source, toy_dataset.target)
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target))
    save_tensors(tmp_path / "model.safetensors", model.state_dict(), {})
    monkeypatch.setattr(bench, "ALONE", 3)
    settings, out = ["evaluate.max_extra=2", "evaluate.batch=8"], tmp_path / "out.json"
    work = bench.work_of_run(tmp_path, PolicySpec.parse("wait-2"), 50, settings, "cpu")
    assert len(work[1]) == 50, "the test text has 20: it was repeated"
    bench.decode_bench(work, out)
    together, alone = read_json(out)["rows"]
    assert (together["way"], alone["way"]) == ("in batches of 8", "one by one")
    assert together["sentences/s, first pass"] > 0
    with pytest.raises(UserError, match="oracle-1"):
        bench.work_of_run(tmp_path, PolicySpec.parse("oracle-1"), None, [], "cpu")
    with pytest.raises(UserError, match="GPU"):
        bench.work_of_run(tmp_path, PolicySpec.parse("wait-2"), None, ["evaluate.precision=half"], "cpu")


def test_engine_bench(tmp_path: Path) -> None:
    bench.engine_bench([3, 5], 2, 1, SMALL, tmp_path / "out.json")
    figures = read_json(tmp_path / "out.json")
    ways = ["recomputed", "PyTorch, cached", "ONNX fp32", "ONNX int8"]
    rows = figures["rows"]
    assert [(row["length"], row["way"]) for row in rows] == [(length, way) for length in (3, 5) for way in ways]
    for number, row in enumerate(rows):
        assert row["both"] == pytest.approx(row["read"] + row["write"])
        slow = rows[0 if number < len(ways) else len(ways)]
        assert row["recomputed / this"] == pytest.approx(slow["both"] / row["both"])
