"""A padded batch as a packed one of a fixed size, on its own device and without a word from it; and back again."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.data.batches import BLOCK, Batch
from whilst.data.vocabulary import BOS, PAD
from whilst.model.observations import Looks


def places(position: Tensor, lengths: Tensor, size: int) -> Tensor:
    """(rows, columns) where in a packed row each token of rows of these lengths (rows) goes; padding to `size`."""
    starts = lengths.cumsum(0) - lengths
    return torch.where(position < lengths[:, None], position + starts[:, None], size)


def packed_sizes(tokens: int) -> tuple[int, int]:
    """Of source and target, for batches of at most so many tokens on either side."""
    size = -(-tokens // BLOCK) * BLOCK
    return size + BLOCK, size  # some source is free, so that padding has something to look at


@dataclass(frozen=True)
class Packing:
    source: Tensor  # (rows, source) place in the packed row; of padding: one past its end
    target: Tensor  # (rows, target)
    source_size: int
    target_size: int

    @classmethod
    def of(cls, batch: Batch, tokens: int) -> "Packing":
        """For batches of at most so many tokens on either side."""
        source_size, target_size = packed_sizes(tokens)
        read, written = batch.source_lengths[:, 0], batch.target_lengths[:, 0]
        return cls(
            places(batch.source_at.position, read, source_size),
            places(batch.target_at.position, written, target_size),
            source_size,
            target_size,
        )

    def pack_source(self, values: Tensor, padding: int) -> Tensor:
        """(rows, source) -> (1, source size)."""
        return _pack(values, self.source, self.source_size, padding)

    def pack_target(self, values: Tensor, padding: int) -> Tensor:
        return _pack(values, self.target, self.target_size, padding)

    def pack(self, batch: Batch) -> Batch:
        """The same as data.packed makes."""
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

    def unpack(self, packed: Looks) -> Looks:
        """(1, size, …) -> (rows, columns, …); padding becomes anything."""
        source = self.source.clamp(max=self.source_size - 1)
        target = self.target.clamp(max=self.target_size - 1)
        return Looks(
            packed.encoded[0, source],
            packed.states[0, target],
            packed.words[0, target],
            None if packed.ahead is None else packed.ahead[0, source],
        )


def _pack(values: Tensor, place: Tensor, size: int, padding: int) -> Tensor:
    row = values.new_full((size + 1,), padding)
    return row.scatter(0, place.flatten(), values.flatten())[None, :size]
