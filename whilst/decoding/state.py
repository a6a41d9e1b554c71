"""Translations under way, a row each, with the actions READ and WRITE (Algorithm 2).

All decoding on PyTorch drives this state: batches, forced decoding, CUDA graphs, live sessions and the server. Rows
are independent, so a row that is ready to WRITE may wait for others: its words are the same as one by one. The
encoder is causal, so a known source can be encoded at once (`load`): READ then only uncovers its states.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from whilst.data.vocabulary import BOS, PAD
from whilst.model.cache import row_numbers
from whilst.model.transformer import Translator, most_likely
from whilst.policy import View


class DecodingState:
    def __init__(
        self,
        model: Translator,
        rows: int,
        source_capacity: int,
        target_capacity: int,
        lazy: bool = False,
        lookaheads: int = 1,
        logits: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """`lazy`, `lookaheads`: see `Translator.start`. `logits`: of decoder states, if not the model's own."""
        self.model, self.logits = model, logits or model.logits
        self.cache = model.start(rows, source_capacity, target_capacity, lazy, lookaheads)
        device = self.cache.read.device
        self.source = torch.full((rows, source_capacity), PAD, device=device)
        self.last = torch.full((rows,), BOS, device=device)  # last token written, also of the rows outside a subset
        self.lookahead: Tensor | None = None  # (rows, width), valid until the next action

    def restart(self) -> None:
        """Begin new sentences in all rows."""
        self.cache.restart()
        self._set_last(torch.full_like(self.cache.read, BOS))
        self.lookahead = None

    def _last(self) -> Tensor:
        return self.last if self.cache.rows is None else self.last[self.cache.rows]

    def _set_last(self, tokens: Tensor) -> None:
        if self.cache.rows is None:
            self.last = tokens
        else:
            self.last[self.cache.rows] = tokens

    def load(self, source: Tensor, lengths: Tensor) -> None:
        """Encode whole sources (rows, longest). The first READ is done: there is nothing to write before it."""
        self.source = source
        self.cache.encoder.clear()  # frees memory: `read` is not used after this
        self.model.preload(self.cache, self.model.encode_whole(source, lengths), lengths)
        self.cache.read = torch.ones_like(self.cache.read)

    def read(self, tokens: Tensor) -> None:
        """READ the next source token (rows) in every row."""
        self.source[row_numbers(self.cache.rows, tokens), self.cache.read] = tokens
        self.model.read(self.cache, tokens[:, None], torch.ones_like(tokens))
        self.lookahead = None

    def uncover(self, reading: Tensor) -> None:
        """READ in these rows (booleans) of loaded sources."""
        self.cache.read = self.cache.read + reading.long()
        self.lookahead = None

    def look_ahead(self) -> Tensor:
        """(rows, width) decoder states that would write the next tokens now."""
        if self.lookahead is None:
            self.lookahead = self.model.lookahead(self.cache, self._last(), self.cache.read)
        return self.lookahead

    def view(self, with_lookahead: bool) -> View:
        """What policies decide from."""
        lookahead = self.look_ahead() if with_lookahead else None  # first, as it moves monotone heads
        cache = self.cache
        states = cache.encoded, cache.decoded, lookahead, cache.stopped
        return View(cache.read, cache.written, self.source, self._last(), *states, cache.rows)

    def write(self, writing: Tensor | None = None, tokens: Tensor | None = None) -> Tensor:
        """WRITE in these rows (booleans), or all: the most likely tokens, or given ones. Returns them (rows)."""
        states = self.look_ahead()
        tokens = most_likely(self.logits(states)) if tokens is None else tokens
        if writing is None:
            writing = torch.ones_like(tokens, dtype=torch.bool)
        else:
            tokens = torch.where(writing, tokens, self._last())
        self.cache.commit(states, writing)
        self._set_last(tokens)
        self.lookahead = None
        return tokens

    def subset(self, rows: Tensor, read_end: int, written_end: int) -> "DecodingState":
        """Some rows, with bounds of their counts. `Cache.update` brings the results of actions back."""
        subset = copy.copy(self)
        subset.cache, subset.lookahead = self.cache.subset(rows, read_end, written_end), None
        return subset

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        self.cache.select(rows)
        self.source, self.last, self.lookahead = self.source[rows], self.last[rows], None
