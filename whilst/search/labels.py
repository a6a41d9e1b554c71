"""Training labels of the agent: the reads of a whole split in every interval, found once and kept on the device."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whilst.core.console import progress_bar
from whilst.core.settings import Search
from whilst.data.batches import Batch, pack_batch, packed_chunks, pad_batch, padded_chunks
from whilst.data.dataset import Split
from whilst.model.transformer import Translator
from whilst.search.binary_search import covering_interval, search_all
from whilst.search.packed_search import count_queries, row_size
from whilst.search.packing import packed_sizes

MIN_PACKED_UNITS = 1 << 20  # target units of a split; fewer are searched in less time than it takes to compile


@dataclass(frozen=True)
class Labels:
    reads: Tensor  # (intervals, target units) of all sentences end to end
    offsets: Tensor  # (sentences + 1) where each sentence begins

    @classmethod
    def empty(cls, split: Split, intervals: int, device: torch.device) -> "Labels":
        # 16 bits hold every position that a model can have.
        reads = torch.empty(intervals, len(split.target.tokens), dtype=torch.int16, device=device)
        return cls.from_reads(split, reads)

    @classmethod
    def from_reads(cls, split: Split, reads: Tensor) -> "Labels":
        return cls(reads, torch.from_numpy(split.target.offsets).to(reads.device))

    def _starts(self, batch: Batch) -> Tensor:
        """(rows, 1) where each sentence of a batch begins, without synchronisation."""
        numbers = torch.as_tensor(batch.numbers).to(self.offsets.device, non_blocking=True)
        return self.offsets[numbers][:, None]

    def reads_of(self, batch: Batch, intervals: Tensor) -> Tensor:
        """(rows, target) reads of a padded batch; `intervals` (rows) is the interval of each sentence."""
        place = batch.target_at.position.minimum(batch.target_lengths - 1) + self._starts(batch)
        return self.reads[intervals[:, None], place].long()

    def store(self, batch: Batch, found: Tensor) -> None:
        """Store the (intervals, rows, target) reads of a padded batch."""
        inside = batch.target_at.position < batch.target_lengths
        place = (self._starts(batch) + batch.target_at.position)[inside]
        self.reads[:, place] = found[:, inside].to(self.reads.dtype)


@torch.no_grad()
def find_labels(model: Translator, settings: Search, split: Split, tokens: int) -> Labels:
    """Search a split, longest sentences last; the model must be in eval mode."""
    device = model.target_embedding.weight.device
    labels = Labels.empty(split, len(settings.intervals), device)
    order = split.target.lengths.argsort(kind="stable")
    for chosen in progress_bar(padded_chunks(split, order, tokens), "searching", "batches"):
        batch = pad_batch(split, chosen).to(device)
        labels.store(batch, search_all(model, batch, settings))
    return labels


PackedSearch = Callable[[Batch, int], Tensor]  # packed batch, size of its query row -> (intervals, 1, target) reads


def worth_packing(split: Split, tokens: int) -> bool:
    """Whether `find_labels_packed` can take all sentences and saves more time than it takes to compile."""
    longest = max(int(side.lengths.max()) for side in (split.source, split.target))
    return len(split.target.tokens) >= MIN_PACKED_UNITS and longest <= tokens


@torch.no_grad()
def find_labels_packed(
    search: PackedSearch, settings: Search, split: Split, tokens: int, device: torch.device
) -> Labels:
    """The same in packed batches of one shape, with the sentences in their order in the split."""
    labels, sizes = Labels.empty(split, len(settings.intervals), device), packed_sizes(tokens)
    batches = packed_chunks(split, np.arange(len(split.source)), sizes[0] - 1, sizes[1])
    first, size = min(first for first, _ in settings.intervals), covering_interval(settings).size
    queries = max(count_queries(split, one, np.full(len(one), first), size, settings) for one in batches)
    for chosen in progress_bar(batches, "searching", "batches"):
        begin, end = split.target.offsets[chosen[0]], split.target.offsets[chosen[-1] + 1]
        found = search(pack_batch(split, chosen, *sizes).to(device), row_size(queries))
        labels.reads[:, begin:end] = found[:, 0, : end - begin].to(labels.reads.dtype)
    return labels
