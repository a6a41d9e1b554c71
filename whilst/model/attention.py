"""Multi-head attention, and its masks: one rule of visibility (`sees`) for two layouts of batches.

Padded batches (any device) use SDPA with a boolean mask. Packed batches (GPU training, all sentences of a batch in
one row of a fixed size) use FlexAttention with a block mask. Both masks are made from a limit for each query.
"""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from whilst.data.batches import BLOCK, Batch, Tokens


def sees(query_segment: Tensor, query_limit: Tensor, key_segment: Tensor, key_position: Tensor) -> Tensor:
    """The rule: a query sees the first `limit` positions of its own sentence, and nothing else.

    The limit is position + 1 in causal self-attention, the length of the source in bidirectional self-attention,
    and `reads` in cross-attention.
    """
    return (query_segment == key_segment) & (key_position < query_limit)


Mask = Tensor | BlockMask


def dense_mask(queries: Tokens, limit: Tensor, keys: Tokens) -> Tensor:
    """(rows, 1, queries, keys), True where visible."""
    return sees(
        queries.segment[:, None, :, None],
        limit[:, None, :, None],
        keys.segment[:, None, None, :],
        keys.position[:, None, None, :],
    )


def block_mask(queries: Tokens, limit: Tensor, keys: Tokens) -> BlockMask:
    """The same mask for one packed row, where every query sees one span of keys.

    Segments ascend along the row, and positions ascend in each segment. Padding is different: all its positions are
    0, and its queries see all padding.
    """
    segment, key_segment = queries.segment[0], keys.segment[0]
    first = torch.searchsorted(key_segment, segment)
    end = torch.searchsorted(key_segment, segment, right=True)
    return span_mask(first, torch.minimum(first + limit[0], end), keys.segment.shape[1])


def span_mask(first: Tensor, end: Tensor, keys: int, itself: bool = False) -> BlockMask:
    """Each query of a packed row sees the keys from `first` up to, but not including, `end`, (queries) each.

    `itself`: each query also sees the key with its own index.

    A tile of the mask is computed if the spans of its queries, from the first start to the last end, overlap its
    keys. This needs no host synchronisation, and no evaluation of the rule on every pair of tokens as in
    `create_block_mask`. Inside a tile two 32-bit bounds per query decide. The inverse, which queries see a tile of
    keys, is only computed for gradients: it takes as many kernels as all the rest.
    """
    first, end, size = first.to(torch.int32), end.to(torch.int32), FlexTiles.size
    tiles = torch.arange(-(-keys // size), device=first.device, dtype=torch.int32)
    lowest, highest = first.view(-1, size).amin(1, keepdim=True), end.view(-1, size).amax(1, keepdim=True)
    begin, stop = lowest // size, (highest + size - 1) // size
    if itself:
        overlap = ((begin <= tiles) & (tiles < stop)) | (tiles == tiles[:, None])
        counts = overlap.sum(-1, dtype=torch.int32)
        order = overlap.to(torch.int32).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    else:  # the tiles are adjacent: no sorting needed
        counts, order = (stop - begin)[:, 0].clamp(min=0), (begin + tiles) % len(tiles)

    def in_span(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        return (key >= first[query]) & (key < end[query])

    def in_span_or_itself(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        return ((key >= first[query]) & (key < end[query])) | (query == key)

    return BlockMask.from_kv_blocks(
        counts[None, None],
        order[None, None],
        BLOCK_SIZE=size,
        mask_mod=in_span_or_itself if itself else in_span,
        seq_lengths=(len(first), keys),
        compute_q_blocks=torch.is_grad_enabled(),
    )


def attention_mask(batch: Batch, queries: Tokens, limit: Tensor, keys: Tokens) -> Mask:
    """The rule of visibility (`sees`) in the layout of the batch."""
    return (block_mask if batch.packed else dense_mask)(queries, limit, keys)


def encoder_mask(batch: Batch, bidirectional: bool) -> Mask:
    """Mask of the source's self-attention."""
    source = batch.source_at
    limit = torch.full_like(source.position, 1 << 30) if bidirectional else source.position + 1
    return attention_mask(batch, source, limit, source)


def causal_mask(batch: Batch) -> Mask:
    """Mask of the target's self-attention."""
    target = batch.target_at
    return attention_mask(batch, target, target.position + 1, target)


def cross_mask(batch: Batch, path: Tensor) -> Mask:
    """Mask of the cross-attention from target to source under the reads `path`."""
    return attention_mask(batch, batch.target_at, path, batch.source_at)


class FlexTiles:
    """Tile size of block masks, the same for the whole process since compiled kernels depend on it."""

    size = BLOCK
    SMALL = 64
    MIN_SHARED_MEMORY = 160_000  # bytes; a backward pass with heads of 128 needs about 100,000


def use_small_tiles(device: torch.device) -> None:
    """Let FlexAttention use tiles of 64 from now on, if the GPU has the shared memory and PyTorch still allows it.

    Most sentences are shorter than the default tiles: small tiles make training 7 % faster on an H200. This
    function overrides private methods of PyTorch, because flex_attention rejects its default tiles for these masks
    before it reads `kernel_options`. It overrides them in the class and not in an instance, because the backward
    pass is compiled in another thread. If the methods are missing, PyTorch's own tiles stay.
    """
    try:
        from torch._inductor.choices import InductorChoices
    except ImportError:
        return
    shared = torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor
    if shared < FlexTiles.MIN_SHARED_MEMORY or "get_flex_attention_bwd_configs" not in vars(InductorChoices):
        return

    def config(*sizes: str) -> Any:
        choices = [SimpleNamespace(**dict.fromkeys(sizes, FlexTiles.SMALL), num_stages=2, num_warps=4)]
        return lambda *_: choices

    InductorChoices.get_flex_attention_fwd_configs = config("block_m", "block_n")  # type: ignore[method-assign]
    backward = config("block_m", "block_n", "block_m1", "block_n1", "block_m2", "block_n2")
    InductorChoices.get_flex_attention_bwd_configs = backward  # type: ignore[method-assign]
    FlexTiles.size = FlexTiles.SMALL


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
    """(rows, heads, queries, size) x (rows, heads, keys, size) -> (rows, queries, heads * size)."""
    if isinstance(mask, BlockMask):
        mixed = flex_attention(query, key, value, block_mask=mask)
        assert isinstance(mixed, Tensor)
    elif query.requires_grad and query.device.type == "cpu" and query.dtype == torch.bfloat16:
        # The backward pass on CPUs takes ten times as long in bf16.
        with torch.autocast("cpu", enabled=False):
            mixed = F.scaled_dot_product_attention(query.float(), key.float(), value.float(), attn_mask=mask)
    else:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return mixed.transpose(1, 2).flatten(2)


def project(linear: nn.Module, states: Tensor, norm: nn.LayerNorm | None) -> Tensor:
    """Apply a linear layer to states that lack the gain and bias of `norm`, which are folded into its weights.

    The gradients of gain and bias then come from the gradients of the weights. Computed as sums over all tokens,
    they would take longer than the norm itself.
    """
    if norm is None:
        out: Tensor = linear(states)
        return out
    assert isinstance(linear, nn.Linear)
    shift = (linear.weight * norm.bias).sum(1)
    return F.linear(states, linear.weight * norm.weight, linear.bias + shift)


def split_heads(states: Tensor, heads: int) -> Tensor:
    """(rows, tokens, width) -> (rows, heads, tokens, width / heads)."""
    return states.view(*states.shape[:-1], heads, -1).transpose(1, 2)


def init_projections(width: int, *projections: nn.Linear) -> None:
    """Glorot initialisation of projections, each of which consists of one or more (width, width) matrices."""
    for linear in projections:
        bound = (3 / width) ** 0.5
        nn.init.uniform_(linear.weight, -bound, bound)
        nn.init.zeros_(linear.bias)


class Heads(nn.Module):
    """Multi-head attention. Keys and values are computed apart from queries so that a cache can hold them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        init_projections(width, self.query, self.key_value, self.out)

    def keys_values(self, states: Tensor, norm: nn.LayerNorm | None = None) -> tuple[Tensor, Tensor]:
        key, value = project(self.key_value, states, norm).chunk(2, dim=-1)
        return split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(
        self,
        states: Tensor,
        keys_values: tuple[Tensor, Tensor],
        mask: Mask,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """`norm`: see `project`; only applied to the queries."""
        query = split_heads(project(self.query, states, norm), self.heads)
        mixed: Tensor = self.out(attend(query, *keys_values, mask))
        return mixed
