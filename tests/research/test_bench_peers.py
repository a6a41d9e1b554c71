"""`whilst bench peers` runs without its peers, and says which are absent. The figures themselves are not tested."""

import functools
import json
import shlex
import sys
from pathlib import Path

import pytest

from whilst.core.config import override
from whilst.core.errors import UserError
from whilst.core.files import read_json
from whilst.core.settings import Recipe
from whilst.engine.export import make_engine
from whilst.research.bench import random_dataset
from whilst.research.peers import bench

SMALL = ["model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=16"]
AMOUNT = bench.Amount(updates=1, batch_tokens=512, batch=2, alone=2, lengths=(6, 9), lines=2, turns=1)


@pytest.mark.slow
def test_absent_peers_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "random_dataset", functools.partial(random_dataset, pairs=300, words=50))
    monkeypatch.setattr(bench, "SIMULEVAL", tmp_path / "none")
    python = tmp_path / "peers" / "bin" / "python"  # an environment with PyTorch alone
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    bench.peers_bench(tmp_path / "peers", ["small"], AMOUNT, SMALL, tmp_path / "out.json")
    rows = read_json(tmp_path / "out.json")["rows"]
    works = ["training", "batches of 2", "one by one", "wait-3, 6 units", "wait-3, 9 units", "agent loop"]
    assert list(dict.fromkeys(row["work"] for row in rows)) == works
    for row in rows:
        there = row["system"] == "torch" or ("whilst" in row["system"] and row["work"] != "agent loop")
        assert row["version"].startswith("absent: ModuleNotFoundError") != there
        assert (row["tokens/s"] is not None) == there
        if there:
            assert row["ms a token"] == pytest.approx(1000 / row["tokens/s"])


def test_what_a_worker_prints_is_found(tmp_path: Path) -> None:
    python = tmp_path / "python"
    answer = json.dumps({"version": "1", "seconds": 2.0})
    python.write_text(f"#!/bin/sh\necho progress\necho {shlex.quote(answer)}\n", encoding="utf-8")
    python.chmod(0o755)
    systems = {"whilst": lambda: {"seconds": 1.0}, "peer": lambda: bench.ask(python, "train", "peer")}
    ours, theirs = bench.measure("work", "model", 10, systems, 3)
    assert (ours["tokens/s"], ours["whilst / this"]) == (10, 1)
    assert (theirs["version"], theirs["tokens/s"], theirs["whilst / this"]) == ("1", 5, 2)


def test_without_requirements_no_environment_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"peers\.txt: no such file"):
        bench.python_of(tmp_path / "peers")
    assert not (tmp_path / "peers").exists()


def test_the_engine_writes_as_many_units_as_the_source_has() -> None:
    engine = make_engine(bench.varied_model(override(Recipe(), SMALL)), None, "fp32")
    outputs = [bench.write_words(engine, [5, 6, 7, 8, 9, 2], k) for k in (1, 3, 6)]
    assert [len(output) for output in outputs] == [6, 6, 6]
