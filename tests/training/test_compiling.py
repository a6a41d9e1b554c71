"""Layers of the same kind share one compiled program, which saves most of the time of the first update."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch.fx import GraphModule

from whilst.core.settings import Model, Search
from whilst.data.batches import pad_batch
from whilst.data.dataset import Split
from whilst.model.transformer import Translator, decode_batch
from whilst.search.binary_search import search

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
