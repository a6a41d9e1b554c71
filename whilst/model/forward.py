"""Encode and decode a whole batch under given reads, in the layout of the batch."""

import torch
from torch import Tensor

from whilst.data.batches import Batch, Tokens
from whilst.model.attention import Mask, block_mask, dense_mask
from whilst.model.monotonic_attention import MonotonicPass
from whilst.model.transformer import Translator


def attention_mask(batch: Batch, queries: Tokens, limit: Tensor, keys: Tokens) -> Mask:
    """The rule of visibility (`attention.sees`) in the layout of the batch."""
    return (block_mask if batch.packed else dense_mask)(queries, limit, keys)


def encoder_mask(batch: Batch, bidirectional: bool) -> Mask:
    """Self-attention of the source."""
    source = batch.source_at
    limit = torch.full_like(source.position, 1 << 30) if bidirectional else source.position + 1
    return attention_mask(batch, source, limit, source)


def encode_batch(model: Translator, batch: Batch) -> Tensor:
    """(rows, source, width) encoder states."""
    return model.encode(batch.source, batch.source_at.position, encoder_mask(batch, model.bidirectional))


def causal_mask(batch: Batch) -> Mask:
    """Self-attention of the target."""
    target = batch.target_at
    return attention_mask(batch, target, target.position + 1, target)


def cross_mask(batch: Batch, path: Tensor) -> Mask:
    """Attention of the target to the source under these reads."""
    return attention_mask(batch, batch.target_at, path, batch.source_at)


def decode_batch(model: Translator, batch: Batch, path: Tensor, monotonic: MonotonicPass | None = None) -> Tensor:
    """(rows, target, width) decoder states under these reads."""
    source = encode_batch(model, batch)
    positions = batch.target_at.position
    return model.decode(batch.target, positions, source, causal_mask(batch), cross_mask(batch, path), monotonic)
