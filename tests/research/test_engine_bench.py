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
    ways = ["recomputed", "PyTorch, cached", "ONNX fp32", "ONNX int8"]
    rows = figures["rows"]
    assert [(row["length"], row["way"]) for row in rows] == [(length, way) for length in (3, 5) for way in ways]
    for number, row in enumerate(rows):
        assert row["both"] == pytest.approx(row["read"] + row["write"])
        slow = rows[0 if number < len(ways) else len(ways)]
        assert row["recomputed / this"] == pytest.approx(slow["both"] / row["both"])
