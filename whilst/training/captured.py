"""CUDA graphs over packed batches for what training computes without gradients: the search and the agent's inputs.

Autocast's cache of weights is disabled in these graphs: with it, a graph would keep the weights of its capture.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.cuda_graphs import CapturedGraph
from whilst.core.settings import Search
from whilst.data.batches import Batch
from whilst.data.dataset import Split
from whilst.data.vocabulary import BOS, PAD
from whilst.model.agent import PathStates
from whilst.model.attention import use_small_tiles
from whilst.model.transformer import Translator
from whilst.search.binary_search import Interval, covering_interval, search_interval
from whilst.search.labels import PackedSearch, packed_sizes
from whilst.search.packed_search import ScoreQueries, count_queries, fill_table_packed, row_size
from whilst.training.sampling import per_token, search_sentences

Observer = Callable[[Translator, Batch, Tensor], PathStates]  # model, batch, reads


def compile_translator(model: Translator) -> None:
    """Compile each layer separately: all encoder layers share one compiled program, all decoder layers another."""
    model.enable_fast_paths()
    use_small_tiles(model.device)
    # Each stage compiles its own shapes. Beyond the limit FlexAttention would run uncompiled and exhaust memory.
    torch._dynamo.config.recompile_limit = 128
    for layer in (*model.encoder, *model.decoder):
        layer.compile(dynamic=False)


class CapturedSearch:
    """`search_sentences` with CUDA graphs for packed batches, one graph for each size of the row of queries."""

    def __init__(self, split: Split, score: ScoreQueries) -> None:
        self.split, self.score = split, score
        self.graphs: dict[int, CapturedGraph] = {}

    def __call__(self, model: Translator, batch: Batch, settings: Search, firsts: Tensor) -> Tensor:
        if not batch.packed:
            return search_sentences(model, batch, settings, firsts)
        queries = count_queries(self.split, batch.numbers, firsts[:-1].numpy(), settings.size, settings)
        size = min((size for size in self.graphs if size >= queries), default=row_size(queries))

        def work(*tensors: Tensor) -> Tensor:
            inputs, first = batch.with_tensors(tensors[:-1]), tensors[-1]
            interval = Interval(first, settings.size, settings.slope)
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                table = fill_table_packed(model, inputs, interval, settings, size, self.score)
                return search_interval(table.predict, inputs, settings, first)

        inputs = (*batch.tensors(), per_token(firsts, batch))
        if size not in self.graphs:
            self.graphs[size] = CapturedGraph(work, inputs, next(iter(self.graphs.values()), None))
        return self.graphs[size](inputs)


def captured_label_search(model: Translator, settings: Search, score: ScoreQueries) -> PackedSearch:
    """Return a search of packed batches of one shape in all intervals. Its CUDA graph is freed with it."""
    graphs: list[CapturedGraph] = []

    def find(batch: Batch, size: int) -> Tensor:
        def work(*tensors: Tensor) -> Tensor:
            inputs, interval = batch.with_tensors(tensors), covering_interval(settings)
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                return fill_table_packed(model, inputs, interval, settings, size, score).search_all(settings)

        if not graphs:
            graphs.append(CapturedGraph(work, batch.tensors()))
        return graphs[0](batch.tensors())

    return find


def packed_positions(position: Tensor, lengths: Tensor, size: int) -> Tensor:
    """(rows, columns) position of each token in the packed row; `size` for padding. `lengths`: (rows)."""
    starts = lengths.cumsum(0) - lengths
    return torch.where(position < lengths[:, None], position + starts[:, None], size)


@dataclass(frozen=True)
class Packing:
    """Packs a padded batch into one row of a fixed size on the batch's device, without synchronisation."""

    source: Tensor  # (rows, source) position in the packed row; source_size for padding
    target: Tensor  # (rows, target) position in the packed row; target_size for padding
    source_size: int
    target_size: int

    @classmethod
    def for_batch(cls, batch: Batch, tokens: int) -> "Packing":
        """`tokens`: the largest number of tokens of a batch on either side."""
        source_size, target_size = packed_sizes(tokens)
        return cls(
            packed_positions(batch.source_at.position, batch.source_lengths[:, 0], source_size),
            packed_positions(batch.target_at.position, batch.target_lengths[:, 0], target_size),
            source_size,
            target_size,
        )

    def pack_source(self, values: Tensor, padding: int) -> Tensor:
        """(rows, source) -> (1, source_size)."""
        return _pack(values, self.source, self.source_size, padding)

    def pack_target(self, values: Tensor, padding: int) -> Tensor:
        return _pack(values, self.target, self.target_size, padding)

    def pack(self, batch: Batch) -> Batch:
        """Return the batch that `pack_batch` makes of the same sentences."""
        source_at, target_at, padding = batch.source_at, batch.target_at, batch.sentences
        tensors = (
            self.pack_source(batch.source, PAD),
            self.pack_source(source_at.segment, padding),
            self.pack_source(source_at.position, 0),
            self.pack_target(batch.target, BOS),
            self.pack_target(target_at.segment, padding),
            self.pack_target(target_at.position, 0),
            self.pack_target(batch.labels, PAD),
            self.pack_target(batch.source_lengths, 1),
            self.pack_target(batch.target_lengths, 1),
        )
        return dataclasses.replace(batch.with_tensors(tensors), packed=True)

    def unpack(self, packed: PathStates) -> PathStates:
        """(1, size, …) -> (rows, columns, …). Values at padding are arbitrary."""
        source = self.source.clamp(max=self.source_size - 1)
        target = self.target.clamp(max=self.target_size - 1)
        return PathStates(
            packed.encoded[0, source],
            packed.states[0, target],
            packed.words[0, target],
            None if packed.lookahead is None else packed.lookahead[0, source],
        )


def _pack(values: Tensor, positions: Tensor, size: int, padding: int) -> Tensor:
    row = values.new_full((size + 1,), padding)
    return row.scatter(0, positions.flatten(), values.flatten())[None, :size]


class CapturedObserver:
    """Packs a padded batch of at most `tokens` tokens on either side and runs `observer` on it as a CUDA graph."""

    def __init__(self, observer: Observer, compiled: Translator, tokens: int) -> None:
        self.observer, self.compiled, self.tokens = observer, compiled, tokens
        self.graph: CapturedGraph | None = None
        self.observed: PathStates  # the tensors that the graph fills

    def __call__(self, model: Translator, batch: Batch, reads: Tensor) -> PathStates:  # noqa: ARG002
        packing = Packing.for_batch(batch, self.tokens)
        packed = packing.pack(batch)

        def work(*tensors: Tensor) -> Tensor:
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                self.observed = self.observer(
                    self.compiled, packed.with_tensors(tensors[:-1]), tensors[-1]
                ).bfloat16()
            return self.observed.words

        inputs = (*packed.tensors(), packing.pack_target(reads, 1))
        self.graph = self.graph or CapturedGraph(work, inputs)
        self.graph(inputs)
        return packing.unpack(self.observed)
