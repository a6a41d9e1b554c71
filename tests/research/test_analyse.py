"""The preliminary analysis against one sentence, one token, one share at a time."""

import functools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.commands import whilst
from tests.helpers.decoding import recomputed_logits
from tests.helpers.runs import CPU, short_recipe
from whilst.core.errors import UserError
from whilst.core.settings import Data
from whilst.data.dataset import Split
from whilst.model.transformer import Translator
from whilst.research.analyse import QUARTERS, analyse, read_at, usual_length
from whilst.training.train import train

SHARES = [0.25, 0.5, 0.8, 1.0]


@given(st.integers(1, 40), st.integers(1, 300), st.data())
def test_a_share_is_rounded_up_exactly(points: int, length: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, points))
    wanted = math.ceil(Fraction(number, points) * length)
    assert read_at(number / points, torch.tensor([length])).tolist() == [wanted]


@pytest.mark.parametrize(
    ("lengths", "wanted"), [([8, 9, 9, 3, 3, 3], 9), ([8, 9], 9), ([2, 2, 5], 2), ([8, 3, 3], 8)]
)
def test_the_bucket_is_the_most_frequent_length(lengths: list[int], wanted: int) -> None:
    assert usual_length(lengths) == wanted


def test_analysis_matches_the_slow_reference(model: Translator, random_split: Callable[..., Split]) -> None:
    split = random_split(30, 61, longest=8)
    found = analyse(model, split, SHARES, 4, tokens=40)
    rows: dict[int, list[list[float]]] = {number: [] for number in range(len(QUARTERS))}
    bucket = []
    for n in range(30):
        source, target = split.source[n].tolist(), split.target[n].tolist()[:-1]
        table = []
        for i, token in enumerate(target):
            chances = []
            for share in SHARES:
                reads = [math.ceil(share * len(source))] * (i + 1)
                chances.append(float(recomputed_logits(model, source, target[:i], reads).softmax(-1)[token]))
            rows[4 * i // len(target)].append(chances)
            table.append(chances)
        if len(target) == 4:
            bucket.append(table)
    every = [row for part in rows.values() for row in part]
    close = functools.partial(np.allclose, rtol=1e-5, atol=5e-6)  # rounded to five digits
    assert close(found.mean, np.mean(every, 0))
    for number, part in rows.items():
        assert close(found.quarters[QUARTERS[number]], np.mean(part, 0))
    assert close(found.bucket.chances, np.mean(bucket, 0))
    assert (found.sentences, found.tokens, found.bucket.sentences) == (30, len(every), len(bucket))


def test_the_past_may_follow_wait_k(model: Translator, random_split: Callable[..., Split]) -> None:
    split = random_split(12, 62, longest=8)
    found = analyse(model, split, SHARES, None, tokens=40, past=2)
    every = []
    for n in range(12):
        source, target = split.source[n].tolist(), split.target[n].tolist()[:-1]
        for i, token in enumerate(target):
            before = [min(2 + j, len(source)) for j in range(i)]
            paths = [[*before, math.ceil(share * len(source))] for share in SHARES]
            states = [recomputed_logits(model, source, target[:i], path) for path in paths]
            every.append([float(logits.softmax(-1)[token]) for logits in states])
    assert np.allclose(found.mean, np.mean(every, 0), rtol=1e-5, atol=5e-6)
    assert found.mean != analyse(model, split, SHARES, None, tokens=40).mean


def test_a_length_that_no_target_has(model: Translator, split: Split) -> None:
    with pytest.raises(UserError, match="--length 99: no sentence has this number of target units"):
        analyse(model, split, SHARES, 99, tokens=400)


def test_the_command(toy_data: Data, toy_folder: Path, tmp_path: Path) -> None:
    assert toy_folder == Path(toy_data.dataset)
    run = train(short_recipe(toy_data, tmp_path / "run"), CPU)
    done = whilst(
        "analyse", run, "--split", "valid", "--points", "12", "--out", tmp_path / "out", "--device", "cpu"
    )
    assert done.code == 0, done.err
    assert "valid: 20 sentences" in done.out
    assert "last quarter" in done.out
    assert "…" not in done.out, "figures must not be cut off"
    table = json.loads((tmp_path / "out/analysis.json").read_text(encoding="utf-8"))
    assert (table["split"], table["sentences"], len(table["mean"])) == ("valid", 20, 12)
    length, chances = table["bucket"]["target_length"], table["bucket"]["chances"]
    assert len(chances) == length
    for name in ("analysis.png", "analysis.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 5000
