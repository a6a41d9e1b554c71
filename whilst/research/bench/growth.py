"""Does a token cost more the later it comes? The time of reading and writing one, against its position."""

import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.table import Table

from whilst.core.console import console, progress_bar
from whilst.core.distributed import device_name, pick_device, provenance
from whilst.core.files import write_json
from whilst.decoding.reference import masked_states
from whilst.evaluation.chart import Curve, Panel, chart
from whilst.evaluation.lines import COLOURS
from whilst.model.transformer import Translator
from whilst.research.bench.train_decode import clock, random_model

POINTS = 20  # positions at which everything is recomputed: each takes long


@dataclass(frozen=True)
class Growth:
    """Milliseconds, each the median of several sentences."""

    positions: list[int]  # from 1
    read: list[float]  # one source token, with caches
    write: list[float]  # one target token, with caches
    recomputed: list[float]  # both, each from nothing: all source and target tokens so far, twice


def measure(model: Translator, length: int, repeats: int) -> Growth:
    """One source token and one target token in turn; which tokens they are does not matter."""
    device = model.target_embedding.weight.device
    token = torch.full((1, 1), 5, device=device)
    one = torch.ones(1, dtype=torch.long, device=device)
    reads: list[list[float]] = [[] for _ in range(length)]
    writes: list[list[float]] = [[] for _ in range(length)]
    places = sorted({max(1, length * i // POINTS) for i in range(POINTS + 1)})
    recomputed: dict[int, list[float]] = {place: [] for place in places}
    with torch.inference_mode():
        for sentence in progress_bar(range(repeats + 1), "decoding", "sentences"):
            kept = sentence > 0  # the first one warms up
            cache = model.start(1, length, length)
            for place in range(length):
                began = clock(device)
                model.read(cache, token, one)
                read = clock(device)
                model.write(cache, token[0], one * (place + 1))
                if kept:
                    reads[place].append(1000 * (read - began))
                    writes[place].append(1000 * (clock(device) - read))
            for position, times in recomputed.items():
                began = clock(device)
                for _ in ("read", "write"):
                    states = masked_states(model, [5] * position, [5] * (position - 1), range(1, position + 1))[1]
                    model.logits(states)
                if kept:
                    times.append(1000 * (clock(device) - began))
    median = statistics.median
    positions = list(recomputed)
    return Growth(
        positions,
        [median(reads[position - 1]) for position in positions],
        [median(writes[position - 1]) for position in positions],
        [median(times) for times in recomputed.values()],
    )


def draw(growth: Growth, title: str, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    cached = [read + write for read, write in zip(growth.read, growth.write, strict=True)]
    lines = (("recomputed", growth.recomputed, COLOURS[1]), ("cached", cached, COLOURS[0]))
    curves = [Curve(name, growth.positions, values, colour) for name, values, colour in lines]
    position = "position in the sentence (source and target tokens)"
    chart([Panel(title, position, "ms for a READ and a WRITE", curves, from_zero=True)], stem)


def growth_bench(
    recipe: Path | None, length: int, repeats: int, overrides: list[str], name: str, out: Path | None
) -> None:
    """Measure, print and, if asked to, write and draw it."""
    device = pick_device(name)
    _, model = random_model(recipe, overrides, device)
    growth = measure(model, length, repeats)
    title = f"{model.parameter_count() / 1e6:.0f} M parameters, one sentence, {device_name(device)}"
    table = Table("position", "read", "write", "both", "recomputed", "recomputed / cached", title=f"ms: {title}")
    for column in table.columns:
        column.justify = "right"
    columns = (growth.positions, growth.read, growth.write, growth.recomputed)
    for position, read, write, recomputed in zip(*columns, strict=True):
        both = read + write
        cells = (f"{value:.2f}" for value in (read, write, both, recomputed))
        table.add_row(str(position), *cells, f"{recomputed / both:.1f}")
    console.print(table)
    if out is not None:
        about = {"bench": "growth", "parameters": model.parameter_count(), "sentences": repeats}
        write_json(out.with_name(f"{out.name}.json"), about | asdict(growth) | provenance(device))
        draw(growth, title, out)
