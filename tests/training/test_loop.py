"""An update changes the weights in the same way whether it is captured or not."""

from pathlib import Path

import pytest
import torch

from tests.helpers.runs import CPU, Replayed, changed, short_recipe
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.training import loop as loops
from whilst.training.tasks import make_task


def test_a_captured_update_equals_a_plain_one(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit, with dropout and two micro-batches."""
    recipe = changed(short_recipe(toy_data, tmp_path), accumulate=2)
    monkeypatch.setattr(loops, "CapturedGraph", Replayed)
    weights = []
    for record in (False, True):
        loop = loops.Loop(recipe, make_task(recipe, toy_dataset, CPU))
        loop.use_graphs = record
        updates = loop.updates()
        for _ in range(3):
            micros, tokens, _ = next(updates)
            loop.update(micros, tokens)
        weights.append(dict(loop.state.model.state_dict()))
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name
