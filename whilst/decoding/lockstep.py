"""A batch of known sources in lockstep: in each step some READ, then all that are ready WRITE."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from whilst.core.settings import Limits
from whilst.data.vocabulary import EOS
from whilst.decoding.output import Output, pad
from whilst.decoding.state import DecodingState
from whilst.model.transformer import Translator
from whilst.policy import Decider, Policy


def to_outputs(log: Tensor, counts: Sequence[int], times: Sequence[float]) -> list[Output]:
    """From rows of `Lockstep.log` with these numbers of WRITEs; `times` are those of the steps."""
    found = []
    for count, entries in zip(counts, log[:, : max(counts, default=0)].tolist(), strict=True):
        units, reads, steps = (list(column) for column in zip(*entries[:count], strict=True))
        written = [unit for unit in units if unit != EOS]
        found.append(Output(written, reads, [times[step] for step in steps]))
    return found


class Lockstep:
    """Everything is on the device. Rows without a sentence are finished."""

    def __init__(
        self,
        model: Translator,
        policy: Policy,
        sentences: Sequence[int],
        source_capacity: int,
        target_capacity: int,
        lookaheads: int = 1,
        logits: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """`sentences`: indices in the corpus. For the others see `DecodingState`."""
        self.policy, rows = policy, len(sentences)
        self.state = DecodingState(
            model, rows, source_capacity, target_capacity, lookaheads=lookaheads, logits=logits
        )
        device = self.state.last.device
        self.row = torch.arange(rows, device=device)  # index of each row's output
        self.lengths, self.most = torch.ones_like(self.row), torch.ones_like(self.row)
        self.finished = torch.ones_like(self.row, dtype=torch.bool)
        self.decider: Decider = policy.start(torch.as_tensor(sentences, device=device))
        self.steps = torch.zeros((), dtype=torch.long, device=device)
        self.log = self.row.new_zeros(rows, target_capacity + 1, 3)  # of each WRITE: unit, reads, step

    def begin(self, sources: Sequence[Sequence[int]], limits: Limits) -> None:
        """A sentence in every row."""
        source, self.lengths = pad(sources, self.row.device)
        self.most = torch.tensor([limits.of(len(source)) for source in sources], device=self.row.device)
        self.finished = torch.zeros_like(self.finished)
        self.state.load(source, self.lengths)

    def step(self) -> None:
        """READs and WRITEs until a row has written; rows that are ready wait for the others."""
        needs_lookahead, wrote = self.policy.needs_lookahead, False
        while not wrote:
            write = self.decider.write(self.state.view(needs_lookahead))
            write = write | (self.state.cache.read >= self.lengths) | self.finished
            is_last = bool(write.all())
            if wrote := needs_lookahead or is_last:
                self.write(write)
            if not is_last:
                self.state.uncover(~write)

    def write(self, write: Tensor) -> None:
        """WRITE in those of these rows (booleans) that are not finished."""
        cache, write = self.state.cache, write & ~self.finished
        column, last = cache.written, self.state.write(write)
        # Rows that do not write note something too: it is overwritten, or beyond the end.
        entries = torch.stack([last, cache.read, self.steps.expand_as(last)], 1)
        self.log[torch.arange(len(column), device=column.device), column] = entries
        self.finished = self.finished | (write & ((last == EOS) | (cache.written >= self.most)))
        self.steps = self.steps + 1

    def select(self, rows: Tensor) -> None:
        self.row, self.finished, self.log = self.row[rows], self.finished[rows], self.log[rows]
        self.lengths, self.most = self.lengths[rows], self.most[rows]
        self.state.select(rows)
        self.decider = self.decider.subset(rows)
