"""The read/write loop for GPUs. A host that asks after every action leaves a GPU idle.

Here a step is steady: it does the same work whatever the rows do, so it can be recorded once as a CUDA graph, and
only now and then someone looks who is finished. Then sentences that wait take their rows: everything of a row is
changed in place, so recordings stay good.
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
from whilst.decoding.loop import Loop, Output, pad, to_outputs
from whilst.model.transformer import Translator
from whilst.policy import Policy, Prospects

LOOKS = 4  # a row may READ so often but once before it WRITEs, in one step
CHECK = 4  # steps between two looks at who is finished
REFILL = 0.25  # share of the rows that must be free before sentences that wait take them
COLUMNS = 32  # a recorded step attends to so many tokens, or twice as many, or four times, …


def columns(tokens: int, most: int) -> int:
    """How many columns to attend to, to see so many. Few different ones: a recording takes a while."""
    found = COLUMNS
    while found < tokens:
        found *= 2
    return min(found, most)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """To a device that is at work. An ordinary copy would wait for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@dataclass
class Row:
    """A sentence in a row."""

    number: int  # its place among the sources
    length: int
    began: float
    written: int = 0  # as of the last look
    finished: bool = False


@dataclass(frozen=True)
class Group:
    """Sentences that are encoded and wait for rows."""

    chosen: list[int]  # their places among the sources
    counts: list[int]  # their lengths
    numbers: Tensor  # their places in the corpus
    tokens: Tensor
    lengths: Tensor
    most: Tensor
    encoded: Tensor

    def split(self, count: int) -> tuple["Group", "Group | None"]:
        """The first ones and the others, if there are any."""
        parts = [getattr(self, one.name) for one in fields(self)]
        others = Group(*(part[count:] for part in parts))
        return Group(*(part[:count] for part in parts)), others if others.chosen else None


@dataclass(frozen=True)
class Done:
    """Sentences that are translated."""

    rows: list[Row]
    log: Tensor  # of `Loop`, on the host

    @classmethod
    def none(cls) -> "Done":
        return cls([], torch.zeros(0, 0, 3, dtype=torch.long))

    def outputs(self, times: Sequence[float]) -> dict[int, Output]:
        """Their times count from when their row began."""
        found = to_outputs(self.log, [row.written for row in self.rows], times)
        for row, output in zip(self.rows, found, strict=True):
            output.times = [1000 * (at - row.began) for at in output.times]
        return {row.number: output for row, output in zip(self.rows, found, strict=True)}


class Steady:
    """Translates texts of any size in a fixed number of rows, under one policy."""

    def __init__(self, model: Translator, policy: Policy, rows: int, width: int, limits: Limits) -> None:
        """Sources may have `width` units."""
        self.looks = 1 if model.settings.cross == "monotone" else LOOKS
        self.queries = self.looks if policy.looks_ahead else 1  # of the decoder, in a row
        self.loop = Loop(model, policy, [0] * rows, width, limits.of(width), self.queries)
        self.loop.cache.encoder.clear()  # sources are read as wholes
        self.loop.output = model.wide_output().detach()
        self.limits, self.width = limits, width
        self.further = torch.arange(self.looks, device=self.loop.row.device)
        self.recorded: dict[tuple[int, int], RepeatedStep] = {}  # by the columns of source and target
        self.busy: dict[int, Row] = {}
        self.times: list[float] = []  # of each step

    @torch.inference_mode()
    def translate(
        self,
        sources: Sequence[Sequence[int]],
        numbers: Sequence[int] | None = None,
        note: Callable[[int], object] = lambda _: None,
    ) -> list[Output]:
        """The order stays. `numbers` are their places in the corpus; `note` is told how many more are done."""
        waiting = deque(sorted(range(len(sources)), key=lambda n: -len(sources[n])))  # a long one must not be last
        outputs: dict[int, Output] = {}
        rows = len(self.loop.row)
        enough = max(1, int(REFILL * rows))
        self.busy, self.times = {}, []
        self.loop.steps.zero_()

        def following() -> Group | None:
            chosen = [waiting.popleft() for _ in range(min(rows, len(waiting)))]
            places = chosen if numbers is None else [numbers[n] for n in chosen]
            return self.encode(chosen, [sources[n] for n in chosen], places) if chosen else None

        group, done = following(), Done.none()
        while group or self.busy:
            if group and rows - len(self.busy) >= min(enough, len(group.chosen)):
                first, group = group.split(rows - len(self.busy))
                self.begin(first)
            self.go_on()
            # The device is busy now: time for what only the host does.
            outputs |= done.outputs(self.times)
            note(len(done.rows))
            group = group or following()
            self.look()
            over = [place for place, row in self.busy.items() if row.finished]
            free = rows - len(self.busy) + len(over)
            wanted = len(over) == len(self.busy) or (group and free >= min(enough, len(group.chosen)))
            done = self.take(over) if over and wanted else Done.none()
        outputs |= done.outputs(self.times)
        note(len(done.rows))
        return [outputs[n] for n in range(len(sources))]

    def encode(self, chosen: list[int], sources: list[Sequence[int]], numbers: list[int]) -> Group:
        device, counts = self.loop.row.device, [len(source) for source in sources]
        tokens = sent(pad(sources, torch.device("cpu"))[0], device)
        figures = sent(torch.tensor([numbers, counts, [self.limits.of(count) for count in counts]]), device)
        encoded = self.loop.model.encode_whole(tokens, figures[1])
        return Group(chosen, counts, figures[0], tokens, figures[1], figures[2], encoded)

    def begin(self, group: Group) -> None:
        """In rows that are free. The first READ is given, as ever."""
        loop = self.loop
        free = (place for place in range(len(loop.row)) if place not in self.busy)
        places = list(itertools.islice(free, len(group.chosen)))
        rows = sent(torch.tensor(places), loop.row.device)
        loop.source[rows, : group.tokens.shape[1]] = group.tokens
        loop.lengths[rows], loop.most[rows] = group.lengths, group.most
        for part, value in ((loop.read, 1), (loop.last, BOS), (loop.finished, False)):
            part.index_fill_(0, rows, value)  # an assignment would wait for the device
        loop.decider.put(rows, loop.policy.start(group.numbers))
        cache = loop.cache.part(rows, 0, 0)
        cache.restart()
        loop.model.adopt(cache, group.encoded, group.lengths)
        loop.cache.put(cache)
        began = time.perf_counter()
        for place, number, length in zip(places, group.chosen, group.counts, strict=True):
            self.busy[place] = Row(number, length, began)

    def go_on(self) -> None:
        """Some steps. The host does not wait for them."""
        going = [row for row in self.busy.values() if not row.finished]
        source = columns(max(row.length for row in going), self.width)
        written = max(row.written for row in going) + CHECK - 1  # before the last of the steps, at most
        target = columns(written + self.queries, self.loop.cache.decoder[0].shape[3])
        if (source, target) not in self.recorded:
            step, beside = partial(self.step, source, target), next(iter(self.recorded.values()), None)
            self.recorded[source, target] = RepeatedStep(step, self.moving, self.move, beside)
        for _ in range(CHECK):
            self.recorded[source, target]()

    def look(self) -> None:
        """What came of the steps: here the host waits."""
        finished, written = torch.stack([self.loop.finished.long(), self.loop.cache.written]).tolist()
        self.times += [time.perf_counter()] * CHECK
        for place, row in self.busy.items():
            row.finished, row.written = bool(finished[place]), written[place]

    def take(self, places: list[int]) -> Done:
        """What these rows have come to; they are free then."""
        rows = [self.busy.pop(place) for place in places]
        at = torch.tensor(places, dtype=torch.long, device=self.loop.row.device)
        return Done(rows, self.loop.log[at, : max(row.written for row in rows)].cpu())

    def step(self, source: int, target: int) -> None:
        """A few READs, and a WRITE of those who come to one: nothing is asked of the device.

        So many columns of either side are attended to.
        """
        loop = self.loop
        loop.cache.read_end, loop.cache.written_end = source, target - self.queries
        reads = torch.minimum(loop.read[:, None] + self.further, loop.lengths[:, None])
        ahead = loop.model.looks(loop.cache, loop.last, reads) if loop.policy.looks_ahead else None
        count = loop.decider.reads(Prospects(loop.view(), reads, ahead)).minimum(loop.lengths - loop.read)
        loop.read = loop.read + count
        write = count < self.looks
        if ahead is None:
            state, write = loop.look(), write | (loop.read >= loop.lengths)
        else:
            chosen = count.clamp(max=self.looks - 1)
            state = ahead[loop.row, chosen]
            if self.looks > 1:
                loop.cache.settle(chosen)
        loop.write(state, write)

    def moving(self) -> list[Tensor]:
        """What a step replaces; the rest it changes in place."""
        loop, cache = self.loop, self.loop.cache
        mine = [loop.read, loop.last, loop.finished, loop.steps, cache.written, cache.decoded]
        heads = [part for layer in cache.heads for part in (layer.past, layer.now, layer.done)]
        return mine + heads + loop.decider.remembered()

    def move(self, tensors: list[Tensor]) -> None:
        loop, cache = self.loop, self.loop.cache
        loop.read, loop.last, loop.finished, loop.steps, cache.written, cache.decoded, *rest = tensors
        for layer in cache.heads:
            layer.past, layer.now, layer.done, *rest = rest
        loop.decider.remember(rest)
