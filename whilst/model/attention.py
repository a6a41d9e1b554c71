"""Attention under one rule of visibility, in two layouts that must agree.

Padded batches (any device) turn the rule into SDPA's boolean mask; packed ones (GPU training: all sentences
of a batch in one row of a fixed size) turn it into FlexAttention's block mask. Knows nothing of policies: a
limit per query is all it is told.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from whilst.data.batches import BLOCK, Tokens


class Tiles:
    """How FlexAttention divides packed rows. Of the whole process, as its kernels are (tiles.py)."""

    side = BLOCK


def sees(query_segment: Tensor, query_limit: Tensor, key_segment: Tensor, key_position: Tensor) -> Tensor:
    """The rule: a query sees the first `limit` positions of its own sentence, and nothing else.

    The limit is position + 1 in causal self-attention, the length in bidirectional, `reads` across languages.
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


def spans(queries: Tokens, limit: Tensor, keys: Tokens) -> tuple[Tensor, Tensor]:
    """(queries) each: from where and to where in a packed row of keys each query sees all there is.

    The same rule, since segments ascend along the row and positions count up in each. Only padding differs: its
    positions are all 0, and each of it would see all of it.
    """
    segment, every = queries.segment[0], keys.segment[0]
    first = torch.searchsorted(every, segment)
    end = torch.searchsorted(every, segment, right=True)
    return first, torch.minimum(first + limit[0], end)


def block_mask(queries: Tokens, limit: Tensor, keys: Tokens) -> BlockMask:
    """The same for one packed row."""
    return span_mask(*spans(queries, limit, keys), keys.segment.shape[1])


def span_mask(first: Tensor, end: Tensor, keys: int, itself: bool = False) -> BlockMask:
    """Each query of a packed row sees the keys from `first` to before `end`; and `itself`, where it is a key too.

    Tiles are computed where what a tile of queries sees, from the first to the last, overlaps one of keys; the rule
    masks inside them. That needs no host synchronisation: `create_block_mask` would evaluate the rule on every pair
    of tokens instead. Two 32-bit bounds of each query are all that a kernel has to load and compare. Which queries
    see a tile of keys is only found for gradients: it takes as many kernels as all the rest.
    """
    first, end, side = first.to(torch.int32), end.to(torch.int32), Tiles.side
    tiles = torch.arange(-(-keys // side), device=first.device, dtype=torch.int32)
    lowest, highest = first.view(-1, side).amin(1, keepdim=True), end.view(-1, side).amax(1, keepdim=True)
    begin, stop = lowest // side, (highest + side - 1) // side
    if itself:
        meet = ((begin <= tiles) & (tiles < stop)) | (tiles == tiles[:, None])
        counts = meet.sum(-1, dtype=torch.int32)
        order = meet.to(torch.int32).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    else:  # they are neighbours: nothing to sort
        counts, order = (stop - begin)[:, 0].clamp(min=0), (begin + tiles) % len(tiles)

    def rule(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        return (key >= first[query]) & (key < end[query])

    def rule_and_itself(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        return ((key >= first[query]) & (key < end[query])) | (query == key)

    mod, taught = rule_and_itself if itself else rule, torch.is_grad_enabled()
    counts, order = counts[None, None], order[None, None]
    return BlockMask.from_kv_blocks(
        counts, order, BLOCK_SIZE=side, mask_mod=mod, seq_lengths=(len(first), keys), compute_q_blocks=taught
    )


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
    """(rows, heads, queries, size) x (rows, heads, keys, size) -> (rows, queries, heads * size)."""
    if isinstance(mask, BlockMask):
        mixed = flex_attention(query, key, value, block_mask=mask)
        assert isinstance(mixed, Tensor)
    else:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return mixed.transpose(1, 2).flatten(2)


def project(linear: nn.Module, states: Tensor, norm: nn.LayerNorm | None) -> Tensor:
    """A linear layer of states that `norm` has yet to scale and shift: it does so with its own weights.

    It is the same function. But the gradients of the norm's gain and bias then come from those of the weights, and
    not from sums over all tokens, which take longer than the norm itself.
    """
    if norm is None:
        out: Tensor = linear(states)
        return out
    assert isinstance(linear, nn.Linear)
    shift = (linear.weight * norm.bias).sum(1)
    return F.linear(states, linear.weight * norm.weight, linear.bias + shift)


class Heads(nn.Module):
    """The projections of one multi-head attention. Keys and values are made apart from queries so that a
    cache can hold them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        for linear in (self.query, self.key_value, self.out):
            # Glorot's bound for a square matrix: key_value is two of them stacked.
            bound = (3 / width) ** 0.5
            nn.init.uniform_(linear.weight, -bound, bound)
            nn.init.zeros_(linear.bias)

    def split(self, states: Tensor) -> Tensor:
        """(rows, tokens, width) -> (rows, heads, tokens, width / heads)."""
        return states.view(*states.shape[:-1], self.heads, -1).transpose(1, 2)

    def keys_values(self, states: Tensor, norm: nn.LayerNorm | None = None) -> tuple[Tensor, Tensor]:
        key, value = project(self.key_value, states, norm).chunk(2, dim=-1)
        return self.split(key), self.split(value)

    def forward(
        self,
        states: Tensor,
        keys_values: tuple[Tensor, Tensor],
        mask: Mask,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """`norm`: see `project`; of the queries only."""
        query = self.split(project(self.query, states, norm))
        mixed: Tensor = self.out(attend(query, *keys_values, mask))
        return mixed
