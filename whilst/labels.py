"""The reads of a whole split in every interval: found once, kept on the device, looked up for each batch.

They are what the agent learns; the translator does not change meanwhile, so searching again would find the same.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.console import track
from whilst.data import Batch, cut_padded, padded
from whilst.dataset import Split
from whilst.model import Translator
from whilst.search import search_all
from whilst.settings import Search


@dataclass(frozen=True)
class Labels:
    reads: Tensor  # (intervals, target units of all sentences) end to end
    offsets: Tensor  # (sentences + 1) where each begins

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
    offsets = torch.from_numpy(split.target.offsets).to(device)
    # 16 bits hold every position that a model can have.
    reads = torch.empty(len(settings.intervals), len(split.target.tokens), dtype=torch.int16, device=device)
    labels = Labels(reads, offsets)
    order = split.target.lengths.argsort(kind="stable")
    for chosen in track(cut_padded(split, order, tokens), "searching", "batches"):
        batch = padded(split, chosen).to(device)
        labels.keep(batch, search_all(model, batch, settings))
    return labels
