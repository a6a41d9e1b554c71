"""Does the fast way of training learn what the simple one does? Their losses on the same batches, side by side."""

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from rich.table import Table

from whilst.bench import load, task_of
from whilst.chart import Curve, Panel, chart
from whilst.console import console, track
from whilst.data import Batch, Ints, padded
from whilst.dataset import Dataset
from whilst.files import write_json
from whilst.processes import circumstances, describe, pick_device
from whilst.settings import Recipe
from whilst.stages import stages
from whilst.trainer import Trainer

ROWS = 10  # of the table


class Plain(Trainer):
    """The same sentences and reads as its parent, but padded, in 32 bits, one operation after the other."""

    def make(self, chosen: Ints) -> Batch:
        return padded(self.batches.split, chosen)

    def precision(self) -> AbstractContextManager[object]:
        return nullcontext()


def losses(trainer: Trainer, steps: int, what: str) -> Iterator[float]:
    """Of a target token, update by update."""
    work = trainer.work()
    for _ in track(range(steps), what, "steps"):
        micros, tokens, _ = next(work)
        yield float(trainer.update(micros, tokens)) / tokens


def compare(recipe: Recipe, steps: int, device: torch.device) -> tuple[list[float], list[float]]:
    """Simple and fast. Nothing is dropped: which values are is the one thing that the two draw differently."""
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, dropout=0.0))
    dataset = Dataset.open(Path(recipe.data.dataset))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    simple = list(losses(Plain(recipe, task_of(recipe, dataset, device)), steps, "simple"))
    fast = Trainer(recipe, task_of(recipe, dataset, device))
    if recipe.train.compile and device.type == "cuda":
        fast.compile()
    found = simple, list(losses(fast, steps, "fast"))
    torch.set_float32_matmul_precision(before)
    return found


def losses_bench(recipe: Path | None, steps: int, overrides: list[str], name: str, out: Path | None) -> None:
    """Train both, print and, if asked to, write and draw it."""
    device = pick_device(name)
    with tempfile.TemporaryDirectory() as temporary:
        every = load(recipe, overrides, Path(temporary))
        chosen = stages(dataclasses.replace(every, stages=("translate",)))[0]
        simple, fast = compare(chosen, steps, device)
    table = Table("step", "simple", "fast", "difference", title=f"loss of a target token on {describe(device)}")
    for column in table.columns:
        column.justify = "right"
    for step in sorted({max(1, steps * row // ROWS) for row in range(ROWS + 1)}):
        one, other = simple[step - 1], fast[step - 1]
        table.add_row(str(step), f"{one:.4f}", f"{other:.4f}", f"{other - one:+.4f}")
    console.print(table)
    if out is not None:
        about = {"bench": "losses", "steps": steps, "tokens in a batch": chosen.train.batch_tokens}
        found = {"simple": simple, "fast": fast}
        write_json(out.with_name(f"{out.name}.json"), about | found | circumstances(device))
        numbers = range(1, steps + 1)
        curves = [Curve("simple: padded, 32 bits", numbers, simple), Curve("fast: as it trains", numbers, fast)]
        apart = [Curve("", numbers, [other - one for one, other in zip(simple, fast, strict=True)])]
        panels = [Panel("loss of a target token", "step", "", curves), Panel("fast - simple", "step", "", apart)]
        chart(panels, out)
