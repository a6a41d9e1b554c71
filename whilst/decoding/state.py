"""The state of a batch of translations, one per row, and the actions READ and WRITE (Algorithm 2 of the paper).

All decoding in PyTorch uses `DecodingState`: live sessions and the server directly, batches and CUDA graphs through
`Lockstep`, which applies a policy to sources that are known as a whole. Rows are independent, so a row that is
ready to WRITE may wait for others without a change of its output. The encoder is causal, so a known source can be
encoded in one pass (`load`); a READ then only makes the next state visible.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from whilst.data.vocabulary import BOS, EOS, PAD
from whilst.data.writer import GuidedWriter
from whilst.decoding.output import pad
from whilst.model.cache import Cache, row_numbers
from whilst.model.transformer import Translator, most_likely
from whilst.policy import Decider, Policy, View


class DecodingState:
    def __init__(self, model: Translator, cache: Cache) -> None:
        """`cache`: from `Translator.start`."""
        self.model, self.cache = model, cache
        self.logits: Callable[[Tensor], Tensor] = model.logits  # of decoder states
        rows, columns, _ = cache.encoded.shape
        self.source = cache.read.new_full((rows, columns - 1), PAD)
        self.last = torch.full_like(cache.read, BOS)  # last token written
        self.banned: Tensor | None = None  # (rows, any number) tokens that must not be written next
        self.lookahead: Tensor | None = None  # (rows, width), valid until the next action

    def restart(self) -> None:
        """Begin new sentences in all rows."""
        self.cache.restart()
        self.last = torch.full_like(self.last, BOS)
        self.lookahead = None

    def load(self, source: Tensor, lengths: Tensor) -> None:
        """Encode whole sources (rows, longest), and do the first READ, before which nothing can be written."""
        self.source = source
        self.cache.encoder.clear()  # frees memory: `read` is not used after this
        self.model.preload(self.cache, self.model.encode_whole(source, lengths), lengths)
        self.cache.read = torch.ones_like(self.cache.read)

    def read(self, tokens: Tensor) -> None:
        """READ the next source token (rows) in every row."""
        self.source[row_numbers(self.cache.rows, tokens), self.cache.read] = tokens
        self.model.read(self.cache, tokens[:, None], torch.ones_like(tokens))
        self.lookahead = None

    def announce(self, tokens: Tensor) -> None:
        """Set the tokens (rows) that follow the last ones read in the same words, or EOS where a word is whole."""
        self.source[row_numbers(self.cache.rows, tokens), self.cache.read] = tokens

    def uncover(self, reading: Tensor) -> None:
        """READ in these rows (booleans) of loaded sources."""
        self.cache.read = self.cache.read + reading.long()
        self.lookahead = None

    def look_ahead(self) -> Tensor:
        """(rows, width) decoder states that would write the next tokens now."""
        if self.lookahead is None:
            self.lookahead = self.model.lookahead(self.cache, self.last, self.cache.read)
        return self.lookahead

    def view(self, with_lookahead: bool) -> View:
        """The input of a policy's decisions."""
        lookahead = self.look_ahead() if with_lookahead else None  # first, as it moves monotonic heads
        cache = self.cache
        states = cache.encoded, cache.decoded, lookahead, cache.stopped
        return View(cache.read, cache.written, self.source, self.last, *states, self.banned, cache.rows)

    def write(self, writing: Tensor | None = None, tokens: Tensor | None = None) -> Tensor:
        """WRITE `tokens` (default: the most likely ones) in the rows `writing` (booleans, default: all).

        Returns the last token written in every row (rows).
        """
        states = self.look_ahead()
        tokens = most_likely(self.logits(states), self.banned) if tokens is None else tokens
        writing = torch.ones_like(tokens, dtype=torch.bool) if writing is None else writing
        self.cache.commit(states, writing)
        self.last, self.lookahead = torch.where(writing, tokens, self.last), None
        return self.last

    def subset(self, rows: Tensor, read_end: int, written_end: int) -> "DecodingState":
        """The state of these rows, with bounds as in `Cache`. `update` copies the results of its actions back."""
        subset = copy.copy(self)
        subset.cache, subset.lookahead = self.cache.subset(rows, read_end, written_end), None
        subset.last, subset.banned = self.last[rows], None
        return subset

    def update(self, subset: "DecodingState") -> None:
        self.cache.update(subset.cache)
        self.last[subset.cache.rows] = subset.last

    def ban(self, units: Sequence[Sequence[int]]) -> None:
        """Set the tokens that must not be written next in each row."""
        self.banned = pad([[PAD, *row] for row in units], self.last.device)[0] if any(units) else None

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        self.cache.select(rows)
        self.source, self.last, self.lookahead = self.source[rows], self.last[rows], None


class Lockstep:
    """A batch of known sources that are translated step by step under a policy.

    All tensors are on the device. Rows without a sentence are finished.
    """

    def __init__(self, model: Translator, cache: Cache, policy: Policy, sentences: Sequence[int]) -> None:
        """`sentences`: indices in the corpus, one for each row of the cache."""
        self.policy, self.state = policy, DecodingState(model, cache)
        device = cache.read.device
        self.row = torch.arange(len(sentences), device=device)  # index of its sentence in the batch at the start
        self.lengths = torch.ones_like(self.row)
        self.max_targets = torch.ones_like(self.row)  # maximum numbers of target tokens
        self.finished = torch.ones_like(self.row, dtype=torch.bool)
        self.decider: Decider = policy.start(torch.as_tensor(sentences, device=device))
        self.steps = torch.zeros((), dtype=torch.long, device=device)
        columns = cache.decoder[0].shape[3]
        self.log = self.row.new_zeros(len(sentences), columns, 3)  # of each WRITE: unit, reads, step
        self.writers: list[GuidedWriter] = []  # of each row, if they may ban tokens
        self.targets: Tensor | None = None  # (rows, target) tokens to WRITE, if not the most likely ones

    def begin(self, sources: Sequence[Sequence[int]], max_targets: Sequence[int]) -> None:
        """Start a sentence in every row, with a maximum number of target tokens for each."""
        source, self.lengths = pad(sources, self.row.device)
        self.max_targets = torch.tensor(max_targets, device=self.row.device)
        self.finished = torch.zeros_like(self.finished)
        self.state.load(source, self.lengths)

    def step(self) -> None:
        """If the policy needs lookahead states, WRITE in the rows that are ready, and READ in the others.

        If not, READ until all rows are ready, then WRITE in all of them with one decoder step.
        """
        needs_lookahead, wrote = self.policy.needs_lookahead, False
        while not wrote:
            if self.writers:
                reads = zip(self.writers, self.state.cache.read.tolist(), strict=True)
                self.state.ban([writer.banned(read) for writer, read in reads])
            write = self.decider.write(self.state.view(needs_lookahead))
            write = write | (self.state.cache.read >= self.lengths) | self.finished
            is_last = bool(write.all())
            if wrote := needs_lookahead or is_last:
                self.write(write)
            if not is_last:
                self.state.uncover(~write)

    def write(self, write: Tensor) -> None:
        """WRITE in these rows (booleans), except finished ones."""
        cache, write = self.state.cache, write & ~self.finished
        column, rows = cache.written, torch.arange(len(write), device=write.device)
        tokens = None if self.targets is None else self.targets[rows, column]
        last = self.state.write(write, tokens)
        for row in write.nonzero()[:, 0].tolist() if self.writers else ():
            self.writers[row].write(int(last[row]), int(cache.read[row]))
        # Rows that do not write are logged too; these entries are overwritten later, or lie after the last WRITE.
        self.log[rows, column] = torch.stack([last, cache.read, self.steps.expand_as(last)], 1)
        self.finished = self.finished | (write & ((last == EOS) | (cache.written >= self.max_targets)))
        self.steps = self.steps + 1

    def select(self, rows: Tensor) -> None:
        self.row, self.finished, self.log = self.row[rows], self.finished[rows], self.log[rows]
        self.lengths, self.max_targets = self.lengths[rows], self.max_targets[rows]
        self.targets = None if self.targets is None else self.targets[rows]
        self.writers = [self.writers[row] for row in rows.tolist()] if self.writers else []
        self.state.select(rows)
        self.decider = self.decider.subset(rows)
