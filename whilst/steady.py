"""The read/write loop for GPUs. A host that asks after every action leaves a GPU idle.

Here a step is steady: it does the same work whatever the rows do, so it can be recorded once as a CUDA graph, and
only now and then someone looks who is finished. Then sentences that wait take their rows: everything of a row is
changed in place, so recordings stay good.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.capture import Repeated
from whilst.loop import Loop, Output, pad
from whilst.model import Translator
from whilst.policy import Policy, Prospects
from whilst.settings import Limits
from whilst.vocab import BOS

LOOKS = 4  # a row may READ so often but once before it WRITEs, in one step
CHECK = 4  # steps between two looks at who is finished
REFILL = 0.25  # share of the rows that must be free before sentences that wait take them: the others wait meanwhile
COLUMNS = 32  # a recorded step attends to so many tokens, or twice as many, or four times, …


def columns(tokens: int, most: int) -> int:
    """How many columns to attend to, to see so many. Few different ones: a recording takes a while."""
    found = COLUMNS
    while found < tokens:
        found *= 2
    return min(found, most)


@dataclass
class Row:
    """A sentence in a row."""

    number: int  # its place among the sources
    length: int
    began: float
    written: int = 0  # as of the last look
    finished: bool = False


class Steady:
    """Translates texts of any size in a fixed number of rows, under one policy."""

    def __init__(self, model: Translator, policy: Policy, rows: int, width: int, limits: Limits) -> None:
        """Sources may have `width` units."""
        self.looks = 1 if model.settings.cross == "monotone" else LOOKS
        self.queries = self.looks if policy.looks_ahead else 1  # of the decoder, in a row
        self.loop = Loop(model, policy, [0] * rows, width, limits.of(width), self.queries)
        self.limits, self.width = limits, width
        self.further = torch.arange(self.looks, device=self.loop.row.device)
        self.recorded: dict[tuple[int, int], Repeated] = {}  # by the columns of source and target
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
        self.busy, self.times = {}, []
        self.loop.steps.zero_()
        while waiting or self.busy:
            enough = min(max(1, int(REFILL * rows)), len(waiting))
            if waiting and rows - len(self.busy) >= enough:
                free = [place for place in range(rows) if place not in self.busy]
                taken = [waiting.popleft() for _ in range(min(len(free), len(waiting)))]
                self.fill(free[: len(taken)], taken, sources, numbers or range(len(sources)))
            self.go_on()
            over = [place for place, row in self.busy.items() if row.finished]
            if len(over) == len(self.busy) or (waiting and rows - len(self.busy) + len(over) >= enough):
                outputs |= self.take(over)
                note(len(over))
        return [outputs[n] for n in range(len(sources))]

    def fill(
        self, places: list[int], taken: list[int], sources: Sequence[Sequence[int]], numbers: Sequence[int]
    ) -> None:
        """Begin these sentences in these rows. The first READ is given, as ever."""
        loop, device = self.loop, self.loop.row.device
        began = time.perf_counter()
        self.busy |= {p: Row(n, len(sources[n]), began) for p, n in zip(places, taken, strict=True)}
        rows = torch.tensor(places, device=device)
        tokens, lengths = pad([sources[n] for n in taken], device)
        loop.source[rows, : tokens.shape[1]] = tokens
        loop.lengths[rows] = lengths
        loop.most[rows] = torch.tensor([self.limits.of(len(sources[n])) for n in taken], device=device)
        loop.read[rows], loop.last[rows], loop.finished[rows] = 1, BOS, False
        loop.decider.put(rows, loop.policy.start(torch.tensor([numbers[n] for n in taken], device=device)))
        part = loop.cache.part(rows, 0, 0)
        part.restart()
        loop.model.read(part, tokens, lengths)
        loop.cache.put(part)

    def go_on(self) -> None:
        """Some steps, and a look at what came of them: the only time that the host waits."""
        going = [row for row in self.busy.values() if not row.finished]
        cache = self.loop.cache
        source = columns(max(row.length for row in going), self.width)
        written = max(row.written for row in going) + CHECK - 1  # before the last of the steps, at most
        target = columns(written + self.queries, cache.decoder[0].shape[3])
        for _ in range(CHECK):
            cache.read_end, cache.written_end = source, target - self.queries
            if (source, target) not in self.recorded:
                self.recorded[source, target] = Repeated(self.step, self.moving, self.move)
            self.recorded[source, target]()
        found = torch.stack([self.loop.finished.long(), cache.written]).tolist()
        self.times += [time.perf_counter()] * CHECK
        for place, row in self.busy.items():
            row.finished, row.written = bool(found[0][place]), found[1][place]

    def take(self, places: list[int]) -> dict[int, Output]:
        """The outputs of these rows, which are free then."""
        rows = [self.busy.pop(place) for place in places]
        at = torch.tensor(places, device=self.loop.row.device)
        outputs = self.loop.outputs(at, [row.written for row in rows], self.times)
        for row, output in zip(rows, outputs, strict=True):
            output.times = [1000 * (at - row.began) for at in output.times]
        return {row.number: output for row, output in zip(rows, outputs, strict=True)}

    def step(self) -> None:
        """A few READs, and a WRITE of those who come to one: nothing is asked of the device."""
        loop = self.loop
        reads = torch.minimum(loop.read[:, None] + self.further, loop.lengths[:, None])
        ahead = loop.model.looks(loop.cache, loop.last, reads) if loop.policy.looks_ahead else None
        count = loop.decider.reads(Prospects(loop.view(), reads, ahead)).minimum(loop.lengths - loop.read)
        loop.read = loop.read + count
        if ahead is None:
            state = loop.look()
        else:
            chosen = count.clamp(max=self.looks - 1)
            state = ahead[loop.row, chosen]
            if self.looks > 1:
                loop.cache.settle(chosen)
        loop.write(state, count < self.looks)

    def moving(self) -> list[Tensor]:
        """What a step replaces; the rest it changes in place."""
        loop, cache = self.loop, self.loop.cache
        mine = [loop.read, loop.last, loop.finished, loop.steps, cache.written, cache.decoded]
        return mine + [layer.past for layer in cache.heads] + loop.decider.remembered()

    def move(self, tensors: list[Tensor]) -> None:
        loop, cache = self.loop, self.loop.cache
        loop.read, loop.last, loop.finished, loop.steps, cache.written, cache.decoded, *rest = tensors
        for layer in cache.heads:
            layer.past = rest.pop(0)
        loop.decider.remember(rest)
