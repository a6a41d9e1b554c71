"""A pass over a whole batch: the masks in the layout of the batch, encoder states, decoder states."""

import torch
from torch import Tensor

from whilst.data.batches import Batch, Tokens
from whilst.model.attention import Mask, block_mask, dense_mask
from whilst.model.monotonic_attention import Delays
from whilst.model.transformer import Translator


def mask(batch: Batch, queries: Tokens, limit: Tensor, keys: Tokens) -> Mask:
    """The rule of visibility in the batch's own layout."""
    return (block_mask if batch.packed else dense_mask)(queries, limit, keys)


def encoder_mask(batch: Batch, bidirectional: bool) -> Mask:
    """What source tokens see of each other."""
    source = batch.source_at
    looks = torch.full_like(source.position, 1 << 30) if bidirectional else source.position + 1
    return mask(batch, source, looks, source)


def encoded(model: Translator, batch: Batch) -> Tensor:
    """Encoder states: (rows, source, width)."""
    return model.encode(batch.source, batch.source_at.position, encoder_mask(batch, model.bidirectional))


def causal_mask(batch: Batch) -> Mask:
    """What target tokens see of each other."""
    target = batch.target_at
    return mask(batch, target, target.position + 1, target)


def cross_mask(batch: Batch, seen: Tensor) -> Mask:
    """What target tokens see of the source under these reads."""
    return mask(batch, batch.target_at, seen, batch.source_at)


def decoded(model: Translator, batch: Batch, seen: Tensor, walk: Delays | None = None) -> Tensor:
    """Decoder states of every target token under these reads: (rows, target, width)."""
    source = encoded(model, batch)
    positions = batch.target_at.position
    return model.decode(batch.target, positions, source, causal_mask(batch), cross_mask(batch, seen), walk)
