"""The reads of a whole split in every interval: found once, kept on the device, looked up for each batch.

They are what the agent learns; the translator does not change meanwhile, so searching again would find the same.
"""

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
from whilst.search.binary_search import covering, search_all
from whilst.search.packed_search import count_looks, room
from whilst.search.packing import packed_sizes

MANY = 1 << 20  # target units of a split; fewer are searched in less time than a GPU needs to compile


@dataclass(frozen=True)
class Labels:
    reads: Tensor  # (intervals, target units of all sentences) end to end
    offsets: Tensor  # (sentences + 1) where each begins

    @classmethod
    def empty(cls, split: Split, intervals: int, device: torch.device) -> "Labels":
        # 16 bits hold every position that a model can have.
        return cls.over(split, torch.empty(intervals, len(split.target.tokens), dtype=torch.int16, device=device))

    @classmethod
    def over(cls, split: Split, reads: Tensor) -> "Labels":
        return cls(reads, torch.from_numpy(split.target.offsets).to(reads.device))

    def begins(self, batch: Batch) -> Tensor:
        """(rows, 1) where each sentence of a batch begins. A GPU is not waited for."""
        numbers = torch.as_tensor(batch.numbers).to(self.offsets.device, non_blocking=True)
        return self.offsets[numbers][:, None]

    def of(self, batch: Batch, intervals: Tensor) -> Tensor:
        """(rows, target) reads of a padded batch, each sentence in the interval of its number."""
        # Padding lies past the end of its sentence: it takes the last read.
        place = batch.target_at.position.minimum(batch.target_lengths - 1) + self.begins(batch)
        return self.reads[intervals[:, None], place].long()

    def keep(self, batch: Batch, found: Tensor) -> None:
        """Put the (intervals, rows, target) reads of a padded batch where they belong."""
        inside = batch.target_at.position < batch.target_lengths
        place = (self.begins(batch) + batch.target_at.position)[inside]
        self.reads[:, place] = found[:, inside].to(self.reads.dtype)


@torch.no_grad()
def find_labels(model: Translator, settings: Search, split: Split, tokens: int) -> Labels:
    """Search a split, longest sentences last; the model must be in eval mode."""
    device = model.target_embedding.weight.device
    labels = Labels.empty(split, len(settings.intervals), device)
    order = split.target.lengths.argsort(kind="stable")
    for chosen in progress_bar(padded_chunks(split, order, tokens), "searching", "batches"):
        batch = pad_batch(split, chosen).to(device)
        labels.keep(batch, search_all(model, batch, settings))
    return labels


Finder = Callable[[Batch, int], Tensor]  # (intervals, 1, target) reads of a packed batch by a row of a size


def pays_packed(split: Split, tokens: int) -> bool:
    """Whether `find_packed` is worth compiling what it calls, and can take all sentences."""
    longest = max(int(side.lengths.max()) for side in (split.source, split.target))
    return len(split.target.tokens) >= MANY and longest <= tokens


@torch.no_grad()
def find_packed(finder: Finder, settings: Search, split: Split, tokens: int, device: torch.device) -> Labels:
    """The same in packed batches of one shape: sentences as they come, so that labels lie as they are found."""
    labels, sizes = Labels.empty(split, len(settings.intervals), device), packed_sizes(tokens)
    batches = packed_chunks(split, np.arange(len(split.source)), sizes[0] - 1, sizes[1])
    first, size = min(first for first, _ in settings.intervals), covering(settings).size
    looks = max(count_looks(split, one, np.full(len(one), first), size, settings) for one in batches)
    for chosen in progress_bar(batches, "searching", "batches"):
        begin, end = split.target.offsets[chosen[0]], split.target.offsets[chosen[-1] + 1]
        found = finder(pack_batch(split, chosen, *sizes).to(device), room(looks))
        labels.reads[:, begin:end] = found[:, 0, : end - begin].to(labels.reads.dtype)
    return labels
