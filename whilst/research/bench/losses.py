"""The losses of fast training (packed, bf16, compiled) and simple training (padded, fp32) on the same batches."""

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from whilst.core.console import console, progress_bar
from whilst.core.distributed import device_name, pick_device, provenance
from whilst.core.files import write_json
from whilst.core.settings import Recipe
from whilst.data.batches import Batch, pad_batch
from whilst.data.buckets import Ints
from whilst.data.dataset import Dataset, Split
from whilst.evaluation.chart import Curve, Panel, chart
from whilst.research.bench.common import load_or_make, print_rows
from whilst.research.bench.training import Stage, task_of
from whilst.training.loop import Loop
from whilst.training.stages import make_task, stages
from whilst.training.tasks import AgentTask, Task

ROWS = 10  # of the table
SEARCHED = 1000  # sentences that are searched both ways


@dataclass(frozen=True)
class Losses:
    """The loss of a target token at every update."""

    simple: list[float]
    fast: list[float]
    alike: float | None = None  # share of an agent's labels that both find


class SimpleLoop(Loop):
    """The same sentences and reads, but padded batches in fp32."""

    def make_batch(self, rows: Ints) -> Batch:
        return pad_batch(self.batches.split, rows)

    def autocast(self) -> AbstractContextManager[object]:
        return nullcontext()


def train(loop: Loop, steps: int, what: str) -> Iterator[float]:
    """The loss of a target token at every update."""
    updates = loop.updates()
    for _ in progress_bar(range(steps), what, "steps"):
        micro_batches, tokens, _ = next(updates)
        yield float(loop.update(micro_batches, tokens)) / tokens


def stage_of(recipe: Recipe, stage: Stage) -> Recipe:
    """The recipe of one stage, which starts with the translator of the run."""
    names: tuple[Stage, ...] = (stage,) if recipe.start or stage == "translate" else ("translate", stage)
    return stages(dataclasses.replace(recipe, stages=names))[-1]


def begin(recipe: Recipe, dataset: Dataset, device: torch.device) -> Task:
    """A translator starts with random weights; search and agent need a trained one, or there is nothing to find."""
    if recipe.stages == ("translate",):
        return task_of(recipe, dataset, device)
    task = make_task(dataclasses.replace(recipe, teacher=""), dataset, device)
    if isinstance(task, AgentTask):
        task.recipe = dataclasses.replace(recipe, start="")  # find the labels now, do not load them
    return task


def equal_labels(simple: AgentTask, fast: AgentTask) -> float:
    """Share of the labels of the first sentences that both find."""
    split = simple.dataset.split("train")
    count = min(SEARCHED, len(split.source))
    found = simple.find(Split(split.source.head(count), split.target.head(count))).reads
    return float((found == fast.labels["train"].reads[:, : found.shape[1]]).float().mean())


def compare(recipe: Recipe, steps: int, device: torch.device) -> Losses:
    """Train both ways, without dropout, whose masks would differ."""
    model, agent = dataclasses.replace(recipe.model, dropout=0.0), dataclasses.replace(recipe.agent, dropout=0.0)
    recipe = dataclasses.replace(recipe, model=model, agent=agent)
    dataset = Dataset.open(Path(recipe.data.dataset))
    before = torch.get_float32_matmul_precision()
    loop = Loop(recipe, begin(recipe, dataset, device))
    if recipe.train.compile and device.type == "cuda":
        loop.compile()
    fast = list(train(loop, steps, "fast"))
    torch.set_float32_matmul_precision("highest")
    plain, share = SimpleLoop(recipe, begin(recipe, dataset, device)), None
    if isinstance(plain.task, AgentTask) and isinstance(loop.task, AgentTask):
        plain.task.labels = loop.task.labels
        share = equal_labels(plain.task, loop.task)
    simple = list(train(plain, steps, "simple"))
    torch.set_float32_matmul_precision(before)
    return Losses(simple, fast, share)


def losses_bench(
    recipe: Path | None, stage: Stage, steps: int, overrides: list[str], name: str, out: Path | None
) -> None:
    device = pick_device(name)
    with tempfile.TemporaryDirectory() as temporary:
        chosen = stage_of(load_or_make(recipe, overrides, Path(temporary)), stage)
        found = compare(chosen, steps, device)
    differences = [fast - simple for simple, fast in zip(found.simple, found.fast, strict=True)]
    shown = sorted({max(1, steps * row // ROWS) for row in range(ROWS + 1)})
    columns = zip(found.simple, found.fast, differences, strict=True)
    cells = [(f"{simple:.4f}", f"{fast:.4f}", f"{difference:+.4f}") for simple, fast, difference in columns]
    rows = [(str(step), *cells[step - 1]) for step in shown]
    title = f"loss of a target token on {device_name(device)}"
    print_rows(title, ("step", "simple", "fast", "difference"), rows)
    if found.alike is not None:
        console.print(f"labels that both find: {found.alike:.2%}")
    if out is not None:
        about = {"bench": "losses", "stage": stage, "steps": steps, "tokens in a batch": chosen.train.batch_tokens}
        write_json(out.with_name(f"{out.name}.json"), about | dataclasses.asdict(found) | provenance(device))
        numbers = range(1, steps + 1)
        simple = Curve("simple: padded, fp32", numbers, found.simple)
        fast = Curve("fast: as it trains", numbers, found.fast)
        left = Panel("loss of a target token", "step", "", [simple, fast])
        chart([left, Panel("fast - simple", "step", "", [Curve("", numbers, differences)])], out)
