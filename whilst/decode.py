"""The read/write loop (Algorithm 2): batched, KV-cached, for any policy. The only one there is.

Rows are independent, so a row that is ready to WRITE may wait until the others are: the words are the same as
one by one. The encoder only looks back, so a source that is known may be encoded in one go (`at_once`): its
states are the same as token by token, and READ only uncovers them.

A host that asks after every action leaves a GPU idle. There, a step is `steady`: it does the same work whatever the
rows do, so it can be recorded once as a CUDA graph, and only now and then someone looks who is finished.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whilst.capture import Repeated
from whilst.console import bar
from whilst.errors import UserError
from whilst.model import MAX_POSITIONS, Translator
from whilst.policy import Decider, Policy, Prospects, View
from whilst.policy.full import Full
from whilst.settings import Limits
from whilst.vocab import BOS, EOS, PAD

SHRINK = 0.75  # finished rows leave when this share goes on: copying the caches costs, and so do idle rows
STEADY_SHRINK = 0.5  # likewise where that means a new recording
CHECK = 8  # steady steps between two looks at who is finished
COLUMNS = 32  # a recorded step attends to a multiple of so many target tokens
HELD = 1 << 18  # tokens that loops to be used again have room for, together: some gigabytes of the paper's model
LOOKS = 4  # in a steady step: a row may READ so often but once before it WRITEs


@dataclass
class Output:
    """One translation in units. The end mark has a read and a time, but no unit."""

    units: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)  # g_i, the source's end mark counted
    times: list[float] = field(default_factory=list)  # milliseconds since the batch began

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


def likeliest(logits: Tensor) -> Tensor:
    """(rows, units) -> (rows): what to write. Pad and bos, which come before eos, mean nothing in a translation."""
    return logits[:, EOS:].argmax(-1) + EOS


class Loop:
    """The translations of a batch under way; what they have come to lives on the device."""

    def __init__(
        self, model: Translator, policy: Policy, rows: int, width: int, most: int, at_once: bool
    ) -> None:
        """Room for so many sources of at most `width` units, and translations of at most `most`."""
        self.model, self.policy, self.at_once = model, policy, at_once
        device = model.target_embedding.weight.device
        self.row = torch.arange(rows, device=device)  # whose output each row is
        self.source = torch.full((rows, width), PAD, device=device)
        self.lengths, self.most = torch.zeros_like(self.row), torch.zeros_like(self.row)
        self.decider: Decider
        self.looks = 1 if model.settings.cross == "monotone" else LOOKS
        self.cache = model.start(rows, width, most, looks=self.looks)
        self.read, self.last = torch.zeros_like(self.row), torch.zeros_like(self.row)
        self.finished = torch.zeros_like(self.row, dtype=torch.bool)
        self.steps = torch.zeros((), dtype=torch.long, device=device)
        # (rows, most) of each WRITE: unit, reads, step.
        self.units, self.reads, self.step_of = (self.row.new_zeros(rows, most + 1) for _ in range(3))
        self.recorded: dict[int, Repeated] = {}  # by the target tokens that are attended to
        self.current: Repeated | None = None

    def begin(self, sources: Sequence[Sequence[int]], limits: Limits, numbers: Sequence[int]) -> None:
        """What a step only looks at is changed in place, so that recordings stay good. Spare rows are finished."""
        device, spare = self.source.device, len(self.row) - len(sources)
        source, lengths = pad([*sources, *[[EOS]] * spare], device)
        self.source.fill_(PAD)
        self.source[:, : source.shape[1]] = source
        self.lengths.copy_(lengths)
        self.most.copy_(torch.tensor([limits.of(len(source)) for source in sources] + [1] * spare))
        decider = self.policy.start(torch.as_tensor([*numbers, *[0] * spare], device=device))
        if self.recorded:
            self.decider.remember(decider.remembered())
        else:
            self.decider = decider
        self.read, self.last = torch.zeros_like(self.read), torch.full_like(self.last, BOS)
        self.finished, self.steps = self.row >= len(sources), torch.zeros_like(self.steps)
        self.current = None
        self.cache.restart()
        if self.at_once:
            self.model.read(self.cache, self.source, self.lengths)
        self.read_on(torch.ones_like(self.finished))  # the first READ is given: there is nothing to write before it

    def read_on(self, reading: Tensor) -> None:
        if not self.at_once:
            following = self.source.gather(1, self.read.clamp(max=self.source.shape[1] - 1)[:, None])
            self.model.read(self.cache, following, reading.long())
        self.read = self.read + reading.long()

    def decide(self, ahead: Tensor | None) -> Tensor:
        """(rows) whether to WRITE; who is finished has nothing to READ."""
        view = View.of(self.cache, self.read, self.source, self.last, ahead)
        return self.decider.write(view) | (self.read >= self.lengths) | self.finished

    def look(self) -> Tensor:
        return self.model.look(self.cache, self.last, self.read)

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

    def steady_step(self) -> None:
        """A few READs, and a WRITE of those who come to one: nothing is asked of the device."""
        further = torch.arange(self.looks, device=self.read.device)
        reads = torch.minimum(self.read[:, None] + further, self.lengths[:, None])
        ahead = self.model.looks(self.cache, self.last, reads) if self.policy.looks_ahead else None
        view = View.of(self.cache, self.read, self.source, self.last, None)
        count = self.decider.reads(Prospects(view, reads, ahead)).minimum(self.lengths - self.read)
        self.read = self.read + count
        if ahead is None:
            state = self.look()
        else:
            chosen = count.clamp(max=self.looks - 1)
            state = ahead[torch.arange(len(chosen), device=chosen.device), chosen]
            self.cache.settle(chosen)
        self.write(state, count < self.looks)

    def write(self, ahead: Tensor, write: Tensor) -> None:
        write = write & ~self.finished
        place = self.cache.written[:, None]
        self.cache.commit(ahead, write)
        self.last = torch.where(write, likeliest(self.model.logits(ahead)), self.last)
        for kept, new in ((self.units, self.last), (self.reads, self.read), (self.step_of, self.steps)):
            # Where nothing is written this is written over, or lies past the end.
            kept.scatter_(1, place, new.expand(len(place))[:, None])
        self.finished = self.finished | (write & ((self.last == EOS) | (self.cache.written >= self.most)))
        self.steps = self.steps + 1

    def repeat(self, done: int) -> None:
        """A steady step, recorded, after so many."""
        columns = min(-(-(done + self.looks) // COLUMNS) * COLUMNS, self.cache.decoder[0].shape[3])
        self.cache.written_end = columns - self.looks
        if columns not in self.recorded:
            self.recorded[columns] = Repeated(self.steady_step, self.moving, self.move)
        if self.current is not self.recorded[columns]:
            self.current = self.recorded[columns]
            self.current.enter()
        self.current()

    def moving(self) -> list[Tensor]:
        """What a steady step changes, but for what it changes in place."""
        mine = [self.read, self.last, self.finished, self.steps, self.cache.written, self.cache.decoded]
        return mine + [layer.past for layer in self.cache.heads] + self.decider.remembered()

    def move(self, tensors: list[Tensor]) -> None:
        self.read, self.last, self.finished, self.steps = tensors[:4]
        self.cache.written, self.cache.decoded = tensors[4:6]
        rest = iter(tensors[6:])
        for layer in self.cache.heads:
            layer.past = next(rest)
        self.decider.remember(list(rest))

    def note(self, outputs: list[Output], times: Sequence[float]) -> None:
        """Add what the finished rows have written to the outputs."""
        done = (self.finished & (self.row < len(outputs))).nonzero()[:, 0]
        columns = (self.row, self.cache.written, self.units, self.reads, self.step_of)
        for row, count, units, reads, steps in zip(*(t[done].tolist() for t in columns), strict=True):
            outputs[row] = Output(
                [unit for unit in units[:count] if unit != EOS], reads[:count], [times[n] for n in steps[:count]]
            )

    def select(self, kept: Tensor) -> None:
        self.row, self.last, self.read, self.finished = (
            t[kept] for t in (self.row, self.last, self.read, self.finished)
        )
        self.source, self.lengths, self.most = self.source[kept], self.lengths[kept], self.most[kept]
        self.units, self.reads, self.step_of = self.units[kept], self.reads[kept], self.step_of[kept]
        self.cache.select(kept)
        self.decider = self.decider.part(kept)
        self.recorded, self.current = {}, None


class Loops:
    """Loops that are used again, and so are their recordings: for one policy, and for so many rows at most."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.by_width: dict[int, Loop] = {}

    def of(self, model: Translator, policy: Policy, width: int, limits: Limits) -> Loop:
        rounded = -(-width // COLUMNS) * COLUMNS  # so that many sources share one
        width = rounded if limits.of(rounded) <= MAX_POSITIONS else width
        if width not in self.by_width:
            held = sum(loop.source.numel() + loop.units.numel() for loop in self.by_width.values())
            if held + self.rows * (width + limits.of(width)) > HELD:
                self.by_width.clear()
            self.by_width[width] = Loop(model, policy, self.rows, width, limits.of(width), at_once=True)
        return self.by_width[width]


@torch.inference_mode()
def translate_batch(
    model: Translator,
    sources: Sequence[Sequence[int]],
    policy: Policy,
    limits: Limits,
    numbers: Sequence[int] | None = None,
    at_once: bool = True,
    steady: bool | None = None,
    loops: Loops | None = None,
) -> list[Output]:
    """Translate sources (each ending with eos) together; `numbers` are their places in the corpus.

    `steady`: see above; by default on a GPU. `loops`: to be used again, for steady batches of one policy.
    """
    if model.bidirectional and not isinstance(policy, Full):
        raise UserError(f"policy {policy.name}: this model's encoder needs the whole source; use full")
    began = time.perf_counter()
    at_once = at_once or model.bidirectional
    if steady is None:
        steady = model.target_embedding.weight.device.type == "cuda"
    steady = steady and at_once
    loops = loops if steady else None
    outputs = [Output() for _ in sources]
    width = max(map(len, sources))
    if loops is None:
        loop = Loop(model, policy, len(sources), width, limits.of(width), at_once)
    else:
        loop = loops.of(model, policy, width, limits)
    loop.begin(sources, limits, numbers or range(len(sources)))
    if at_once and loops is None:
        loop.cache.encoder.clear()  # nothing more will be read
    times: list[float] = []  # of each step
    while True:
        count = CHECK if steady and len(loop.row) > 1 else 1
        for done in range(len(times), len(times) + count):
            if steady:
                loop.repeat(done)
            else:
                loop.step()
        going = int((~loop.finished).sum())  # waits for the device
        times += [1000 * (time.perf_counter() - began)] * count
        if not going:
            loop.note(outputs, times)
            return outputs
        if loops is None and going <= (STEADY_SHRINK if steady else SHRINK) * len(loop.row):
            loop.note(outputs, times)
            loop.select((~loop.finished).nonzero()[:, 0])


@dataclass
class Decoding:
    """Texts under one policy, in batches of similar length. What was recorded for one serves the next."""

    model: Translator
    policy: Policy
    limits: Limits
    batch: int

    def __post_init__(self) -> None:
        self.loops = None if self.policy.knows_sentences else Loops(self.batch)

    def translate(self, sources: Sequence[Sequence[int]], what: str = "translating") -> list[Output]:
        """The order stays."""
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        outputs: dict[int, Output] = {}
        with bar(None, what, "sentences", len(sources)) as progress:
            for start in range(0, len(order), self.batch):
                chosen = order[start : start + self.batch]
                rows = [sources[i] for i in chosen]
                done = translate_batch(self.model, rows, self.policy, self.limits, chosen, loops=self.loops)
                outputs |= dict(zip(chosen, done, strict=True))
                progress.update(len(chosen))
        return [outputs[i] for i in range(len(sources))]


def translate(
    model: Translator,
    sources: Sequence[Sequence[int]],
    policy: Policy,
    limits: Limits,
    batch: int,
    what: str = "translating",
) -> list[Output]:
    """One text."""
    return Decoding(model, policy, limits, min(batch, max(1, len(sources)))).translate(sources, what)
