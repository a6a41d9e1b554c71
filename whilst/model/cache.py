"""What live translations remember of what they have read and written: keys, values and counts, a row each.

Knows no model. Some rows can be worked on by themselves (`Cache.part`): those of the sessions that have work.
"""

import contextlib
import math
import mmap
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.model.monotonic_attention import HeadPositions

KeysValues = tuple[Tensor, Tensor]  # each (rows, heads, capacity, width / heads); monotone keys are twice as wide


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros on a CPU that take memory when they are first written to, a small page at a time.

    The system's large pages would be filled with zeros for each new row, megabytes of which it hardly uses.
    """
    size = math.prod(shape)
    memory = mmap.mmap(-1, max(1, size * dtype.itemsize))
    if advice := getattr(mmap, "MADV_NOHUGEPAGE", None):
        with contextlib.suppress(OSError):  # a kernel without large pages knows no such advice
            memory.madvise(advice)
    return torch.frombuffer(memory, dtype=dtype, count=size).view(shape)


@dataclass
class Slot:
    """One layer's cached keys and values, and where the next ones go in each row."""

    keys: Tensor  # (rows, heads, capacity, size)
    values: Tensor
    place: Tensor  # (rows, new tokens) where the tokens of this step go
    at: Tensor  # (rows, 1) which rows of keys and values these are
    end: int  # columns in use after this step, in the longest row
    rows: Tensor | None = None  # the same, if not all

    def append(self, keys: Tensor, values: Tensor) -> KeysValues:
        self.keys[self.at, :, self.place] = keys.transpose(1, 2)
        self.values[self.at, :, self.place] = values.transpose(1, 2)
        return held((self.keys, self.values), self.rows, self.end)


def numbers(rows: Tensor | None, like: Tensor) -> Tensor:
    """(rows) which rows of a cache these are; without a choice all, in their order."""
    return torch.arange(len(like), device=like.device) if rows is None else rows


def held(keys_values: KeysValues, rows: Tensor | None, end: int) -> KeysValues:
    """What a cache holds of these rows up to a column; copied only where some are chosen."""
    keys, values = keys_values
    chosen = slice(None) if rows is None else rows
    return keys[chosen, :, :end], values[chosen, :, :end]


@dataclass
class Cache:
    """Everything that a batch of live translations remembers. Each row moves on at its own pace."""

    encoder: list[KeysValues]  # self-attention of the encoder layers, for reading on
    source: list[KeysValues]  # what the decoder layers see of the source
    decoder: KeysValues  # self-attention of the decoder layers: (layers, rows, …)
    encoded: Tensor  # (rows, capacity, width) encoder states
    decoded: Tensor  # (rows, width) decoder state of the last token written, zeros before the first
    read: Tensor  # (rows) source tokens encoded
    written: Tensor  # (rows) target tokens decoded
    heads: list[HeadPositions]  # of the decoder layers, if their heads are monotone
    # Bounds that no row's `read` and `written` exceed, known without asking the device.
    read_end: int = 0
    written_end: int = 0
    rows: Tensor | None = None  # a part's: which rows of the large tensors are its own

    def part(self, rows: Tensor, read_end: int, written_end: int) -> "Cache":
        """Some rows, to be worked on by themselves; `put` brings back what came of it. Shares the large tensors."""
        small = self.decoded[rows], self.read[rows], self.written[rows]
        heads = [layer.part(rows) for layer in self.heads]
        return Cache(
            self.encoder, self.source, self.decoder, self.encoded, *small, heads, read_end, written_end, rows
        )

    def put(self, part: "Cache") -> None:
        assert part.rows is not None
        self.decoded[part.rows] = part.decoded
        self.read[part.rows], self.written[part.rows] = part.read, part.written
        for mine, new in zip(self.heads, part.heads, strict=True):
            mine.put(part.rows, new)

    def restart(self) -> None:
        """Forget what was read and written; the room for it stays."""
        self.read, self.written = torch.zeros_like(self.read), torch.zeros_like(self.written)
        self.decoded = torch.zeros_like(self.decoded)
        for layer in self.heads:
            layer.past = torch.zeros_like(layer.past)
        self.read_end = self.written_end = 0

    def commit(self, states: Tensor, rows: Tensor) -> None:
        """Count as written, in these (rows, booleans), what `Translator.look` saw."""
        self.written = self.written + rows.long()
        self.decoded = torch.where(rows[:, None], states, self.decoded)
        # A bound that needs no word from the device; the last column is for rows that are finished.
        self.written_end = min(self.written_end + 1, self.decoder[0].shape[3] - 1)
        for layer in self.heads:
            layer.commit(rows)

    def settle(self, chosen: Tensor) -> None:
        """Of what `Translator.looks` saw, this one (rows) of each row is what `commit` will count."""
        rows = numbers(self.rows, chosen)
        for part in self.decoder:  # all layers at once: a GPU waits for each copy
            part[:, rows, :, self.written] = part[:, rows, :, self.written + chosen]

    @property
    def stopped(self) -> Tensor | None:
        """(rows) whether all monotone heads had stopped by themselves when `Translator.look` saw them."""
        return torch.cat([layer.done for layer in self.heads], 1).all(1) if self.heads else None

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order (a row may appear more than once)."""
        for layers in (self.encoder, self.source):
            layers[:] = [(keys[rows], values[rows]) for keys, values in layers]
        self.decoder = self.decoder[0][:, rows], self.decoder[1][:, rows]
        self.encoded, self.decoded = self.encoded[rows], self.decoded[rows]
        self.read, self.written = self.read[rows], self.written[rows]
        for layer in self.heads:
            layer.select(rows)
