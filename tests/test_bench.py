"""The benches run and write what they print. Their figures are never tested: they are measurements."""

from pathlib import Path

import pytest

from whilst import bench, growth
from whilst.files import read_json

SMALL = ["model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=16"]


def test_train_bench(tmp_path: Path) -> None:
    bench.train_bench(None, 1, [*SMALL, "train.batch_tokens=512"], "cpu", tmp_path / "out.json")
    figures = read_json(tmp_path / "out.json")
    assert figures["target tokens/s"] > 0
    assert figures["peak memory (GiB)"] > 0
    assert figures["device"].startswith("CPU")


def test_decode_bench(tmp_path: Path) -> None:
    bench.decode_bench(None, 3, 6, SMALL, "cpu", tmp_path / "out.json")
    figures = read_json(tmp_path / "out.json")
    cached, recomputed = figures["one by one, cached: ms a token"], figures["one by one, recomputed: ms a token"]
    assert figures["recomputed / cached"] == pytest.approx(recomputed / cached)
    assert figures["batched: sentences/s"] > 0


def test_growth_bench(tmp_path: Path) -> None:
    growth.growth_bench(None, 8, 2, SMALL, "cpu", tmp_path / "out")
    figures = read_json(tmp_path / "out.json")
    assert figures["positions"][-1] == 8
    assert len(figures["positions"]) == len(figures["read"]) == len(figures["write"]) == len(figures["recomputed"])
    assert all(value > 0 for name in ("read", "write", "recomputed") for value in figures[name])
    assert (tmp_path / "out.png").stat().st_size > 0
    assert (tmp_path / "out.svg").stat().st_size > 0
