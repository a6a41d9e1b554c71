"""All looks that a search can ask for, end to end in one packed row: fewer than a pass for every offset makes.

From the offset on at which a token's whole source is read, nothing more is asked of it, nor of the tokens after it;
and nothing at all where that is the first offset. So of each sentence an offset needs a beginning only. In the row
each of them is a sentence of its own. Those of one sentence lie side by side, since they look at the same source.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whilst.core.settings import Search
from whilst.data.batches import Batch, Tokens
from whilst.data.buckets import Ints
from whilst.data.dataset import Split
from whilst.data.vocabulary import PAD
from whilst.model.forward import mask
from whilst.model.transformer import Translator
from whilst.search.binary_search import Interval, Reader, Table, covering, each_interval, search_in, weigh

STEP = 2048  # rows have a multiple of so many looks
PARTS = 8  # of a row, whose logits are held one at a time


def count_looks(split: Split, chosen: Ints, first: Ints, size: int, settings: Search) -> int:
    """How many looks these sentences need in intervals of a size that begin at `first`: (sentences) each."""
    source, target = (side.offsets[chosen + 1] - side.offsets[chosen] for side in (split.source, split.target))
    left = source[:, None] - first[:, None] - np.arange(size).clip(1) + 1  # tokens need a look if shifted by less
    tokens = -(-left * target[:, None] // source[:, None]) if settings.slope == "ratio" else left
    looks = int(tokens.clip(0, target[:, None]).sum())
    return looks + int(target.sum()) if settings.target == "belief" else looks


def room(looks: int) -> int:
    """The size of a row for so many looks, and some more: other batches will need others."""
    return max(1, -(-(looks + looks // 32) // STEP)) * STEP


@dataclass(frozen=True)
class Row:
    """Looks in a row: (size) each. What is free at its end belongs to a sentence of its own, and sees padding."""

    number: Tensor  # offset * target + token; of what is free one past the last
    token: Tensor  # column in the batch
    segment: Tensor  # sentence of this row
    sentence: Tensor  # of the batch
    position: Tensor
    seen: Tensor  # reads
    believed: Tensor  # (target) where the tokens are that have read everything


def lay(batch: Batch, interval: Interval, belief: bool, size: int) -> Row:
    """The row of a packed batch. With a belief there is one more offset: all that there is to read."""
    start, length, segment = interval.start(batch)[0], batch.source_lengths[0], batch.target_at.segment[0]
    real, columns = batch.labels[0] != PAD, len(start)
    offset = torch.arange(interval.size, device=start.device)[:, None]
    needed, seen = real & (start + offset.clamp(min=1) <= length), (start + offset).clamp(min=1).minimum(length)
    if belief:
        needed, seen = torch.cat([needed, real[None]]), torch.cat([seen, length[None]])
    kinds = len(needed)
    counts = torch.zeros(columns + 1, kinds, dtype=torch.long, device=start.device)
    counts = counts.index_add(0, segment, needed.T.long()).flatten()  # of each sentence
    begin = (counts.cumsum(0) - counts).view(-1, kinds)[segment].T
    place = (begin + batch.target_at.position[0]).masked_fill(~needed, size)
    every = torch.arange(kinds * columns, device=start.device)
    number = every.new_full((size + 1,), kinds * columns).scatter(0, place.flatten(), every)[:size]
    free, token = number == kinds * columns, number % columns
    return Row(
        number,
        token,
        (segment[token] * kinds + number // columns).masked_fill(free, kinds * (columns + 1)),
        torch.where(free, batch.source_at.segment[0, -1], segment[token]),
        batch.target_at.position[0, token].masked_fill(free, 0),
        seen.flatten()[number.clamp(max=kinds * columns - 1)].masked_fill(free, 1),
        place[-1].clamp(max=size - 1),
    )


def weigh_row(logits: Tensor, labels: Tensor, belief: Tensor | None, token: Tensor) -> tuple[Tensor, Tensor]:
    """`weigh` of some looks of a row; the belief is that of the batch."""
    return weigh(logits, labels, None if belief is None else belief[:, token])


WeighRow = Callable[[Tensor, Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]


def fill_row(
    model: Translator, batch: Batch, interval: Interval, settings: Search, size: int, weigher: WeighRow = weigh_row
) -> Table:
    """`search.fill` of a packed batch by one pass; what nobody asks for stays 0."""
    reader, believes = Reader(model, batch), settings.target == "belief"
    row = lay(batch, interval, believes, size)
    inside = Tokens(row.segment[None], row.position[None])
    causal = mask(batch, inside, inside.position + 1, inside)
    cross = mask(batch, Tokens(row.sentence[None], inside.position), row.seen[None], batch.source_at)
    states = model.decode_embedded(reader.target[:, row.token], reader.sources, causal, cross)
    belief = reader.sharpen(states[:, row.believed]).log_softmax(-1) if believes else None
    parts = [
        weigher(reader.sharpen(some), batch.labels[:, token], belief, token)
        for some, token in zip(states.chunk(PARTS, 1), row.token.chunk(PARTS), strict=True)
    ]

    def spread(values: list[Tensor]) -> Tensor:
        looks = (interval.size + believes) * batch.target.shape[1]
        flat = torch.cat(values, 1)[0]
        table = flat.new_zeros(looks + 1).scatter(0, row.number, flat)
        return table[:looks].view(-1, *batch.target.shape)[: interval.size]

    return Table(batch, interval, *(spread(list(values)) for values in zip(*parts, strict=True)))


@torch.no_grad()
def search_row(
    model: Translator, batch: Batch, settings: Search, first: Tensor, size: int, weigher: WeighRow = weigh_row
) -> Tensor:
    """`search.search` of a packed batch by one pass."""
    interval = Interval(first, settings.size, settings.slope)
    return search_in(fill_row(model, batch, interval, settings, size, weigher).look, batch, interval, settings)


@torch.no_grad()
def search_all_row(
    model: Translator, batch: Batch, settings: Search, size: int, weigher: WeighRow = weigh_row
) -> Tensor:
    """`search.search_all` of a packed batch by one pass."""
    look = fill_row(model, batch, covering(settings), settings, size, weigher).look
    return torch.stack([search_in(look, batch, interval, settings) for interval in each_interval(settings)])
