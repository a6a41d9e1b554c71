"""Evaluate every (token, offset) that the search may query in one packed decoder pass.

Once a token has read the whole source, larger offsets change nothing for this token or the tokens after it. So each
offset is evaluated for the first tokens of a sentence only, which are fewer queries than a pass over all tokens for
every offset. In the row, the tokens of one sentence at one offset are a segment of their own. The segments of one
sentence lie side by side, since they attend to the same source.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whilst.core.settings import Search
from whilst.data.batches import Batch, Ints, Tokens
from whilst.data.dataset import Split
from whilst.data.vocabulary import PAD
from whilst.model.attention import attention_mask
from whilst.model.transformer import Translator
from whilst.search.binary_search import Interval, PathDecoder, PredictionTable, probability_and_argmax

SIZE_MULTIPLE = 2048  # row sizes are multiples of this
LOGIT_CHUNKS = 8  # parts of a row; only the logits of one part are in memory


def count_queries(split: Split, chosen: Ints, first: Ints, size: int, settings: Search) -> int:
    """The number of queries of the chosen sentences, in intervals of `size` that begin at `first` (sentences)."""
    source, target = (side.offsets[chosen + 1] - side.offsets[chosen] for side in (split.source, split.target))
    # (sentences, offsets) number of shifts 0, 1, … of an interval whose reads at this offset are within the source
    shifts = source[:, None] - first[:, None] - np.arange(size).clip(1) + 1
    tokens = -(-shifts * target[:, None] // source[:, None]) if settings.slope == "ratio" else shifts
    queries = int(tokens.clip(0, target[:, None]).sum())
    return queries + int(target.sum()) if settings.target == "belief" else queries


def row_size(queries: int) -> int:
    """The size of a row for this many queries and 3 % more, so that the row also fits other batches."""
    return max(1, -(-(queries + queries // 32) // SIZE_MULTIPLE)) * SIZE_MULTIPLE


@dataclass(frozen=True)
class QueryRow:
    """Queries in a row: (size) each. Padding at its end is a segment of its own that attends to source padding."""

    index: Tensor  # index in the flattened (offsets, target) table; for padding, one past the last index
    column: Tensor  # of the target token in the batch
    segment: Tensor  # in this row
    sentence: Tensor  # in the batch
    position: Tensor  # of the target token in its sentence
    reads: Tensor
    whole: Tensor  # (target) positions in this row of the queries with the whole source, if there is a belief


def build_row(batch: Batch, interval: Interval, belief: bool, size: int) -> QueryRow:
    """The row of a packed batch. With `belief` there is one more offset, whose reads are the whole source."""
    start, length, segment = interval.start(batch)[0], batch.source_lengths[0], batch.target_at.segment[0]
    real, columns = batch.labels[0] != PAD, len(start)
    offset = torch.arange(interval.size, device=start.device)[:, None]
    needed, reads = real & (start + offset.clamp(min=1) <= length), (start + offset).clamp(min=1).minimum(length)
    if belief:
        needed, reads = torch.cat([needed, real[None]]), torch.cat([reads, length[None]])
    offsets = len(needed)
    counts = torch.zeros(columns + 1, offsets, dtype=torch.long, device=start.device)
    counts = counts.index_add(0, segment, needed.T.long()).flatten()  # queries of each sentence at each offset
    begin = (counts.cumsum(0) - counts).view(-1, offsets)[segment].T
    place = (begin + batch.target_at.position[0]).masked_fill(~needed, size)
    entries = torch.arange(offsets * columns, device=start.device)
    index = entries.new_full((size + 1,), offsets * columns).scatter(0, place.flatten(), entries)[:size]
    padding, column = index == offsets * columns, index % columns
    return QueryRow(
        index,
        column,
        (segment[column] * offsets + index // columns).masked_fill(padding, offsets * (columns + 1)),
        torch.where(padding, batch.source_at.segment[0, -1], segment[column]),
        batch.target_at.position[0, column].masked_fill(padding, 0),
        reads.flatten()[index.clamp(max=offsets * columns - 1)].masked_fill(padding, 1),
        place[-1].clamp(max=size - 1),
    )


def score_queries(logits: Tensor, labels: Tensor, belief: Tensor | None, column: Tensor) -> tuple[Tensor, Tensor]:
    """`probability_and_argmax` of some queries. `belief` (1, target, units) is indexed by their `column`."""
    return probability_and_argmax(logits, labels, None if belief is None else belief[:, column])


ScoreQueries = Callable[[Tensor, Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]


@torch.no_grad()
def fill_table_packed(
    model: Translator, batch: Batch, interval: Interval, settings: Search, size: int, score: ScoreQueries
) -> PredictionTable:
    """As `fill_table`, for a packed batch in one pass. Entries that the search cannot query are 0."""
    decoder, has_belief = PathDecoder(model, batch), settings.target == "belief"
    row = build_row(batch, interval, has_belief, size)
    tokens = Tokens(row.segment[None], row.position[None])
    causal = attention_mask(batch, tokens, tokens.position + 1, tokens)
    cross = attention_mask(batch, Tokens(row.sentence[None], tokens.position), row.reads[None], batch.source_at)
    states = model.decode_embedded(decoder.embedded[:, row.column], decoder.sources, causal, cross)
    belief = decoder.logits_of(states[:, row.whole]).log_softmax(-1) if has_belief else None
    chunks = zip(states.chunk(LOGIT_CHUNKS, 1), row.column.chunk(LOGIT_CHUNKS), strict=True)
    parts = [score(decoder.logits_of(part), batch.labels[:, column], belief, column) for part, column in chunks]

    def to_table(values: list[Tensor]) -> Tensor:
        entries = (interval.size + has_belief) * batch.target.shape[1]
        flat = torch.cat(values, 1)[0]
        table = flat.new_zeros(entries + 1).scatter(0, row.index, flat)
        return table[:entries].view(-1, *batch.target.shape)[: interval.size]

    return PredictionTable(batch, interval, *(to_table(list(values)) for values in zip(*parts, strict=True)))
