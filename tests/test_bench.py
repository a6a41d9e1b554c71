"""The benches run and write what they print. Their figures are never tested: they are measurements."""

from pathlib import Path

import pytest

from whilst import bench
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
