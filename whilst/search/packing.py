"""Pack a padded batch into one row of a fixed size on its own device, without synchronisation; unpack results."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.data.batches import BLOCK, Batch
from whilst.data.vocabulary import BOS, PAD
from whilst.model.observations import PathStates


def packed_positions(position: Tensor, lengths: Tensor, size: int) -> Tensor:
    """(rows, columns) the place of each token in a packed row; `lengths` (rows). Padding goes to `size`."""
    starts = lengths.cumsum(0) - lengths
    return torch.where(position < lengths[:, None], position + starts[:, None], size)


def packed_sizes(tokens: int) -> tuple[int, int]:
    """Row sizes of source and target, for batches of at most `tokens` on either side."""
    size = -(-tokens // BLOCK) * BLOCK
    return size + BLOCK, size  # some source stays free, so that padding can attend to something


@dataclass(frozen=True)
class Packing:
    source: Tensor  # (rows, source) place in the packed row; of padding one past its end
    target: Tensor  # (rows, target)
    source_size: int
    target_size: int

    @classmethod
    def for_batch(cls, batch: Batch, tokens: int) -> "Packing":
        """`tokens`: the most that a batch has on either side."""
        source_size, target_size = packed_sizes(tokens)
        return cls(
            packed_positions(batch.source_at.position, batch.source_lengths[:, 0], source_size),
            packed_positions(batch.target_at.position, batch.target_lengths[:, 0], target_size),
            source_size,
            target_size,
        )

    def pack_source(self, values: Tensor, padding: int) -> Tensor:
        """(rows, source) -> (1, source size)."""
        return _pack(values, self.source, self.source_size, padding)

    def pack_target(self, values: Tensor, padding: int) -> Tensor:
        return _pack(values, self.target, self.target_size, padding)

    def pack(self, batch: Batch) -> Batch:
        """The same as `pack_batch` of these sentences."""
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
        """(1, size, …) -> (rows, columns, …); padding has arbitrary values."""
        source = self.source.clamp(max=self.source_size - 1)
        target = self.target.clamp(max=self.target_size - 1)
        return PathStates(
            packed.encoded[0, source],
            packed.states[0, target],
            packed.words[0, target],
            None if packed.lookahead is None else packed.lookahead[0, source],
        )


def _pack(values: Tensor, place: Tensor, size: int, padding: int) -> Tensor:
    row = values.new_full((size + 1,), padding)
    return row.scatter(0, place.flatten(), values.flatten())[None, :size]
