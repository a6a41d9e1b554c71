"""The engine bench runs and writes what it prints. The figures themselves are not tested."""

from pathlib import Path

import pytest
import torch

from whilst.core.files import read_json
from whilst.research.bench import engine as engine_bench


def test_bench(tmp_path: Path) -> None:
    small = ["model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=16"]
    threads = torch.get_num_threads()
    engine_bench.engine_bench(None, [3, 5], 2, 1, small, tmp_path / "out.json")
    assert torch.get_num_threads() == threads
    figures = read_json(tmp_path / "out.json")
    assert list(figures["ms a token"]) == ["3", "5"]
    for length, ways in figures["ms a token"].items():
        assert list(ways) == ["recomputed", "PyTorch, cached", "ONNX fp32", "ONNX int8"]
        for name, way in ways.items():
            assert way["read"] > 0 < way["write"]
            assert way["both"] == pytest.approx(way["read"] + way["write"])
            ratio = figures["ratios"][length][name]["recomputed / this"]
            assert ratio == pytest.approx(ways["recomputed"]["both"] / way["both"])
