"""Decoding with CUDA graphs: if the host waited for the GPU after every action, the GPU would often be idle.

Each step does the same operations whatever the rows decide, so that it can be recorded as a CUDA graph. Every few
steps the host checks which rows have finished, and gives these rows to waiting sentences, in place.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from whilst.core.cuda_graphs import RepeatedStep
from whilst.core.settings import Limits
from whilst.data.vocabulary import BOS
from whilst.decoding.output import Output, pad, to_outputs
from whilst.decoding.state import Lockstep
from whilst.model.transformer import Translator
from whilst.policy import Futures, Policy

LOOKAHEADS = 4  # up to 3 READs before a WRITE in one step
CHECK = 4  # steps between checks for finished rows
REFILL = 0.25  # share of the rows that must be free before waiting sentences take them
COLUMNS = 32  # a recorded step attends to this number of tokens, or twice, four times, … as many


def columns(tokens: int, limit: int) -> int:
    """How many columns a step attends to if it needs `tokens`. Few different numbers, because each is recorded."""
    count = COLUMNS
    while count < tokens:
        count *= 2
    return min(count, limit)


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@dataclass
class Row:
    """A sentence that is translated in a row of the batch."""

    number: int  # index among the sources
    length: int
    began: float
    written: int = 0  # at the last check
    finished: bool = False


@dataclass(frozen=True)
class Group:
    """Encoded sentences that wait for rows."""

    chosen: list[int]  # indices among the sources
    counts: list[int]  # their lengths
    sentences: Tensor  # indices in the corpus
    tokens: Tensor
    lengths: Tensor
    max_targets: Tensor  # maximum numbers of target tokens
    encoded: Tensor

    def split(self, count: int) -> tuple["Group", "Group | None"]:
        """The first `count` sentences, and the others or None."""
        parts = [getattr(self, field.name) for field in fields(self)]
        others = Group(*(part[count:] for part in parts))
        return Group(*(part[:count] for part in parts)), others if others.chosen else None


@dataclass(frozen=True)
class Done:
    """Finished sentences."""

    rows: list[Row]
    log: Tensor  # of `Lockstep`, on the host

    @classmethod
    def none(cls) -> "Done":
        return cls([], torch.zeros(0, 0, 3, dtype=torch.long))

    def outputs(self, times: Sequence[float]) -> dict[int, Output]:
        """Outputs by sentence number. Their times count from when the sentence got its row."""
        outputs = to_outputs(self.log, [row.written for row in self.rows], times)
        for row, output in zip(self.rows, outputs, strict=True):
            output.times = [1000 * (time - row.began) for time in output.times]
        return {row.number: output for row, output in zip(self.rows, outputs, strict=True)}


class Graphed:
    """Translates texts of any size in a fixed number of rows, under one policy."""

    def __init__(self, model: Translator, policy: Policy, rows: int, width: int, limits: Limits) -> None:
        """`width`: maximum number of source tokens."""
        self.lookaheads = 1 if model.settings.cross == "monotone" else LOOKAHEADS
        self.queries = self.lookaheads if policy.needs_lookahead else 1  # decoder queries per row
        weight, units = model.padded_output().detach(), model.target_embedding.num_embeddings

        def logits(states: Tensor) -> Tensor:
            return (states @ weight.T)[..., :units]

        cache = model.start(rows, width, limits.of(width), lookaheads=self.queries)
        cache.encoder.clear()  # sources are encoded as a whole, see `encode`
        self.batch = Lockstep(model, cache, policy, [0] * rows)
        self.batch.state.logits = logits
        self.limits, self.width = limits, width
        self.more_reads = torch.arange(self.lookaheads, device=self.batch.row.device)
        self.recorded: dict[tuple[int, int], RepeatedStep] = {}  # by the columns of source and target
        self.busy: dict[int, Row] = {}  # by row index
        self.times: list[float] = []  # of each step

    @torch.inference_mode()
    def translate(
        self,
        sources: Sequence[Sequence[int]],
        sentences: Sequence[int] | None = None,
        advance: Callable[[int], object] = lambda _: None,
    ) -> list[Output]:
        """Outputs in the order of the sources. `sentences`: indices in the corpus.

        `advance` is called with the number of sentences that have finished since the last call.
        """
        waiting = deque(sorted(range(len(sources)), key=lambda n: -len(sources[n])))  # the longest must not be last
        outputs: dict[int, Output] = {}
        rows = len(self.batch.row)
        refill = max(1, int(REFILL * rows))
        self.busy, self.times = {}, []
        self.batch.steps.zero_()

        def next_group() -> Group | None:
            chosen = [waiting.popleft() for _ in range(min(rows, len(waiting)))]
            indices = chosen if sentences is None else [sentences[n] for n in chosen]
            return self.encode(chosen, [sources[n] for n in chosen], indices) if chosen else None

        group, done = next_group(), Done.none()
        while group or self.busy:
            if group and rows - len(self.busy) >= min(refill, len(group.chosen)):
                first, group = group.split(rows - len(self.busy))
                self.begin(first)
            self.launch()
            # The host works while the device is busy.
            outputs |= done.outputs(self.times)
            advance(len(done.rows))
            group = group or next_group()
            self.check()
            finished = [index for index, row in self.busy.items() if row.finished]
            free = rows - len(self.busy) + len(finished)
            due = len(finished) == len(self.busy) or (group and free >= min(refill, len(group.chosen)))
            done = self.collect(finished) if finished and due else Done.none()
        outputs |= done.outputs(self.times)
        advance(len(done.rows))
        return [outputs[n] for n in range(len(sources))]

    def encode(self, chosen: list[int], sources: list[Sequence[int]], sentences: list[int]) -> Group:
        device, counts = self.batch.row.device, [len(source) for source in sources]
        tokens = send(pad(sources, torch.device("cpu"))[0], device)
        figures = send(torch.tensor([sentences, counts, [self.limits.of(count) for count in counts]]), device)
        encoded = self.batch.state.model.encode_whole(tokens, figures[1])
        return Group(chosen, counts, figures[0], tokens, figures[1], figures[2], encoded)

    def begin(self, group: Group) -> None:
        """Start these sentences in free rows. Their first READ is already done."""
        batch, state = self.batch, self.batch.state
        free = (index for index in range(len(batch.row)) if index not in self.busy)
        indices = list(itertools.islice(free, len(group.chosen)))
        rows = send(torch.tensor(indices), batch.row.device)
        state.source[rows, : group.tokens.shape[1]] = group.tokens
        batch.lengths[rows], batch.max_targets[rows] = group.lengths, group.max_targets
        cache = state.cache.subset(rows, 0, 0)
        cache.restart()
        state.model.preload(cache, group.encoded, group.lengths)
        state.cache.update(cache)
        for part, value in ((state.cache.read, 1), (state.last, BOS), (batch.finished, False)):
            part.index_fill_(0, rows, value)  # an assignment would wait for the device
        batch.decider.update(rows, batch.policy.start(group.sentences))
        began = time.perf_counter()
        for index, number, length in zip(indices, group.chosen, group.counts, strict=True):
            self.busy[index] = Row(number, length, began)

    def launch(self) -> None:
        """Start `CHECK` steps without waiting for them."""
        unfinished = [row for row in self.busy.values() if not row.finished]
        source = columns(max(row.length for row in unfinished), self.width)
        written = max(row.written for row in unfinished) + CHECK - 1  # the maximum before the last of these steps
        target = columns(written + self.queries, self.batch.state.cache.decoder[0].shape[3])
        if (source, target) not in self.recorded:
            step, shared = partial(self.step, source, target), next(iter(self.recorded.values()), None)
            self.recorded[source, target] = RepeatedStep(step, self.tensors, self.set_tensors, shared)
        for _ in range(CHECK):
            self.recorded[source, target]()

    def check(self) -> None:
        """Wait for the steps, and find finished rows."""
        finished, written = torch.stack([self.batch.finished.long(), self.batch.state.cache.written]).tolist()
        self.times += [time.perf_counter()] * CHECK
        for index, row in self.busy.items():
            row.finished, row.written = bool(finished[index]), written[index]

    def collect(self, indices: list[int]) -> Done:
        """Free these rows, and return their results."""
        rows = [self.busy.pop(index) for index in indices]
        on_device = torch.tensor(indices, dtype=torch.long, device=self.batch.row.device)
        return Done(rows, self.batch.log[on_device, : max(row.written for row in rows)].cpu())

    def step(self, source: int, target: int) -> None:
        """READ in each row up to its next WRITE, and WRITE too if that takes fewer than `lookaheads` READs.

        The step attends to `source` and `target` columns, and does not wait for the device.
        """
        batch, state, cache = self.batch, self.batch.state, self.batch.state.cache
        cache.read_end, cache.written_end = source, target - self.queries
        reads = torch.minimum(cache.read[:, None] + self.more_reads, batch.lengths[:, None])
        states = state.model.lookaheads(cache, state.last, reads) if batch.policy.needs_lookahead else None
        futures = Futures(state.view(with_lookahead=False), reads, states)
        count = batch.decider.reads_until_write(futures).minimum(batch.lengths - cache.read)
        cache.read = cache.read + count
        write = count < self.lookaheads
        if states is None:
            state.lookahead = None
            write = write | (cache.read >= batch.lengths)
        else:
            chosen = count.clamp(max=self.lookaheads - 1)
            state.lookahead = states[batch.row, chosen]
            if self.lookaheads > 1:
                cache.keep_lookahead(chosen)
        batch.write(write)

    def tensors(self) -> list[Tensor]:
        """The tensors that a step replaces by new ones; it changes all others in place."""
        batch, state, cache = self.batch, self.batch.state, self.batch.state.cache
        rows = [cache.read, state.last, batch.finished, batch.steps, cache.written, cache.decoded]
        heads = [part for layer in cache.heads for part in (layer.past, layer.now, layer.done)]
        return rows + heads + batch.decider.tensors()

    def set_tensors(self, tensors: list[Tensor]) -> None:
        batch, state, cache = self.batch, self.batch.state, self.batch.state.cache
        cache.read, state.last, batch.finished, batch.steps, cache.written, cache.decoded, *rest = tensors
        for layer in cache.heads:
            layer.past, layer.now, layer.done, *rest = rest
        batch.decider.set_tensors(rest)
