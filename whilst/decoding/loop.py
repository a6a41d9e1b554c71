"""The translations of a batch under way, and the actions that move them on: READ and WRITE (Algorithm 2).

Rows are independent, so a row that is ready to WRITE may wait until the others are: the words are the same as
one by one. The encoder only looks back, so a source that is known may be encoded in one go (`at_once`): its
states are the same as token by token, and READ only uncovers them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whilst.core.settings import Limits
from whilst.data.vocabulary import BOS, EOS, PAD
from whilst.model.transformer import Translator, likeliest
from whilst.policy import Decider, Policy, View


@dataclass
class Output:
    """One translation in units. The end mark has a read and a time, but no unit."""

    units: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)  # g_i, the source's end mark counted
    times: list[float] = field(default_factory=list)  # milliseconds since this sentence, or its batch, began

    @property
    def sentence(self) -> list[int]:
        """The units with an end mark, as datasets have them, even if it was cut before that."""
        return [*self.units, EOS]


def pad(sources: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(rows, longest) tokens and (rows) lengths."""
    lengths = torch.tensor([len(source) for source in sources])
    tokens = torch.full((len(sources), int(lengths.max())), PAD)
    for row, source in enumerate(sources):
        tokens[row, : len(source)] = torch.as_tensor(source, dtype=torch.long)
    return tokens.to(device), lengths.to(device)


def to_outputs(log: Tensor, counts: Sequence[int], times: Sequence[float]) -> list[Output]:
    """Of the rows of a `Loop.log`, with so many WRITEs in each; `times` are those of the steps."""
    found = []
    for count, notes in zip(counts, log[:, : max(counts, default=0)].tolist(), strict=True):
        units, reads, steps = (list(column) for column in zip(*notes[:count], strict=True))
        written = [unit for unit in units if unit != EOS]
        found.append(Output(written, reads, [times[step] for step in steps]))
    return found


class Loop:
    """What the translations have come to lives on the device. Before they begin, rows are finished."""

    def __init__(
        self, model: Translator, policy: Policy, numbers: Sequence[int], width: int, most: int, looks: int = 1
    ) -> None:
        """Room for sources of at most `width` units, and translations of at most `most`.

        `numbers`: places of the sentences in the corpus. `looks`: at one token, see `Translator.looks`.
        """
        self.model, self.policy = model, policy
        device, rows = model.target_embedding.weight.device, len(numbers)
        self.row = torch.arange(rows, device=device)  # whose output each row is
        self.source = torch.full((rows, width), PAD, device=device)
        self.lengths, self.most, self.read = (torch.ones_like(self.row) for _ in range(3))
        self.last = torch.full_like(self.row, BOS)
        self.finished = torch.ones_like(self.row, dtype=torch.bool)
        self.decider: Decider = policy.start(torch.as_tensor(numbers, device=device))
        self.cache = model.start(rows, width, most, looks=looks)
        self.output: Tensor = model.target_embedding.weight  # or its `wide_output`
        self.steps = torch.zeros((), dtype=torch.long, device=device)
        self.log = self.row.new_zeros(rows, most + 1, 3)  # of each WRITE: unit, reads, step

    def begin(self, sources: Sequence[Sequence[int]], limits: Limits, at_once: bool) -> None:
        """A sentence in every row. The first READ is given: there is nothing to write before it."""
        self.source, self.lengths = pad(sources, self.row.device)
        self.most = torch.tensor([limits.of(len(source)) for source in sources], device=self.row.device)
        self.finished, self.at_once = torch.zeros_like(self.finished), at_once
        if at_once:
            self.cache.encoder.clear()  # nothing more will be read
            self.model.adopt(self.cache, self.model.encode_whole(self.source, self.lengths), self.lengths)
        else:
            self.model.read(self.cache, self.source[:, :1], torch.ones_like(self.read))

    def step(self) -> None:
        """READs and WRITEs until someone has written; rows that are ready wait for the others."""
        while True:
            ahead = self.look() if self.policy.looks_ahead else None
            write = self.decide(ahead)
            if ahead is None and bool(write.all()):
                ahead = self.look()
            if ahead is not None:
                self.write(ahead, write)
            if not bool(write.all()):
                self.read_on(~write)
            if ahead is not None:
                return

    def read_on(self, reading: Tensor) -> None:
        if not self.at_once:
            following = self.source.gather(1, self.read.clamp(max=self.source.shape[1] - 1)[:, None])
            self.model.read(self.cache, following, reading.long())
        self.read = self.read + reading.long()

    def view(self, ahead: Tensor | None = None) -> View:
        return View.of(self.cache, self.read, self.source, self.last, ahead)

    def decide(self, ahead: Tensor | None) -> Tensor:
        """(rows) whether to WRITE; who is finished has nothing to READ."""
        return self.decider.write(self.view(ahead)) | (self.read >= self.lengths) | self.finished

    def look(self) -> Tensor:
        return self.model.look(self.cache, self.last, self.read)

    def write(self, ahead: Tensor, write: Tensor) -> None:
        write = write & ~self.finished
        place = self.cache.written
        self.cache.commit(ahead, write)
        logits = (ahead @ self.output.T)[:, : self.model.target_embedding.num_embeddings]
        self.last = torch.where(write, likeliest(logits), self.last)
        # Where nothing is written this is written over, or lies past the end.
        noted = torch.stack([self.last, self.read, self.steps.expand_as(self.last)], 1)
        self.log[torch.arange(len(place), device=place.device), place] = noted
        self.finished = self.finished | (write & ((self.last == EOS) | (self.cache.written >= self.most)))
        self.steps = self.steps + 1

    def select(self, kept: Tensor) -> None:
        self.row, self.last, self.read, self.finished = (
            t[kept] for t in (self.row, self.last, self.read, self.finished)
        )
        self.source, self.lengths, self.most = self.source[kept], self.lengths[kept], self.most[kept]
        self.log = self.log[kept]
        self.cache.select(kept)
        self.decider = self.decider.part(kept)
