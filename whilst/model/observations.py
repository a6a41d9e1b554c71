"""The states of a translator along a path through a batch, from which an agent learns.

The path is `reads`: WRITE where they say so, READ everywhere else. The state that would write the next token now,
the lookahead state, is that token's own decoder state at a WRITE. At READs it takes a query of its own: one after
each source token. These queries go through the decoder beside the tokens, and attend to what was written before
them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.data.batches import Batch, Tokens
from whilst.data.vocabulary import PAD
from whilst.model.attention import Mask, span_mask
from whilst.model.forward import attention_mask, causal_mask, cross_mask, encode_batch
from whilst.model.transformer import Translator


@dataclass(frozen=True)
class PathStates:
    encoded: Tensor  # (rows, source, width) encoder states
    states: Tensor  # (rows, target, width) decoder states of the tokens
    words: Tensor  # (rows, target) what they write: the model's own choice, or the reference
    lookahead: Tensor | None = None  # (rows, source, width) lookahead state after each source token

    def bfloat16(self) -> "PathStates":
        """As an agent under autocast would convert them."""
        lookahead = None if self.lookahead is None else self.lookahead.bfloat16()
        return PathStates(self.encoded.bfloat16(), self.states.bfloat16(), self.words, lookahead)


def next_targets(batch: Batch, path: Tensor) -> tuple[Tensor, Tensor]:
    """The target token that is written next after each source token: (rows, source) columns where its sentence
    begins, and its own, which is meaningless after the last token.

    It is the first that needs more than has been read: a binary search, since reads ascend along a sentence.
    """
    target, source = batch.target_at, batch.source_at
    stride = batch.source.shape[1] + 1  # keeps the sentences of a packed row in order
    first = torch.searchsorted(target.segment, source.segment)
    end = torch.searchsorted(target.segment, source.segment, right=True)
    needed, read = path + target.segment * stride, source.position + 1 + source.segment * stride
    written = torch.searchsorted(needed, read, right=True)
    return first, written.minimum(end - 1).clamp(min=0)


def lookahead_mask(batch: Batch, upcoming_first: Tensor, upcoming: Tensor) -> Mask:
    """Self-attention of the tokens and of the lookahead queries after them: to the tokens before, and to itself.

    Queries of padding attend to themselves only: in a packed row each would attend to all padding, at great cost.
    """
    column = torch.arange(batch.target.shape[1], device=batch.target.device)
    first = torch.cat([column - batch.target_at.position, upcoming_first], 1)
    own = torch.where(batch.source == PAD, upcoming_first, upcoming)
    end = torch.cat([column.expand_as(batch.target), own], 1)
    if batch.packed:
        return span_mask(first[0], end[0], first.shape[1], itself=True)
    key = torch.arange(first.shape[1], device=first.device)
    return (((key >= first[..., None]) & (key < end[..., None])) | (key == key[:, None]))[:, None]


def decode_with_lookahead(model: Translator, batch: Batch, path: Tensor, source: Tensor) -> Tensor:
    """(rows, target + source, width) decoder states of the tokens, and lookahead states after each source token."""
    first, upcoming = next_targets(batch, path)
    target, read = batch.target_at, batch.source_at
    positions = torch.cat([target.position, target.position.gather(1, upcoming)], 1)
    queries = Tokens(torch.cat([target.segment, read.segment], 1), positions)
    cross = attention_mask(batch, queries, torch.cat([path, read.position + 1], 1), read)
    tokens = torch.cat([batch.target, batch.target.gather(1, upcoming)], 1)
    return model.decode(tokens, positions, source, lookahead_mask(batch, first, upcoming), cross)


@torch.no_grad()
def observe(model: Translator, batch: Batch, path: Tensor, own_words: bool, lookahead: bool) -> PathStates:
    """The states along these reads, in the batch's own layout.

    `own_words`: what the model would write (after the reference's prefix), else the reference.
    """
    source, count = encode_batch(model, batch), batch.target.shape[1]
    if lookahead:
        both = decode_with_lookahead(model, batch, path, source)
        states, ahead = both[:, :count], both[:, count:]
    else:
        causal, cross = causal_mask(batch), cross_mask(batch, path)
        states, ahead = model.decode(batch.target, batch.target_at.position, source, causal, cross), None
    words = model.many_logits(states).argmax(-1) if own_words else batch.labels
    return PathStates(source, states, words, ahead)
