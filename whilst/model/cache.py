"""Caches for decoding token by token: keys, values and counts, one row for each sentence.

`Cache.subset` selects some of the rows to work on, `Cache.update` copies the result back.
"""

import contextlib
import math
import mmap
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.model.monotonic_attention import HeadPositions

KeysValues = tuple[Tensor, Tensor]  # each (rows, heads, capacity, width / heads); monotonic keys are twice as wide


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros on a CPU whose memory is allocated when it is first written to, in small pages.

    With huge pages the operating system would zero megabytes for each new row, most of which are never used.
    """
    size = math.prod(shape)
    memory = mmap.mmap(-1, max(1, size * dtype.itemsize))
    if advice := getattr(mmap, "MADV_NOHUGEPAGE", None):
        with contextlib.suppress(OSError):  # kernels without huge pages do not know the advice
            memory.madvise(advice)
    return torch.frombuffer(memory, dtype=dtype, count=size).view(shape)


@dataclass
class LayerCache:
    """Cached keys and values of one layer, and the columns for the new ones of each row."""

    keys: Tensor  # (rows, heads, capacity, size)
    values: Tensor
    columns: Tensor  # (rows, new tokens)
    row_index: Tensor  # (rows, 1) rows of `keys` and `values`
    end: int  # columns in use after this step, in the longest row
    rows: Tensor | None = None  # row_index without its last dimension; None: all rows

    def append(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Store keys and values (rows, heads, new tokens, size), and return those of all columns in use."""
        self.keys[self.row_index, :, self.columns] = keys.transpose(1, 2)
        self.values[self.row_index, :, self.columns] = values.transpose(1, 2)
        return select_rows((self.keys, self.values), self.rows, self.end)


def row_numbers(rows: Tensor | None, like: Tensor) -> Tensor:
    """(rows) `rows` itself; if it is None, the indices of all rows of `like`."""
    return torch.arange(len(like), device=like.device) if rows is None else rows


def select_rows(keys_values: KeysValues, rows: Tensor | None, end: int) -> KeysValues:
    """The columns before `end` of these rows, as a copy; if `rows` is None, of all rows, as a view."""
    keys, values = (part[:, :, :end] for part in keys_values)
    return (keys, values) if rows is None else (copy_rows(keys, rows), copy_rows(values, rows))


def copy_rows(cached: Tensor, rows: Tensor) -> Tensor:
    """Copy rows of (rows, heads, columns, size). index_select copies whole rows, indexing would copy values."""
    if cached.stride(1) < cached.stride(2):  # the heads of a token are adjacent in memory
        return cached.transpose(1, 2).index_select(0, rows).transpose(1, 2)
    return cached.index_select(0, rows)


@dataclass
class Cache:
    """The state of a model in a batch of translations. Rows read and write independently."""

    encoder: list[KeysValues]  # for the self-attention of each encoder layer
    source: list[KeysValues]  # for the cross-attention of each decoder layer
    decoder: KeysValues  # for the self-attention of the decoder layers: (layers, rows, …)
    encoded: Tensor  # (rows, capacity, width) encoder states
    decoded: Tensor  # (rows, width) decoder state of the last token written, zeros before the first
    read: Tensor  # (rows) source tokens read
    written: Tensor  # (rows) target tokens written
    heads: list[HeadPositions]  # of the decoder layers, if their heads are monotonic
    # Upper bounds of `read` and `written` over all rows, known without waiting for the device.
    read_end: int = 0
    written_end: int = 0
    rows: Tensor | None = None  # in a subset: its row indices into the large tensors

    def subset(self, rows: Tensor, read_end: int, written_end: int) -> "Cache":
        """A cache of these rows with its own bounds. Large tensors are shared, `update` copies small ones back."""
        small = self.decoded[rows], self.read[rows], self.written[rows]
        heads = [layer.part(rows) for layer in self.heads]
        return Cache(
            self.encoder, self.source, self.decoder, self.encoded, *small, heads, read_end, written_end, rows
        )

    def update(self, subset: "Cache") -> None:
        assert subset.rows is not None
        self.decoded[subset.rows] = subset.decoded
        self.read[subset.rows], self.written[subset.rows] = subset.read, subset.written
        for layer, part in zip(self.heads, subset.heads, strict=True):
            layer.put(subset.rows, part)

    def restart(self) -> None:
        """Begin new sentences in the same memory."""
        self.read, self.written = torch.zeros_like(self.read), torch.zeros_like(self.written)
        self.decoded = torch.zeros_like(self.decoded)
        for layer in self.heads:
            layer.past = torch.zeros_like(layer.past)
        self.read_end = self.written_end = 0

    def commit(self, states: Tensor, rows: Tensor) -> None:
        """Count the lookahead states (rows, width) as written where `rows` (booleans) is True."""
        self.written = self.written + rows.long()
        self.decoded = torch.where(rows[:, None], states, self.decoded)
        # The last column is for finished rows.
        self.written_end = min(self.written_end + 1, self.decoder[0].shape[3] - 1)
        for layer in self.heads:
            layer.commit(rows)

    def keep_lookahead(self, chosen: Tensor) -> None:
        """Keep the keys and values of the `chosen` one (rows) of several lookahead states, for `commit`."""
        rows = row_numbers(self.rows, chosen)
        for part in self.decoder:  # all layers at once: one kernel
            part[:, rows, :, self.written] = part[:, rows, :, self.written + chosen]

    @property
    def stopped(self) -> Tensor | None:
        """(rows) whether all monotonic heads stopped by themselves at the last lookahead."""
        return torch.cat([layer.done for layer in self.heads], 1).all(1) if self.heads else None

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may appear more than once."""
        for layers in (self.encoder, self.source):
            layers[:] = [(keys[rows], values[rows]) for keys, values in layers]
        self.decoder = self.decoder[0][:, rows], self.decoder[1][:, rows]
        self.encoded, self.decoded = self.encoded[rows], self.decoded[rows]
        self.read, self.written = self.read[rows], self.written[rows]
        self.heads = [layer.part(rows) for layer in self.heads]
