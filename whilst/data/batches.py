"""Batches of sentence pairs as tensors, in an order that is determined by a seed.

The layout of a batch is padded (one sentence per row), boxed (padded to one of a few shapes) or packed (all
sentences in one row of a fixed size, so that a GPU compiles one shape). The model only sees tokens, segments and
positions.
"""

import functools
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from whilst.core.errors import UserError
from whilst.core.settings import MAX_POSITIONS
from whilst.data.dataset import Split, TokenSequences
from whilst.data.vocabulary import BOS, PAD

T = TypeVar("T")
Ints = npt.NDArray[np.int64]
Layout = Literal["padded", "boxed", "packed"]
BLOCK = 128  # FlexAttention's default tile; packed sizes are multiples of it
LENGTH_MULTIPLE = 8  # masked attention is fastest if lengths are multiples of this
MAX_BUCKETS = 10  # more buckets need less padding, but for each of them a CUDA graph is recorded


@dataclass(frozen=True)
class Tokens:
    """Sentence and position of each token in a (rows, columns) layout."""

    segment: Tensor  # (rows, columns) sentence number, the same on both sides of a pair
    position: Tensor  # (rows, columns) position in the sentence, from 0


@dataclass(frozen=True)
class Batch:
    """Pairs of sentences as tensors. `target` starts with bos, `labels` end with eos, padding is PAD."""

    source: Tensor  # (rows, source)
    source_segment: Tensor  # (rows, source)
    source_position: Tensor  # (rows, source)
    target: Tensor  # (rows, target)
    target_segment: Tensor  # (rows, target)
    target_position: Tensor  # (rows, target)
    labels: Tensor  # (rows, target)
    source_lengths: Tensor  # (rows, target) J of each target token's sentence, eos counted
    target_lengths: Tensor  # (rows, target) I of each target token's sentence, eos counted
    _: KW_ONLY
    numbers: Ints  # (sentences) indices in the split
    target_tokens: int  # number of target tokens without padding
    packed: bool

    @property
    def sentences(self) -> int:
        return len(self.numbers)

    @property
    def source_at(self) -> Tokens:
        return Tokens(self.source_segment, self.source_position)

    @property
    def target_at(self) -> Tokens:
        return Tokens(self.target_segment, self.target_position)

    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors in the order of the fields."""
        return tuple(value for value in vars(self).values() if isinstance(value, Tensor))

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Batch":
        """The same batch with other tensors, in the order of `tensors()`."""
        return Batch(*tensors, numbers=self.numbers, target_tokens=self.target_tokens, packed=self.packed)

    def pin(self) -> "Batch":
        """Copy the batch to page-locked memory, from which copies to a GPU are asynchronous."""
        return self.with_tensors([tensor.pin_memory() for tensor in self.tensors()])

    def to(self, device: torch.device) -> "Batch":
        return self.with_tensors([tensor.to(device, non_blocking=True) for tensor in self.tensors()])


def gather_tokens(side: TokenSequences, chosen: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The chosen sentences end to end: (tokens) ids, indices in `chosen` and positions; (sentences) lengths."""
    lengths = side.offsets[chosen + 1] - side.offsets[chosen]
    sentence = np.repeat(np.arange(len(chosen)), lengths)
    starts = np.cumsum(lengths) - lengths
    position = np.arange(len(sentence)) - starts[sentence]
    tokens = side.tokens[side.offsets[chosen][sentence] + position].astype(np.int64)
    return tokens, sentence, position, lengths


def pad_batch(split: Split, chosen: Ints, shape: tuple[int, int] | None = None) -> Batch:
    """A batch with one sentence per row. Source padding is hidden by segment -1, target padding by causality.

    `shape`: fixed (rows, length) of both sides. A row without a sentence has one source token, so that its target
    can attend to something, and all its labels are padding.
    """
    source, source_row, source_column, source_lengths = gather_tokens(split.source, chosen)
    target, target_row, target_column, target_lengths = gather_tokens(split.target, chosen)
    tokens, longest = int(target_lengths.sum()), (int(source_lengths.max()), int(target_lengths.max()))
    if max(longest) > MAX_POSITIONS:
        raise UserError(
            f"a sentence of {max(longest)} units is too long (at most {MAX_POSITIONS}); split it, or leave it out"
        )
    count, source_size, target_size = (shape[0], shape[1], shape[1]) if shape else (len(chosen), *longest)
    source_lengths, target_lengths = (
        np.concatenate([lengths, np.ones(count - len(chosen), np.int64)])[:, None]
        for lengths in (source_lengths, target_lengths)
    )
    sources = np.full((count, source_size), PAD)
    sources[source_row, source_column] = source
    labels = np.full((count, target_size), PAD)
    labels[target_row, target_column] = target
    rows = np.minimum(np.arange(count), len(chosen))[:, None]
    segments = np.where(np.arange(source_size) < source_lengths, rows, -1)
    positions = np.arange(target_size)
    target_arrays = _decoder_input(labels, positions), rows, positions, labels, source_lengths, target_lengths
    return Batch(
        *_tensors((count, source_size), sources, segments, np.arange(source_size)),
        *_tensors((count, target_size), *target_arrays),
        numbers=chosen,
        target_tokens=tokens,
        packed=False,
    )


def pack_batch(split: Split, chosen: Ints, source_size: int, target_size: int) -> Batch:
    """A batch with all sentences in one row on each side; the rest of the row is a segment of padding."""

    def fill(values: Ints, size: int, padding: int) -> Ints:
        return np.concatenate([values, np.full(size - len(values), padding)])[None]

    source, source_row, source_column, source_lengths = gather_tokens(split.source, chosen)
    target, target_row, target_column, target_lengths = gather_tokens(split.target, chosen)
    labels = fill(target, target_size, PAD)
    positions = fill(target_column, target_size, 0)
    arrays = (
        fill(source, source_size, PAD),
        fill(source_row, source_size, len(chosen)),
        fill(source_column, source_size, 0),
        _decoder_input(labels, positions),
        fill(target_row, target_size, len(chosen)),
        positions,
        labels,
        fill(source_lengths[target_row], target_size, 1),
        fill(target_lengths[target_row], target_size, 1),
    )
    tensors = map(torch.from_numpy, arrays)
    return Batch(*tensors, numbers=chosen, target_tokens=int(target_lengths.sum()), packed=True)


def _tensors(shape: tuple[int, int], *arrays: Ints) -> list[Tensor]:
    """The arrays, broadcast to this shape."""
    return [torch.from_numpy(array).expand(shape).contiguous() for array in arrays]


def _decoder_input(labels: Ints, positions: Ints) -> Ints:
    """The labels shifted right by one, with bos at the start of every sentence."""
    return np.where(positions == 0, BOS, np.roll(labels, 1, axis=1))


def bucket_lengths(lengths: Ints, most: int = MAX_BUCKETS) -> Ints:
    """At most `most` rising lengths; padding each sentence to the next larger length costs little.

    The search is greedy: it starts with all multiples of LENGTH_MULTIPLE and repeatedly removes the length whose
    removal adds the least padding.
    """
    tops = np.arange(LENGTH_MULTIPLE, lengths.max() + LENGTH_MULTIPLE, LENGTH_MULTIPLE)
    while True:
        counts = np.bincount(np.searchsorted(tops, lengths), minlength=len(tops))
        tops, counts = tops[counts > 0], counts[counts > 0]  # the last is never empty
        if len(tops) <= most:
            return tops
        tops = np.delete(tops, np.argmin(counts[:-1] * np.diff(tops)))


@dataclass(frozen=True)
class Buckets:
    """The shapes of boxed batches: `rows(i)` sentences of up to `lengths[i]` units on either side, for bucket i."""

    lengths: Ints  # rising
    tokens: int  # per batch and side

    def rows(self, bucket: int) -> int:
        return max(1, self.tokens // int(self.lengths[bucket]))

    def shape_for(self, sizes: Ints) -> tuple[int, int]:
        """(rows, length) of the smallest bucket that holds sentences of these sizes."""
        for bucket, length in enumerate(self.lengths):
            if length >= sizes.max() and self.rows(bucket) >= len(sizes):
                return self.rows(bucket), int(length)
        raise ValueError(f"{len(sizes)} sentences of up to {sizes.max()} units do not fit into any bucket")

    def batches(self, order: Ints, sizes: Ints) -> list[Ints]:
        """Divide an order of sentences into batches, each for one bucket; leftovers join the next longer bucket."""
        buckets = np.searchsorted(self.lengths, sizes)
        batches, rest = [], order[:0]
        for bucket in range(len(self.lengths)):
            members = np.concatenate([rest, order[buckets == bucket]])
            rows = self.rows(bucket)
            full = len(members) - len(members) % rows
            batches += np.split(members[:full], np.arange(rows, full, rows)) if full else []
            rest = members[full:]
        return [*batches, rest] if len(rest) else batches


@dataclass(frozen=True)
class Batches:
    """The training data of a run as an endless, reproducible sequence of batches."""

    split: Split
    tokens: int  # target tokens in a batch, padding counted
    seed: int
    layout: Layout

    def __post_init__(self) -> None:
        # One packed source position stays free, so that padding can always attend to something.
        source_room = self.source_size - 1 if self.layout == "packed" else self.tokens
        for side, room in ((self.split.source, source_room), (self.split.target, self.tokens)):
            longest = int(side.lengths.max())
            if longest > room:
                raise UserError(
                    f"train.batch_tokens: {self.tokens} is too small for a sentence of {longest} units;"
                    " raise it or lower data.max_length"
                )
        if self.layout == "packed" and self.tokens % BLOCK:
            raise UserError(f"train.batch_tokens: must be a multiple of {BLOCK} in the packed layout")

    @functools.cached_property
    def sizes(self) -> Ints:
        """(sentences) units on the longer side of each pair."""
        return np.maximum(self.split.source.lengths, self.split.target.lengths)

    @functools.cached_property
    def buckets(self) -> Buckets:
        """The shapes of boxed batches."""
        return Buckets(bucket_lengths(self.sizes), self.tokens)

    @functools.cached_property
    def source_size(self) -> int:
        """Source tokens of a packed batch: as many as the target tokens need on average, and 4 % more."""
        ratio = self.split.source.lengths.sum() / self.split.target.lengths.sum()
        return int(np.ceil(self.tokens * ratio * 1.04 / BLOCK)) * BLOCK

    def plan(self, epoch: int) -> list[Ints]:
        """The sentences of each batch of one epoch."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(self.split.source))
        if self.layout == "packed":
            return packed_chunks(self.split, order, self.source_size - 1, self.tokens)
        if self.layout == "boxed":
            batches = self.buckets.batches(order, self.sizes[order])
            return [batches[i] for i in random.permutation(len(batches))]
        # Sorting by length within large random pools: little padding, and still a random order.
        pool = max(1, 50 * self.tokens // int(self.split.target.lengths.mean() + 1))
        batches = []
        for start in range(0, len(order), pool):
            part = order[start : start + pool]
            part = part[np.lexsort((self.split.source.lengths[part], self.split.target.lengths[part]))]
            batches += padded_chunks(self.split, part, self.tokens)
        return [batches[i] for i in random.permutation(len(batches))]

    def make(self, chosen: Ints) -> Batch:
        if self.layout == "packed":
            return pack_batch(self.split, chosen, self.source_size, self.tokens)
        shape = self.buckets.shape_for(self.sizes[chosen]) if self.layout == "boxed" else None
        return pad_batch(self.split, chosen, shape)

    def iterate(self, epoch: int, index: int) -> Iterator[tuple[int, int, Ints]]:
        """Yield (epoch, index in the epoch, sentences) of this and all later batches, without end."""
        while True:
            plan = self.plan(epoch)
            for i in range(index, len(plan)):
                yield epoch, i, plan[i]
            epoch, index = epoch + 1, 0


def packed_chunks(split: Split, order: Ints, source_budget: int, target_budget: int) -> list[Ints]:
    """Cut an order of sentences into chunks whose tokens fit both budgets."""
    batches, start, source, target = [], 0, 0, 0
    source_lengths, target_lengths = split.source.lengths[order].tolist(), split.target.lengths[order].tolist()
    for i, (s, t) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        if source + s > source_budget or target + t > target_budget:
            batches.append(order[start:i])
            start, source, target = i, 0, 0
        source, target = source + s, target + t
    return [*batches, order[start:]]


def padded_chunks(split: Split, order: Ints, budget: int) -> list[Ints]:
    """Cut an order of sentences into chunks whose padded size, on the larger side, fits the budget."""
    batches, start, longest = [], 0, 0
    sizes = np.maximum(split.source.lengths[order], split.target.lengths[order]).tolist()
    for i, size in enumerate(sizes):
        longest = max(longest, size)
        if longest * (i - start + 1) > budget and i > start:
            batches.append(order[start:i])
            start, longest = i, size
    return [*batches, order[start:]]


def batches_by_length(split: Split, tokens: int) -> Iterator[Batch]:
    """Yield the whole split once in padded batches, longest targets last; for validation."""
    for chosen in padded_chunks(split, np.argsort(split.target.lengths, kind="stable"), tokens):
        yield pad_batch(split, chosen)


def prefetch(items: Iterator[T], depth: int = 4) -> Generator[T, None, None]:
    """Compute the next `depth` items in a thread while the device is busy."""
    pool = ThreadPoolExecutor(1)
    ready = deque(pool.submit(next, items, None) for _ in range(depth + 1))
    try:
        while (item := ready.popleft().result()) is not None:
            ready.append(pool.submit(next, items, None))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
