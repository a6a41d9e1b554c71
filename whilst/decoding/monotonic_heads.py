"""Statistics of monotone heads: where each one stopped while a text was translated.

A token is written when its last head has stopped, so a single head that always stops late decides the latency.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich import box
from rich.table import Table
from torch import Tensor

from whilst.core.files import write_json
from whilst.data.vocabulary import BOS, EOS
from whilst.decoding.output import Output, pad
from whilst.model.transformer import Translator

FORMAT = 1
FAR = 2.0  # an outlier stops this many source tokens after the mean of the other heads


@dataclass(frozen=True)
class Head:
    layer: int  # from 1
    head: int
    stop: float  # source tokens up to where it stops, on average
    behind: float  # how much more this is than the mean of all other heads at the same target token
    last: float  # share of the target tokens that waited for this head and no other
    forced: float  # share of the target tokens for which it stopped only because the source was finished

    @property
    def is_outlier(self) -> bool:
        return self.behind > FAR


@torch.inference_mode()
def head_stops(
    model: Translator, sources: Sequence[Sequence[int]], outputs: Sequence[Output]
) -> tuple[Tensor, Tensor]:
    """(tokens, layers, heads) where the heads stopped for every token, from 0, and whether by themselves."""
    device = model.target_embedding.weight.device
    source, lengths = pad(sources, device)
    reads, counts = pad([output.reads for output in outputs], device)
    units, _ = pad([[BOS, *output.units, EOS] for output in outputs], device)
    cache = model.start(len(sources), source.shape[1], reads.shape[1])
    model.read(cache, source, lengths)
    stops, done = [], []
    for step in range(reads.shape[1]):
        model.write(cache, units[:, step], reads[:, step].clamp(min=1))  # rows that have ended have no reads
        here = counts > step
        stops.append(torch.stack([layer.now for layer in cache.heads], 1)[here])
        done.append(torch.stack([layer.done for layer in cache.heads], 1)[here])
    return torch.cat(stops), torch.cat(done)


def find_heads(
    model: Translator, sources: Sequence[Sequence[int]], outputs: Sequence[Output], batch: int
) -> list[Head]:
    """Every head, by layer."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    chunks = [order[start : start + batch] for start in range(0, len(order), batch)]
    parts = [head_stops(model, [sources[i] for i in chunk], [outputs[i] for i in chunk]) for chunk in chunks]
    stops, done = (torch.cat(part).double() for part in zip(*parts, strict=True))
    tokens, layers, heads = stops.shape
    flat = stops.view(tokens, -1)
    others = (flat.sum(1, keepdim=True) - flat) / max(1, layers * heads - 1)
    latest = flat == flat.max(1, keepdim=True).values
    alone = latest & (latest.sum(1, keepdim=True) == 1)
    rows = (flat + 1, flat - others, alone.double(), 1 - done.view(tokens, -1))
    figures = zip(*(row.mean(0).tolist() for row in rows), strict=True)
    return [Head(n // heads + 1, n % heads + 1, *map(float, one)) for n, one in enumerate(figures)]


def write_heads(path: Path, heads: Sequence[Head]) -> None:
    write_json(path, {"format": FORMAT, "far": FAR, "heads": [asdict(head) for head in heads]})


def heads_table(heads: Sequence[Head]) -> Table:
    """The heads that stop latest, outliers marked."""
    title = f"{sum(head.is_outlier for head in heads)} of {len(heads)} heads stop more than {FAR:g} tokens late"
    table = Table("layer", "head", "stop", "behind", "last", "forced", box=box.SIMPLE, title=title)
    for head in sorted(heads, key=lambda head: -head.behind)[:8]:
        cells = str(head.layer), str(head.head), f"{head.stop:.2f}", f"{head.behind:+.2f}"
        shares = (f"{100 * share:.0f} %" for share in (head.last, head.forced))
        table.add_row(*cells, *shares, style="bold red" if head.is_outlier else None)
    return table
