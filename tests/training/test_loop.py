"""An update changes the weights in the same way, captured or not; layers of one kind share one compiled program."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.fx import GraphModule

from tests.helpers.runs import CPU, Replayed, changed, short_recipe
from whilst.core.settings import Data, Model, Search
from whilst.data.batches import pad_batch
from whilst.data.dataset import Dataset, Split
from whilst.model.transformer import Translator, decode_batch
from whilst.search.binary_search import search
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


Graphs = list[GraphModule]


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # the compiler reads it
def test_alike_layers_are_compiled_once(
    tiny: Model, translator: Callable[..., Translator], random_split: Callable[..., Split]
) -> None:
    """Once for training and once for search, in any order."""
    model, made = translator(tiny), Graphs()

    def compiler(graph: GraphModule, _: list[torch.Tensor]) -> Callable[..., object]:
        made.append(graph)
        return graph.forward

    assert len(model.encoder) > 1
    assert len(model.decoder) > 1
    for layer in (*model.encoder, *model.decoder):
        layer.compile(dynamic=False, backend=compiler)
    batch = pad_batch(random_split(4, 1), np.arange(4))

    def train() -> int:
        decode_batch(model.train(), batch, batch.source_lengths)
        return len(made)

    def search_reads() -> int:
        search(model.eval(), batch, Search(intervals=((1, 5),), target="belief"), 1)
        return len(made)

    assert [train(), search_reads(), train(), search_reads()] == [2, 4, 4, 4]


def test_bf16_on_a_cpu_follows_fp32(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the CPU has instructions for it; elsewhere the same in emulation."""
    found = []
    for bf16 in (False, True):
        monkeypatch.setattr(loops, "computes_bf16", [lambda _: False, lambda _: True][bf16])
        recipe = short_recipe(toy_data, tmp_path)
        trained = loops.Loop(recipe, make_task(recipe, toy_dataset, CPU))
        updates = trained.updates()
        losses = []
        for _ in range(8):
            micro_batches, tokens, _ = next(updates)
            losses.append(float(trained.update(micro_batches, tokens)) / tokens)
        found.append(losses)
        assert all(parameter.dtype == torch.float32 for parameter in trained.state.model.parameters())
    assert found[0] != found[1]
    assert found[0] == pytest.approx(found[1], rel=0.01)
