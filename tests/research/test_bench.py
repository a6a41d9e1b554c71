"""The benches run and write what they print. The figures themselves are not tested."""

import dataclasses
import functools
from pathlib import Path
from typing import Literal

import pytest
import torch

from tests.helpers.runs import CPU, short_recipe, whole_recipe
from whilst.core.errors import UserError
from whilst.core.files import read_json
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data, Evaluate
from whilst.data.dataset import Dataset
from whilst.decoding import batched as decode
from whilst.decoding import graphed as graphed
from whilst.model.agent import Agent
from whilst.model.checkpoint import save_tensors, write_run
from whilst.model.transformer import Translator
from whilst.research.bench import common, decoding, limits, losses, training
from whilst.research.bench.common import sum_by_kind
from whilst.training.tasks import AgentTask

SMALL = ["model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=16"]


@pytest.mark.parametrize("stage", ["translate", "search", "agent"])
def test_train_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Literal["translate", "search", "agent"]
) -> None:
    monkeypatch.setattr(common, "random_text", functools.partial(common.random_text, pairs=300, words=50))
    tokens = "train.batch_tokens=512" if stage == "translate" else f"{stage}.train.batch_tokens=512"
    training.train_bench(None, stage, 1, [*SMALL, tokens, "agent.hidden=8"], "cpu", tmp_path / "out.json", True)
    figures = read_json(tmp_path / "out.json")
    times = [row["ms"] for row in figures["kernels"]]
    assert times == sorted(times, reverse=True)
    assert any("mm" in row["kernel"] for row in figures["kernels"])
    assert figures["target tokens/s"] > 0
    assert figures["peak memory (GiB)"] > 0
    assert figures["device"].startswith("CPU")
    assert figures["command"].startswith("whilst")


def test_kernels_are_summed_by_kind() -> None:
    names = [
        "triton_tem_fused_flex_attention_backward_transpose_view_13",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(…)",  # not a product: attention comes first
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
        "triton_red_fused__log_softmax_argmax_exp_index_0",
        "triton_per_fused__to_copy_add_native_dropout_native_layer_norm_view_6",
        "triton_poi_fused_add_view_10",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<…>",
    ]
    found = sum_by_kind([{"kernel": name, "ms": 2.0**number, "calls": 3.0} for number, name in enumerate(names)])
    assert {row["kernel"]: (row["ms"], row["calls"]) for row in found} == {
        "attention": (3, 6),
        "products of matrices": (4, 3),
        "softmax and loss": (8, 3),
        "norms, with the sums before them": (16, 3),
        "everything else": (32, 3),
        "optimizer and average": (64, 3),
    }
    assert [row["ms"] for row in found] == [64, 32, 16, 8, 4, 3]


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
    texts = decoding.BenchText(sentences=50, batch=8)
    decoding.run_bench(
        tmp_path, PolicySpec.parse("wait-2"), texts, ["evaluate.max_extra=2"], "cpu", tmp_path / "out.json", True
    )
    figures = read_json(tmp_path / "out.json")
    assert figures["sentences"] == 50, "the test text has 20: it was repeated"
    assert figures["together, first pass: sentences/s"] > 0
    assert figures["together: sentences/s"] > 0
    assert figures["together: steps"] % graphed.CHECK == 0
    assert figures["one by one: target tokens/s"] > 0
    assert any("mm" in row["kernel"] for row in figures["kernels"])
    with pytest.raises(UserError, match="oracle-1"):
        decoding.run_bench(tmp_path, PolicySpec.parse("oracle-1"), texts, [], "cpu", None)
    with pytest.raises(UserError, match="GPU"):
        decoding.run_bench(
            tmp_path, PolicySpec.parse("wait-2"), decoding.BenchText(precision="half"), [], "cpu", None
        )


def test_losses_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU there is one way only, so that both begin with the same weights and see the same batches."""
    monkeypatch.setattr(common, "random_text", functools.partial(common.random_text, pairs=100, words=30))
    settings = [*SMALL, "train.batch_tokens=512", "objective.name=multi-path"]
    losses.losses_bench(None, "translate", 3, settings, "cpu", tmp_path / "out")
    figures = read_json(tmp_path / "out.json")
    assert figures["simple"] == figures["fast"]
    assert len(set(figures["fast"])) == 3
    assert (tmp_path / "out.png").is_file()


@pytest.mark.parametrize("stage", ["search", "agent"])
def test_losses_after_the_translator(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, stage: Literal["search", "agent"]
) -> None:
    """They begin with its weights; what was found for the agent is found again."""
    whole = whole_recipe(toy_data, tmp_path / "run", Evaluate())
    recipe = losses.stage_of(whole, stage)
    with pytest.raises(UserError, match="run"):
        losses.compare(recipe, 2, CPU)
    torch.manual_seed(4)
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target))
    write_run(tmp_path / "run", whole, toy_dataset.source, toy_dataset.target)
    save_tensors(tmp_path / "run" / "model.safetensors", model.state_dict(), {})
    ways = losses.compare(recipe, 2, CPU)
    assert ways.simple == ways.fast
    assert len(set(ways.fast)) == 2
    assert ways.alike == (1.0 if stage == "agent" else None)
    started = losses.stage_of(dataclasses.replace(whole, start=whole.run, run="other"), stage)
    assert (started.start, started.stages) == (recipe.start, (stage,))


def test_losses_bench_compares_labels(toy_data: Data, toy_dataset: Dataset, tmp_path: Path) -> None:
    recipe = losses.stage_of(whole_recipe(toy_data, tmp_path, Evaluate()), "agent")
    model = Translator(recipe.model, len(toy_dataset.source), len(toy_dataset.target)).eval()
    agent = Agent(recipe.agent, recipe.model.width, recipe.latencies)
    one, other = (
        AgentTask(dataclasses.replace(recipe, start=""), toy_dataset, model, agent, CPU) for _ in range(2)
    )
    assert losses.equal_labels(one, other) == 1
    other.labels["train"].reads[0] += 1
    assert losses.equal_labels(one, other) == 0.5


def test_growth_bench(tmp_path: Path) -> None:
    decoding.growth_bench(None, 8, 2, SMALL, "cpu", tmp_path / "out")
    figures = read_json(tmp_path / "out.json")
    assert figures["positions"][-1] == 8
    assert len(figures["positions"]) == len(figures["read"]) == len(figures["write"]) == len(figures["recomputed"])
    assert all(value > 0 for name in ("read", "write", "recomputed") for value in figures[name])
    assert (tmp_path / "out.png").stat().st_size > 0
    assert (tmp_path / "out.svg").stat().st_size > 0


def test_limits_bench(tmp_path: Path) -> None:
    limits.limits_bench("cpu", 512, tmp_path / "out.json")
    figures = read_json(tmp_path / "out.json")
    assert len([name for name in figures if "product" in name]) == 4
    assert all(value > 0 for value in figures.values() if isinstance(value, float))
