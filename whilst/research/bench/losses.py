"""Does the fast way of training learn what the simple one does? Their losses on the same batches, side by side."""

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table

from whilst.core.console import console, progress_bar
from whilst.core.distributed import device_name, pick_device, provenance
from whilst.core.files import write_json
from whilst.core.settings import Recipe
from whilst.data.batches import Batch, pad_batch
from whilst.data.buckets import Ints
from whilst.data.dataset import Dataset, Split
from whilst.evaluation.chart import Curve, Panel, chart
from whilst.research.bench.train_decode import Stage, load, task_of
from whilst.training.loop import Loop
from whilst.training.stages import make_task, stages
from whilst.training.tasks import AgentTask, Task

ROWS = 10  # of the table
SEARCHED = 1000  # sentences whose reads are found both ways


@dataclass(frozen=True)
class Ways:
    """Losses of a target token, update by update."""

    simple: list[float]
    fast: list[float]
    alike: float | None = None  # of the reads that an agent learns, the share that both find


class Plain(Loop):
    """The same sentences and reads as its parent, but padded, in 32 bits, one operation after the other."""

    def make_batch(self, rows: Ints) -> Batch:
        return pad_batch(self.batches.split, rows)

    def autocast(self) -> AbstractContextManager[object]:
        return nullcontext()


def losses(loop: Loop, steps: int, what: str) -> Iterator[float]:
    """Of a target token, update by update."""
    work = loop.updates()
    for _ in progress_bar(range(steps), what, "steps"):
        micros, tokens, _ = next(work)
        yield float(loop.update(micros, tokens)) / tokens


def stage_of(every: Recipe, stage: Stage) -> Recipe:
    """The recipe of one stage, that after its translator's."""
    names: tuple[Stage, ...] = (stage,) if every.start or stage == "translate" else ("translate", stage)
    return stages(dataclasses.replace(every, stages=names))[-1]


def begin(recipe: Recipe, dataset: Dataset, device: torch.device) -> Task:
    """A translator has random weights, what comes after it those that it has learnt: without them there is nothing
    to search for. The text's own targets in either case."""
    if recipe.stages == ("translate",):
        return task_of(recipe, dataset, device)
    task = make_task(dataclasses.replace(recipe, teacher=""), dataset, device)
    if isinstance(task, AgentTask):
        task.recipe = dataclasses.replace(recipe, start="")  # reads are found now, not looked up
    return task


def alike(simple: AgentTask, fast: AgentTask) -> float:
    """How many of the reads of the first sentences both find."""
    split = simple.dataset.split("train")
    count = min(SEARCHED, len(split.source))
    found = simple.find(Split(split.source.head(count), split.target.head(count))).reads
    return float((found == fast.labels["train"].reads[:, : found.shape[1]]).float().mean())


def compare(recipe: Recipe, steps: int, device: torch.device) -> Ways:
    """Nothing is dropped: which values are is the one thing that the two draw differently."""
    model, agent = dataclasses.replace(recipe.model, dropout=0.0), dataclasses.replace(recipe.agent, dropout=0.0)
    recipe = dataclasses.replace(recipe, model=model, agent=agent)
    dataset = Dataset.open(Path(recipe.data.dataset))
    before = torch.get_float32_matmul_precision()
    loop = Loop(recipe, begin(recipe, dataset, device))
    if recipe.train.compile and device.type == "cuda":
        loop.compile()
    fast = list(losses(loop, steps, "fast"))
    torch.set_float32_matmul_precision("highest")
    plain, share = Plain(recipe, begin(recipe, dataset, device)), None
    if isinstance(plain.task, AgentTask) and isinstance(loop.task, AgentTask):
        plain.task.labels = loop.task.labels  # what is learnt is compared here, what is found below
        share = alike(plain.task, loop.task)
    simple = list(losses(plain, steps, "simple"))
    torch.set_float32_matmul_precision(before)
    return Ways(simple, fast, share)


def losses_bench(
    recipe: Path | None, stage: Stage, steps: int, overrides: list[str], name: str, out: Path | None
) -> None:
    """Train both, print and, if asked to, write and draw it."""
    device = pick_device(name)
    with tempfile.TemporaryDirectory() as temporary:
        chosen = stage_of(load(recipe, overrides, Path(temporary)), stage)
        ways = compare(chosen, steps, device)
    simple, fast = ways.simple, ways.fast
    table = Table("step", "simple", "fast", "difference", title=f"loss of a target token on {device_name(device)}")
    for column in table.columns:
        column.justify = "right"
    for step in sorted({max(1, steps * row // ROWS) for row in range(ROWS + 1)}):
        one, other = simple[step - 1], fast[step - 1]
        table.add_row(str(step), f"{one:.4f}", f"{other:.4f}", f"{other - one:+.4f}")
    console.print(table)
    if ways.alike is not None:
        console.print(f"reads that the fast way finds as the simple one does: {ways.alike:.2%}")
    if out is not None:
        about = {"bench": "losses", "stage": stage, "steps": steps, "tokens in a batch": chosen.train.batch_tokens}
        write_json(out.with_name(f"{out.name}.json"), about | dataclasses.asdict(ways) | provenance(device))
        numbers = range(1, steps + 1)
        curves = [Curve("simple: padded, 32 bits", numbers, simple), Curve("fast: as it trains", numbers, fast)]
        apart = [Curve("", numbers, [other - one for one, other in zip(simple, fast, strict=True)])]
        panels = [Panel("loss of a target token", "step", "", curves), Panel("fast - simple", "step", "", apart)]
        chart(panels, out)
