"""What a translator shows an agent on the way through a batch: its states, its words, and looks ahead.

The way is `reads`: WRITE where they say so, READ everywhere else. The state that would write the next token now is
that token's own at a WRITE, so only READs need a look of their own: one after each source token. They go through
the decoder beside the tokens, see what was written before them, and themselves. Knows no agent.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.data.batches import Batch, Tokens
from whilst.data.vocabulary import PAD
from whilst.model.attention import Mask, span_mask
from whilst.model.forward import causal_mask, cross_mask, encoded, mask
from whilst.model.transformer import Translator


@dataclass(frozen=True)
class Looks:
    encoded: Tensor  # (rows, source, width) encoder states
    states: Tensor  # (rows, target, width) decoder states of the tokens
    words: Tensor  # (rows, target) what they write: the model's own choice, or the reference
    ahead: Tensor | None = None  # (rows, source, width) what would write the next token after so much was read

    def slim(self) -> "Looks":
        """The states as bf16, which is what an agent under autocast makes of them."""
        ahead = None if self.ahead is None else self.ahead.bfloat16()
        return Looks(self.encoded.bfloat16(), self.states.bfloat16(), self.words, ahead)


@dataclass(frozen=True)
class Next:
    """The token that comes next after each source token has been read: (rows, source) each."""

    first: Tensor  # column where its sentence begins
    place: Tensor  # its own column; after the last one nobody asks


def next_tokens(batch: Batch, path: Tensor) -> Next:
    """The first token that needs more than was read. Reads rise along a sentence, so it is looked up."""
    target, source = batch.target_at, batch.source_at
    apart = batch.source.shape[1] + 1  # keeps the sentences of a packed row in order
    first = torch.searchsorted(target.segment, source.segment)
    end = torch.searchsorted(target.segment, source.segment, right=True)
    needs, read = path + target.segment * apart, source.position + 1 + source.segment * apart
    written = torch.searchsorted(needs, read, right=True)
    return Next(first, written.minimum(end - 1).clamp(min=0))


def back_mask(batch: Batch, upcoming: Next) -> Mask:
    """What tokens, and looks after them, see of the tokens before them, and of themselves.

    Looks of padding see themselves only: each would see all padding of a packed row, at more cost than all else.
    """
    column = torch.arange(batch.target.shape[1], device=batch.target.device)
    first = torch.cat([column - batch.target_at.position, upcoming.first], 1)
    place = torch.where(batch.source == PAD, upcoming.first, upcoming.place)
    end = torch.cat([column.expand_as(batch.target), place], 1)
    if batch.packed:
        return span_mask(first[0], end[0], first.shape[1], itself=True)
    key = torch.arange(first.shape[1], device=first.device)
    return (((key >= first[..., None]) & (key < end[..., None])) | (key == key[:, None]))[:, None]


def look_ahead(model: Translator, batch: Batch, path: Tensor, source: Tensor) -> Tensor:
    """(rows, target + source, width) decoder states of the tokens, and of the looks after each source token."""
    upcoming = next_tokens(batch, path)
    target, read = batch.target_at, batch.source_at
    positions = torch.cat([target.position, target.position.gather(1, upcoming.place)], 1)
    every = Tokens(torch.cat([target.segment, read.segment], 1), positions)
    cross = mask(batch, every, torch.cat([path, read.position + 1], 1), read)
    tokens = torch.cat([batch.target, batch.target.gather(1, upcoming.place)], 1)
    return model.decode(tokens, positions, source, back_mask(batch, upcoming), cross)


@torch.no_grad()
def look(model: Translator, batch: Batch, path: Tensor, own_words: bool, ahead: bool) -> Looks:
    """All that is seen along these reads, in the batch's own layout.

    `own_words`: what the model would write (after the reference's prefix), else the reference.
    """
    source, count = encoded(model, batch), batch.target.shape[1]
    if ahead:
        both = look_ahead(model, batch, path, source)
        states, looks = both[:, :count], both[:, count:]
    else:
        causal, cross = causal_mask(batch), cross_mask(batch, path)
        states, looks = model.decode(batch.target, batch.target_at.position, source, causal, cross), None
    words = model.many_logits(states).argmax(-1) if own_words else batch.labels
    return Looks(source, states, words, looks)
