"""Translate texts under any policy, in batches; on GPUs with CUDA graphs (graphed.py)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from whilst.core.console import progress_bar
from whilst.core.errors import UserError
from whilst.core.settings import MAX_POSITIONS, Limits
from whilst.data.writer import GuidedWriter
from whilst.decoding.graphed import COLUMNS, Graphed
from whilst.decoding.output import Output, pad, to_outputs
from whilst.decoding.state import Lockstep
from whilst.model.prepacked import prepacked_copy
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.fixed import Full

SHRINK = 0.75  # drop finished rows when at most this share is unfinished: copying caches costs time too
MAX_TOKENS = 1 << 19  # capacity of all rows on a GPU together: 14 GB with the paper's model


def check(model: Translator, policy: Policy) -> None:
    if model.bidirectional and not isinstance(policy, Full):
        raise UserError(f"policy {policy.name}: this model's encoder needs the whole source; use full")


@torch.inference_mode()
def translate_batch(
    model: Translator,
    sources: Sequence[Sequence[int]],
    policy: Policy,
    limits: Limits,
    sentences: Sequence[int] | None = None,
    targets: Sequence[Sequence[int]] | None = None,
    writers: Sequence[GuidedWriter] = (),
) -> list[Output]:
    """Translate sources (each ending with eos) together; `sentences` are their indices in the corpus.

    `targets`: tokens to WRITE instead of the most likely ones, at the reads that the policy chooses for them.
    `writers`: one for each sentence if tokens may be banned, else none.
    """
    check(model, policy)
    began = time.perf_counter()
    max_targets = list(map(len, targets)) if targets else [limits.of(len(source)) for source in sources]
    cache = model.start(len(sources), max(map(len, sources)), max(max_targets))
    batch = Lockstep(model, cache, policy, sentences or range(len(sources)))
    batch.begin(sources, max_targets)
    batch.writers = list(writers)
    if targets:
        batch.targets = F.pad(pad(targets, batch.row.device)[0], (0, 1))  # a column for finished rows
    outputs = [Output() for _ in sources]
    times: list[float] = []  # of each step
    while True:
        batch.step()
        times.append(1000 * (time.perf_counter() - began))
        unfinished = int((~batch.finished).sum())
        if unfinished <= SHRINK * len(batch.row):
            done = batch.finished.nonzero()[:, 0]
            new = to_outputs(batch.log[done], batch.state.cache.written[done].tolist(), times)
            for index, output in zip(batch.row[done].tolist(), new, strict=True):
                outputs[index] = output
            if not unfinished:
                return outputs
            batch.select((~batch.finished).nonzero()[:, 0])


def forced_reads(
    model: Translator,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    policy: Policy,
    sentences: Sequence[int] | None = None,
) -> list[list[int]]:
    """The reads at which a policy would WRITE the tokens of given targets."""
    outputs = translate_batch(model, sources, policy, Limits(), sentences, targets)
    return [output.reads for output in outputs]


@dataclass
class Decoding:
    """Decodes texts under one policy. CUDA graphs are used again for the next text."""

    model: Translator
    policy: Policy
    limits: Limits
    batch: int
    graphed: bool | None = None  # None: on a GPU, if the policy can be recorded and there are no writers
    # One for each sentence if tokens may be banned. Writers run on the host, so the steps cannot be recorded.
    writers: Sequence[GuidedWriter] = ()

    def __post_init__(self) -> None:
        check(self.model, self.policy)
        self.model = prepacked_copy(self.model)
        self.recorded: Graphed | None = None
        if self.graphed is None:
            on_gpu = self.model.device.type == "cuda"
            self.graphed = on_gpu and not self.policy.on_host and not self.writers

    def translate(self, sources: Sequence[Sequence[int]], label: str = "translating") -> list[Output]:
        """Outputs in the order of the sources. `label`: of the progress bar."""
        with progress_bar(range(0), label, "sentences", len(sources)) as progress:
            return (self._with_graphs if self.graphed else self._in_batches)(sources, progress.update)

    def _in_batches(self, sources: Sequence[Sequence[int]], advance: Callable[[int], object]) -> list[Output]:
        """Translate in batches of sources of similar length."""
        order = sorted(range(len(sources)), key=lambda n: -len(sources[n]))
        outputs: dict[int, Output] = {}
        for start in range(0, len(order), self.batch):
            chosen = order[start : start + self.batch]
            rows, writers = [sources[n] for n in chosen], [self.writers[n] for n in chosen if self.writers]
            done = translate_batch(self.model, rows, self.policy, self.limits, chosen, writers=writers)
            outputs |= dict(zip(chosen, done, strict=True))
            advance(len(chosen))
        return [outputs[n] for n in range(len(sources))]

    def _with_graphs(self, sources: Sequence[Sequence[int]], advance: Callable[[int], object]) -> list[Output]:
        """Translate with CUDA graphs in `batch` rows; in fewer rows the sentences that are too long for so many."""
        long = [n for n, source in enumerate(sources) if self.batch * self._capacity(len(source)) > MAX_TOKENS]
        short = sorted(set(range(len(sources))) - set(long))
        outputs: dict[int, Output] = {}
        for chosen in filter(None, (long, short)):
            rows = [sources[n] for n in chosen]
            decoder = self._decoder(max(map(len, rows)))
            outputs |= dict(zip(chosen, decoder.translate(rows, chosen, advance), strict=True))
        return [outputs[n] for n in range(len(sources))]

    def _decoder(self, width: int) -> Graphed:
        """A decoder for sources of up to `width` tokens. If it has `batch` rows, it is kept for the next text."""
        width = self._rounded(width)
        rows = min(self.batch, max(1, MAX_TOKENS // self._capacity(width)))
        if rows < self.batch:
            return Graphed(self.model, self.policy, rows, width, self.limits)
        if self.recorded is None or self.recorded.width < width:
            self.recorded = None  # free its memory first
            self.recorded = Graphed(self.model, self.policy, rows, width, self.limits)
        return self.recorded

    def _rounded(self, width: int) -> int:
        """`width` rounded up, so that the next text is likely to fit too."""
        rounded = -(-width // COLUMNS) * COLUMNS
        return rounded if self.limits.of(rounded) <= MAX_POSITIONS else width

    def _capacity(self, width: int) -> int:
        """Source and target tokens for which a row has memory."""
        return self._rounded(width) + self.limits.of(self._rounded(width))


def translate(
    model: Translator,
    sources: Sequence[Sequence[int]],
    policy: Policy,
    limits: Limits,
    batch: int,
    label: str = "translating",
    writers: Sequence[GuidedWriter] = (),
) -> list[Output]:
    """Translate one text. `label`: of the progress bar; `writers`: see `Decoding`."""
    rows = min(batch, max(1, len(sources)))
    return Decoding(model, policy, limits, rows, writers=writers).translate(sources, label)
