"""Decoding under any policy: KV-cached, in batches. The read/write loop is in loop.py, for GPUs in steady.py."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from whilst.core.console import progress_bar
from whilst.core.errors import UserError
from whilst.core.settings import MAX_POSITIONS, Limits
from whilst.decoding.graphed import COLUMNS, Steady
from whilst.decoding.loop import Loop, Output, to_outputs
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.full import Full

SHRINK = 0.75  # finished rows leave when this share goes on: copying the caches costs, and so do idle rows
HELD = 1 << 19  # tokens that the rows of a GPU have room for, together: 14 GB of the paper's model


def check(model: Translator, policy: Policy) -> None:
    if model.bidirectional and not isinstance(policy, Full):
        raise UserError(f"policy {policy.name}: this model's encoder needs the whole source; use full")


def on_gpu(model: Translator) -> bool:
    return model.target_embedding.weight.device.type == "cuda"


@torch.inference_mode()
def translate_batch(
    model: Translator,
    sources: Sequence[Sequence[int]],
    policy: Policy,
    limits: Limits,
    numbers: Sequence[int] | None = None,
    at_once: bool = True,
    steady: bool | None = None,
) -> list[Output]:
    """Translate sources (each ending with eos) together; `numbers` are their places in the corpus.

    `steady`: see there; by default on a GPU.
    """
    check(model, policy)
    began = time.perf_counter()
    at_once = at_once or model.bidirectional
    width = max(map(len, sources))
    if at_once and (on_gpu(model) if steady is None else steady):
        return Steady(model, policy, len(sources), width, limits).translate(sources, numbers)
    loop = Loop(model, policy, numbers or range(len(sources)), width, limits.of(width))
    loop.begin(sources, limits, at_once)
    outputs = [Output() for _ in sources]
    times: list[float] = []  # of each step
    while True:
        loop.step()
        times.append(1000 * (time.perf_counter() - began))
        going = int((~loop.finished).sum())
        if going <= SHRINK * len(loop.row):
            done = loop.finished.nonzero()[:, 0]
            found = to_outputs(loop.log[done], loop.cache.written[done].tolist(), times)
            for number, output in zip(loop.row[done].tolist(), found, strict=True):
                outputs[number] = output
            if not going:
                return outputs
            loop.select((~loop.finished).nonzero()[:, 0])


@dataclass
class Decoding:
    """Texts under one policy. What a GPU recorded for one serves the next."""

    model: Translator
    policy: Policy
    limits: Limits
    batch: int
    steady: bool | None = None  # by default on a GPU

    def __post_init__(self) -> None:
        check(self.model, self.policy)
        self.kept: Steady | None = None
        if self.steady is None:
            self.steady = on_gpu(self.model)

    def translate(self, sources: Sequence[Sequence[int]], what: str = "translating") -> list[Output]:
        """The order stays."""
        with progress_bar(range(0), what, "sentences", len(sources)) as progress:
            return (self._steadily if self.steady else self._in_batches)(sources, progress.update)

    def _in_batches(self, sources: Sequence[Sequence[int]], note: Callable[[int], object]) -> list[Output]:
        """Of similar length."""
        order = sorted(range(len(sources)), key=lambda n: -len(sources[n]))
        outputs: dict[int, Output] = {}
        for start in range(0, len(order), self.batch):
            chosen = order[start : start + self.batch]
            rows = [sources[n] for n in chosen]
            done = translate_batch(self.model, rows, self.policy, self.limits, chosen, steady=False)
            outputs |= dict(zip(chosen, done, strict=True))
            note(len(chosen))
        return [outputs[n] for n in range(len(sources))]

    def _steadily(self, sources: Sequence[Sequence[int]], note: Callable[[int], object]) -> list[Output]:
        """All of them in the same rows, but for those too long for so many rows."""
        long = [n for n, source in enumerate(sources) if self.batch * self._room(len(source)) > HELD]
        short = sorted(set(range(len(sources))) - set(long))
        outputs: dict[int, Output] = {}
        for chosen in filter(None, (long, short)):
            rows = [sources[n] for n in chosen]
            steady = self._rows_for(max(map(len, rows)))
            outputs |= dict(zip(chosen, steady.translate(rows, chosen, note), strict=True))
        return [outputs[n] for n in range(len(sources))]

    def _rows_for(self, width: int) -> Steady:
        """Room for sources of this width, as many as may be; that for `batch` of them is kept."""
        width = self._rounded(width)
        rows = min(self.batch, max(1, HELD // self._room(width)))
        if rows < self.batch:
            return Steady(self.model, self.policy, rows, width, self.limits)
        if self.kept is None or self.kept.width < width:
            self.kept = None  # its memory is needed
            self.kept = Steady(self.model, self.policy, rows, width, self.limits)
        return self.kept

    def _rounded(self, width: int) -> int:
        """So that the next text fits too, if it can be."""
        rounded = -(-width // COLUMNS) * COLUMNS
        return rounded if self.limits.of(rounded) <= MAX_POSITIONS else width

    def _room(self, width: int) -> int:
        """Tokens of a row."""
        return self._rounded(width) + self.limits.of(self._rounded(width))


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
