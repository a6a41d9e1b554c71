"""Batches: which sentences go together, and how they lie in tensors. Order and content follow from the seed.

Two layouts of the same batch: padded (a sentence a row; to any size, or to one of few) and packed (all sentences
in one row of a fixed size, so that a GPU compiles one shape). The model only sees tokens, segments and positions.
"""

import functools
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from whilst.core.errors import UserError
from whilst.core.settings import MAX_POSITIONS
from whilst.data.buckets import Shapes, choose_lengths
from whilst.data.dataset import Ragged, Split
from whilst.data.vocabulary import BOS, PAD

Ints = npt.NDArray[np.int64]
T = TypeVar("T")
BLOCK = 128  # FlexAttention's default tile; packed sizes are multiples of it


@dataclass(frozen=True)
class Tokens:
    """Where each token of a (rows, columns) layout belongs."""

    segment: Tensor  # (rows, columns) sentence number, the same on both sides of a pair
    position: Tensor  # (rows, columns) place in the sentence, from 0


@dataclass(frozen=True)
class Batch:
    """Pairs of sentences as tensors. `target` starts with bos, `labels` end with eos, padding is PAD."""

    source: Tensor  # (rows, source)
    source_at: Tokens
    target: Tensor  # (rows, target)
    target_at: Tokens
    labels: Tensor  # (rows, target)
    source_lengths: Tensor  # (rows, target) J of each target token's sentence, end mark counted
    target_lengths: Tensor  # (rows, target) I of it, likewise
    numbers: Ints  # of the sentences in their split
    target_tokens: int  # without padding
    packed: bool

    @property
    def sentences(self) -> int:
        return len(self.numbers)

    def tensors(self) -> tuple[Tensor, ...]:
        source_at, target_at = self.source_at, self.target_at
        return (
            *(self.source, source_at.segment, source_at.position),
            *(self.target, target_at.segment, target_at.position),
            *(self.labels, self.source_lengths, self.target_lengths),
        )

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Batch":
        """The same batch in other tensors, in the order of `tensors()`."""
        source, source_segment, source_position, target, target_segment, target_position, *rest = tensors
        labels, source_lengths, target_lengths = rest
        return Batch(
            source,
            Tokens(source_segment, source_position),
            target,
            Tokens(target_segment, target_position),
            labels,
            source_lengths,
            target_lengths,
            self.numbers,
            self.target_tokens,
            self.packed,
        )

    def pin(self) -> "Batch":
        """In page-locked memory, from which a GPU copies without holding up the host."""
        return self.with_tensors([tensor.pin_memory() for tensor in self.tensors()])

    def to(self, device: torch.device) -> "Batch":
        return self.with_tensors([tensor.to(device, non_blocking=True) for tensor in self.tensors()])


def gather(side: Ragged, chosen: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """All tokens of the chosen sentences in a row: tokens, which sentence, place in it; and the lengths."""
    lengths = side.offsets[chosen + 1] - side.offsets[chosen]
    sentence = np.repeat(np.arange(len(chosen)), lengths)
    starts = np.cumsum(lengths) - lengths
    position = np.arange(len(sentence)) - starts[sentence]
    tokens = side.tokens[side.offsets[chosen][sentence] + position].astype(np.int64)
    return tokens, sentence, position, lengths


def require_places(longest: int) -> None:
    if longest > MAX_POSITIONS:
        raise UserError(
            f"a sentence of {longest} units is too long (at most {MAX_POSITIONS}); split it, or leave it out"
        )


def padded(split: Split, chosen: Ints, box: tuple[int, int] | None = None) -> Batch:
    """A sentence a row. Padding of the source hides behind segment -1; of the target, behind causality.

    With a `box` of (rows, length) it has this size on both sides. A row without a sentence has one source token,
    so that its target has something to look at, and nothing that counts: all its labels are padding.
    """
    source, source_row, source_place, source_lengths = gather(split.source, chosen)
    target, target_row, target_place, target_lengths = gather(split.target, chosen)
    tokens, longest = int(target_lengths.sum()), (int(source_lengths.max()), int(target_lengths.max()))
    require_places(max(longest))
    count, width, height = (box[0], box[1], box[1]) if box else (len(chosen), *longest)
    source_lengths, target_lengths = (
        np.concatenate([lengths, np.ones(count - len(chosen), np.int64)])
        for lengths in (source_lengths, target_lengths)
    )
    sources = np.full((count, width), PAD)
    sources[source_row, source_place] = source
    labels = np.full((count, height), PAD)
    labels[target_row, target_place] = target
    rows = np.minimum(np.arange(count), len(chosen))[:, None]
    segment = np.where(np.arange(width) < source_lengths[:, None], rows, -1)
    return _batch(
        sources,
        (segment, np.broadcast_to(np.arange(width), (count, width))),
        _shift(labels, np.broadcast_to(np.arange(height), (count, height))),
        (np.broadcast_to(rows, (count, height)), np.broadcast_to(np.arange(height), (count, height))),
        labels,
        np.broadcast_to(source_lengths[:, None], (count, height)),
        np.broadcast_to(target_lengths[:, None], (count, height)),
        chosen,
        tokens,
        packed=False,
    )


def packed(split: Split, chosen: Ints, source_size: int, target_size: int) -> Batch:
    """All sentences in one row of each side, the rest filled with a sentence of padding."""

    def fill(values: Ints, size: int, value: int) -> Ints:
        return np.concatenate([values, np.full(size - len(values), value)])[None]

    source, source_row, source_place, source_lengths = gather(split.source, chosen)
    target, target_row, target_place, target_lengths = gather(split.target, chosen)
    labels = fill(target, target_size, PAD)
    positions = fill(target_place, target_size, 0)
    return _batch(
        fill(source, source_size, PAD),
        (fill(source_row, source_size, len(chosen)), fill(source_place, source_size, 0)),
        _shift(labels, positions),
        (fill(target_row, target_size, len(chosen)), positions),
        labels,
        fill(source_lengths[target_row], target_size, 1),
        fill(target_lengths[target_row], target_size, 1),
        chosen,
        int(target_lengths.sum()),
        packed=True,
    )


def _shift(labels: Ints, positions: Ints) -> Ints:
    """What the decoder is fed: the labels one step later, bos at the start of every sentence."""
    shifted = np.roll(labels, 1, axis=1)
    return np.where(positions == 0, BOS, shifted)


def _batch(
    source: Ints,
    source_at: tuple[Ints, Ints],
    target: Ints,
    target_at: tuple[Ints, Ints],
    labels: Ints,
    source_lengths: Ints,
    target_lengths: Ints,
    numbers: Ints,
    target_tokens: int,
    packed: bool,
) -> Batch:
    def tensor(values: Ints) -> Tensor:
        # Writable too: what was broadcast to a single row counts as contiguous, and torch warns of it.
        return torch.from_numpy(np.require(values, requirements=["C", "W"]))

    return Batch(
        tensor(source),
        Tokens(*map(tensor, source_at)),
        tensor(target),
        Tokens(*map(tensor, target_at)),
        tensor(labels),
        tensor(source_lengths),
        tensor(target_lengths),
        numbers,
        target_tokens,
        packed,
    )


@dataclass(frozen=True)
class Batches:
    """The training data of a run as an endless, reproducible sequence of batches."""

    split: Split
    tokens: int  # target tokens in a batch, padding counted
    seed: int
    pack: bool
    boxed: bool = False  # padded, in few shapes

    def __post_init__(self) -> None:
        # One packed source slot stays free, so that padding always has something to look at.
        for side, room in (
            (self.split.source, self.source_size - 1 if self.pack else self.tokens),
            (self.split.target, self.tokens),
        ):
            longest = int(side.lengths.max())
            if longest > room:
                raise UserError(
                    f"train.batch_tokens: {self.tokens} is too small for a sentence of {longest} units;"
                    " raise it or lower data.max_length"
                )
        if self.pack and self.tokens % BLOCK:
            raise UserError(f"train.batch_tokens: must be a multiple of {BLOCK} in the packed layout")

    @property
    def layout(self) -> str:
        return "packed" if self.pack else "boxed" if self.boxed else "padded"

    @functools.cached_property
    def target_lengths(self) -> Ints:
        return self.split.target.lengths

    @functools.cached_property
    def sizes(self) -> Ints:
        """The longer side of each pair."""
        return np.maximum(self.split.source.lengths, self.split.target.lengths)

    @functools.cached_property
    def shapes(self) -> Shapes:
        return Shapes(choose_lengths(self.sizes), self.tokens)

    @functools.cached_property
    def source_size(self) -> int:
        """Packed source tokens: as many as the corpus needs for the target budget, and a little more."""
        ratio = self.split.source.lengths.sum() / self.split.target.lengths.sum()
        return int(np.ceil(self.tokens * ratio * 1.04 / BLOCK)) * BLOCK

    def plan(self, epoch: int) -> list[Ints]:
        """The sentences of each batch of one pass over the data."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(self.split.source))
        if self.pack:
            return cut(self.split, order, self.source_size - 1, self.tokens)
        if self.boxed:
            batches = self.shapes.cut(order, self.sizes[order])
            return [batches[i] for i in random.permutation(len(batches))]
        # Sorting by length within large random pools: little padding, and still a random order.
        pool = max(1, 50 * self.tokens // int(self.split.target.lengths.mean() + 1))
        batches = []
        for start in range(0, len(order), pool):
            part = order[start : start + pool]
            part = part[np.lexsort((self.split.source.lengths[part], self.split.target.lengths[part]))]
            batches += cut_padded(self.split, part, self.tokens)
        return [batches[i] for i in random.permutation(len(batches))]

    def make(self, chosen: Ints) -> Batch:
        if self.pack:
            return packed(self.split, chosen, self.source_size, self.tokens)
        return padded(self.split, chosen, self.shapes.of(self.sizes[chosen]) if self.boxed else None)

    def since(self, epoch: int, index: int) -> Iterator[tuple[int, int, Ints]]:
        """Every (epoch, place in the epoch, sentences) from there on, without end."""
        while True:
            plan = self.plan(epoch)
            for i in range(index, len(plan)):
                yield epoch, i, plan[i]
            epoch, index = epoch + 1, 0


def cut(split: Split, order: Ints, source_budget: int, target_budget: int) -> list[Ints]:
    """Cut an order into runs whose tokens fit both budgets."""
    batches, start, source, target = [], 0, 0, 0
    source_lengths, target_lengths = split.source.lengths[order].tolist(), split.target.lengths[order].tolist()
    for i, (s, t) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        if source + s > source_budget or target + t > target_budget:
            batches.append(order[start:i])
            start, source, target = i, 0, 0
        source, target = source + s, target + t
    return [*batches, order[start:]]


def cut_padded(split: Split, order: Ints, budget: int) -> list[Ints]:
    """Cut an order into runs whose padded size, on the larger side, fits the budget."""
    batches, start, longest = [], 0, 0
    sizes = np.maximum(split.source.lengths[order], split.target.lengths[order]).tolist()
    for i, size in enumerate(sizes):
        longest = max(longest, size)
        if longest * (i - start + 1) > budget and i > start:
            batches.append(order[start:i])
            start, longest = i, size
    return [*batches, order[start:]]


def in_order(split: Split, tokens: int) -> Iterator[Batch]:
    """The whole split once, padded, longest sentences last: for validation."""
    order = np.argsort(split.target.lengths, kind="stable")
    for chosen in cut_padded(split, order, tokens):
        yield padded(split, chosen)


def prefetch(items: Iterator[T], depth: int = 4) -> Generator[T, None, None]:
    """Make the next items in a thread while the device is busy."""
    ready: queue.Queue[T | BaseException | None] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: T | BaseException | None) -> None:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
