"""The read/write loop (Algorithm 2): batched, KV-cached, for any policy. The only one there is.

Rows are independent, so a row that is ready to WRITE may wait until the others are: the words are the same as
one by one. The encoder only looks back, so a source that is known may be encoded in one go (`at_once`): its
states are the same as token by token, and READ only uncovers them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whilst.console import bar
from whilst.errors import UserError
from whilst.model import Translator
from whilst.policy import Policy, View
from whilst.policy.full import Full
from whilst.vocab import BOS, EOS, PAD

SHRINK = 0.75  # finished rows leave when this share goes on: copying the caches costs, and so do idle rows


@dataclass(frozen=True)
class Limits:
    """A translation ends at `ratio` times the source length plus `extra` units if it does not end by itself."""

    ratio: float = 2.0
    extra: int = 20

    def of(self, source_length: int) -> int:
        return max(1, int(self.ratio * source_length) + self.extra)


@dataclass
class Output:
    """One translation in units. The end mark has a read and a time, but no unit."""

    units: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)  # g_i, the source's end mark counted
    times: list[float] = field(default_factory=list)  # milliseconds since the batch began


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


@torch.inference_mode()
def translate_batch(
    model: Translator,
    sources: Sequence[Sequence[int]],
    policy: Policy,
    limits: Limits,
    numbers: Sequence[int] | None = None,
    at_once: bool = True,
) -> list[Output]:
    """Translate sources (each ending with eos) together; `numbers` are their places in the corpus."""
    if model.bidirectional and not isinstance(policy, Full):
        raise UserError(f"policy {policy.name}: this model's encoder needs the whole source; use full")
    began = time.perf_counter()
    at_once = at_once or model.bidirectional
    device = model.target_embedding.weight.device
    outputs = [Output() for _ in sources]
    source, lengths = pad(sources, device)
    most = torch.tensor([limits.of(len(s)) for s in sources], device=device)
    rows = torch.arange(len(sources), device=device)  # whose output each row is
    decider = policy.start(torch.as_tensor(range(len(sources)) if numbers is None else numbers, device=device))
    cache = model.start(len(sources), source.shape[1], int(most.max()))
    if at_once:
        model.read(cache, source, lengths)
        cache.encoder.clear()  # nothing more will be read
    read, last = torch.zeros_like(lengths), torch.full_like(lengths, BOS)
    finished = torch.zeros_like(lengths, dtype=torch.bool)
    reading = ~finished  # the first READ is given: there is nothing to translate before it
    while True:
        if not at_once:
            following = source.gather(1, read.clamp(max=source.shape[1] - 1)[:, None])
            model.read(cache, following, reading.long())
        read = read + reading.long()
        ahead = model.look(cache, last, read) if policy.looks_ahead else None
        view = View(read, cache.written, source, last, cache.encoded, cache.decoded, ahead)
        write = decider.write(view) | (read >= lengths) | finished
        reading = ~write
        if ahead is None:
            if bool(reading.any()):
                continue  # rows that are ready wait for the others: one decoder step for all
            ahead = model.look(cache, last, read)
        write = write & ~finished
        cache.commit(ahead, write)
        last = torch.where(write, likeliest(model.logits(ahead)), last)
        _note(outputs, rows, last, read, write, 1000 * (time.perf_counter() - began))
        finished = finished | (write & ((last == EOS) | (cache.written >= most)))
        going = int((~finished).sum())
        if not going:
            return outputs
        if going <= SHRINK * len(rows):
            kept = (~finished).nonzero()[:, 0]
            rows, last, read, lengths, most, source, finished, reading = (
                t[kept] for t in (rows, last, read, lengths, most, source, finished, reading)
            )
            cache.select(kept)
            decider.select(kept)


def _note(outputs: list[Output], rows: Tensor, last: Tensor, read: Tensor, wrote: Tensor, now: float) -> None:
    """Add one WRITE to the rows that wrote."""
    columns = torch.stack([rows, last, read, wrote.long()]).tolist()
    for row, unit, reads, new in zip(*columns, strict=True):
        if new:
            outputs[row].reads.append(reads)
            outputs[row].times.append(now)
            if unit != EOS:
                outputs[row].units.append(unit)


def translate(
    model: Translator,
    sources: Sequence[Sequence[int]],
    policy: Policy,
    limits: Limits,
    batch: int,
    what: str = "translating",
) -> list[Output]:
    """Translate any number of sources in batches of similar length; the order stays."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    outputs: dict[int, Output] = {}
    with bar(None, what, "sentences", len(sources)) as progress:
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            done = translate_batch(model, [sources[i] for i in chosen], policy, limits, chosen)
            outputs |= dict(zip(chosen, done, strict=True))
            progress.update(len(chosen))
    return [outputs[i] for i in range(len(sources))]
