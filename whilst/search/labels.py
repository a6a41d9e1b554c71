"""Training labels of the agent: the reads of a whole split, found once and kept on the device.

By default they are searched for in every interval. The reads of the translation-based policy (Alinejad et al. 2021)
say when a source prefix suffices for the final translation. Its target side is the model's own translation of the
whole source, not the reference. With agreement "token", a token has the fewest reads, but not fewer than the token
before, after which the model writes it as in that translation; at most the whole source. With "within", a binary
search looks for such reads in an interval (`bounded_agreement`).

For "token", no prefix has to be translated. As long as the greedy translation of a prefix agrees with the final
translation, both have the same past, so one forced decoder pass for each prefix length gives the next token. A
bidirectional encoder knows finished sentences only: it gets each prefix with an end mark, and encodes it anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from whilst.core.console import progress_bar
from whilst.core.settings import Search
from whilst.data.batches import BLOCK, Batch, pack_batch, packed_chunks, pad_batch, padded_chunks
from whilst.data.dataset import Split
from whilst.data.vocabulary import EOS, PAD
from whilst.model.transformer import Translator, most_likely
from whilst.search.binary_search import PathDecoder, covering_interval, fill_table
from whilst.search.packed_search import count_queries, row_size

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
        index = batch.target_at.position.minimum(batch.target_lengths - 1) + self._starts(batch)
        return self.reads[intervals[:, None], index].long()

    def store(self, batch: Batch, reads: Tensor) -> None:
        """Store the (intervals, rows, target) reads of a padded batch."""
        inside = batch.target_at.position < batch.target_lengths
        index = (self._starts(batch) + batch.target_at.position)[inside]
        self.reads[:, index] = reads[:, inside].to(self.reads.dtype)


@torch.no_grad()
def find_labels(model: Translator, settings: Search, split: Split, tokens: int) -> Labels:
    """Search a split, longest sentences last; the model must be in eval mode."""
    labels = Labels.empty(split, len(settings.intervals), model.device)
    order = split.target.lengths.argsort(kind="stable")
    for chosen in progress_bar(padded_chunks(split, order, tokens), "searching", "batches"):
        batch = pad_batch(split, chosen).to(model.device)
        table = fill_table(model, batch, covering_interval(settings), settings)  # intervals share decoder passes
        labels.store(batch, table.search_all(settings))
    return labels


def packed_sizes(tokens: int) -> tuple[int, int]:
    """Row sizes of source and target, for packed batches of at most `tokens` on either side."""
    size = -(-tokens // BLOCK) * BLOCK
    return size + BLOCK, size  # some source positions stay free, so that padding can attend to something


PackedSearch = Callable[[Batch, int], Tensor]  # packed batch, size of its query row -> (intervals, 1, target) reads


def worth_packing(split: Split, tokens: int) -> bool:
    """Whether `find_labels_packed` can take all sentences and saves more time than it takes to compile."""
    longest = max(int(side.lengths.max()) for side in (split.source, split.target))
    return len(split.target.tokens) >= MIN_PACKED_UNITS and longest <= tokens


@torch.no_grad()
def find_labels_packed(
    search: PackedSearch, settings: Search, split: Split, tokens: int, device: torch.device
) -> Labels:
    """As `find_labels`, in packed batches of one shape, with the sentences in the order of the split."""
    labels, sizes = Labels.empty(split, len(settings.intervals), device), packed_sizes(tokens)
    batches = packed_chunks(split, np.arange(len(split.source)), sizes[0] - 1, sizes[1])
    first, size = min(first for first, _ in settings.intervals), covering_interval(settings).size
    queries = max(count_queries(split, part, np.full(len(part), first), size, settings) for part in batches)
    for chosen in progress_bar(batches, "searching", "batches"):
        begin, end = split.target.offsets[chosen[0]], split.target.offsets[chosen[-1] + 1]
        reads = search(pack_batch(split, chosen, *sizes).to(device), row_size(queries))
        labels.reads[:, begin:end] = reads[:, 0, : end - begin].to(labels.reads.dtype)
    return labels


@torch.no_grad()
def agreement_reads(model: Translator, batch: Batch) -> Tensor:
    """(rows, target) non-decreasing reads of a padded batch whose targets are the model's own translations."""
    decoder = PathDecoder(model, batch)
    lengths, real = batch.source_lengths, batch.labels != PAD
    reads, agreed = lengths.expand_as(batch.labels), torch.zeros_like(real)
    for count in range(1, int(lengths.max())):
        if model.bidirectional:
            prefix = finished_prefix(batch, count)
            logits = PathDecoder(model, prefix).logits(prefix.source_lengths)
        else:
            logits = decoder.logits(lengths.clamp(max=count))
        same = most_likely(logits.flatten(0, 1)).view_as(batch.labels) == batch.labels
        agreed = (same | agreed | ~real).long().cumprod(1).bool()  # a token that was written stays written
        reads = torch.where((count < lengths) & agreed, reads.clamp(max=count), reads)
    return reads


def finished_prefix(batch: Batch, count: int) -> Batch:
    """The first `count` source tokens of each sentence of a padded batch, and an end mark."""
    lengths = batch.source_lengths.clamp(max=count + 1)
    position, ends = batch.source_at.position[:, : count + 1], lengths[:, :1]
    segment = batch.source_at.segment[:, : count + 1].masked_fill(position >= ends, -1)
    source = batch.source[:, : count + 1].masked_fill(position == ends - 1, EOS)
    return replace(batch, source=source, source_segment=segment, source_position=position, source_lengths=lengths)


def bounded_agreement(search: Search) -> Search:
    """The search of agreement "within": it goes left if the token of the model's translation is most probable at m.

    A binary search does not always find the fewest such reads, and takes the end of the interval if there are none.
    On a GPU it runs in bfloat16, where near ties may be decided differently than during translation.
    """
    return replace(search, condition="ground-truth", target="reference", tolerance=0.0)


def find_agreement_labels(model: Translator, split: Split, tokens: int) -> Labels:
    """The labels of a split whose targets are the model's own translations; the model must be in eval mode."""
    labels = Labels.empty(split, 1, model.device)
    order = split.source.lengths.argsort(kind="stable")  # the source length is the number of passes
    # In the precision of translation: near ties would otherwise be decided differently.
    with torch.autocast(model.device.type, enabled=False):
        for chosen in progress_bar(padded_chunks(split, order, tokens), "comparing prefixes", "batches"):
            batch = pad_batch(split, chosen).to(model.device)
            labels.store(batch, agreement_reads(model, batch)[None])
    return labels
