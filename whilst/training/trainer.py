"""The state of a training run and the one update that moves it on.

All randomness of an update follows from (seed, update, micro-batch), never from what ran before. So a resumed
run ends with the same weights as one that was never stopped, and two processes do what one would.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from whilst.core.cuda_graphs import CapturedGraph
from whilst.core.distributed import Processes
from whilst.core.errors import UserError
from whilst.core.files import sha256, writing_text
from whilst.core.settings import Recipe
from whilst.data.batches import Batch, Batches
from whilst.data.buckets import Ints
from whilst.model.checkpoint import load_state, load_tensors, save_state, save_tensors
from whilst.training import optim
from whilst.training.tasks import Task
from whilst.training.validate import Validation


class Trainer:
    """The state of a run: weights, their average, Adam's moments, and how far the data has been used."""

    def __init__(self, recipe: Recipe, task: Task) -> None:
        self.recipe, self.task, self.device = recipe, task, task.device
        self.folder = Path(recipe.run)
        self.settings = recipe.train
        self.processes = Processes.join(self.device)
        if self.settings.accumulate % self.processes.count:
            section = {"translate": "", "search": "search.", "agent": "agent."}[recipe.stages[0]]
            raise UserError(
                f"{section}train.accumulate: {self.settings.accumulate} micro-batches cannot be shared evenly by"
                f" {self.processes.count} processes; choose a multiple"
            )
        self.model = task.module
        self.averaged = optim.duplicate(self.model)
        self.preset = optim.choose(self.settings)
        self.adam = optim.adam(self.model, self.preset)
        pack = self.settings.layout == "packed" or (self.settings.layout == "auto" and self.device.type == "cuda")
        if self.settings.layout == "packed" and (self.device.type != "cuda" or not task.packs):
            raise UserError('train.layout: "packed" is for translators on a GPU; write "auto"')
        if self.settings.layout == "boxed" and not task.boxes:
            raise UserError('train.layout: "boxed" is for model.cross = "monotone"; write "auto"')
        box = self.settings.layout == "boxed" or (pack and task.boxes)
        train = task.dataset.split("train")
        self.batches = Batches(train, self.settings.batch_tokens, self.settings.seed, pack and task.packs, box)
        self.capture = False  # whether to record the update as a CUDA graph
        self.captured: dict[torch.Size, CapturedGraph] = {}  # one for each shape of source
        # Which weights the run began with: a stage does not go on when the one before it has changed.
        start = Path(recipe.start) / "model.safetensors"
        self.start = sha256(start) if recipe.start and start.is_file() else None
        self.step = 0  # updates done
        self.place = (0, 0)  # epoch and micro-batch that come next
        self.best: Validation | None = None
        self.best_step = 0
        self.history: list[dict[str, Any]] = []
        self.waiting: list[int] = []  # steps whose weights wait for their average

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    # One update.

    def compile(self) -> None:
        torch.set_float32_matmul_precision("high")
        self.task.compile()
        self.capture = self.batches.pack or self.batches.boxed

    def draw(self, batch: Batch, micro: int) -> torch.Tensor:
        """What is random about one micro-batch; it and its dropout are seeded by its place in the run."""
        entropy = np.random.SeedSequence([self.settings.seed, self.step, micro]).generate_state(1, np.uint64)
        seed = int(entropy[0] >> 1)
        torch.manual_seed(seed)
        with self.precision():
            return self.task.draw(batch, torch.Generator().manual_seed(seed))

    def precision(self) -> AbstractContextManager[object]:
        return torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext()

    def accumulate(self, batch: Batch, drawn: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Add the gradient of `scale` times the summed loss; returns that loss."""
        with self.precision():
            loss = self.task.loss(batch, drawn)
        if self.capture:
            optim.add_gradients(self.model, loss * scale)
        else:
            (loss * scale).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def record(self, batch: Batch, drawn: torch.Tensor, scale: torch.Tensor) -> CapturedGraph:
        """`accumulate` as a CUDA graph. It adds to the very gradients that are there when it is recorded."""
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        kept = [gradient.clone() for gradient in gradients]  # of micro-batches before this one

        def work(*tensors: torch.Tensor) -> torch.Tensor:
            return self.accumulate(batch.with_tensors(tensors[:-2]), *tensors[-2:])

        captured = CapturedGraph(work, (*batch.tensors(), drawn, scale), next(iter(self.captured.values()), None))
        torch._foreach_copy_(gradients, kept)
        return captured

    def update(self, micros: list[tuple[int, Batch]], tokens: int) -> torch.Tensor:
        """One step of Adam on these micro-batches; returns this process's summed loss."""
        self.model.train()
        self.task.at(self.step)
        total = torch.zeros((), device=self.device)
        # Dividing by the tokens of all processes makes the summed gradient their mean (the agent decides about
        # twice for each token; Adam does not mind).
        scale = torch.full((), 1 / tokens, device=self.device)
        for micro, batch in micros:
            batch = batch.to(self.device)
            drawn = self.draw(batch, micro)
            shape = batch.source.shape
            if self.capture and shape not in self.captured:
                self.captured[shape] = self.record(batch, drawn, scale)
                drawn = self.draw(batch, micro)  # recording used up random numbers
            if self.capture:
                total += self.captured[shape]((*batch.tensors(), drawn, scale))
            else:
                total += self.accumulate(batch, drawn, scale)
        self.processes.sum_gradients(self.model)
        if self.preset.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.preset.clip)
        self.step += 1
        for group in self.adam.param_groups:
            group["lr"] = optim.learning_rate(self.preset, self.step, self.settings.steps)
        self.adam.step()
        self.adam.zero_grad(set_to_none=not self.capture)
        # A young average forgets faster, or it would remember the first random weights for long.
        decay = min(self.settings.ema, (1 + self.step) / (10 + self.step)) if self.settings.ema else 0.0
        optim.average_into(self.averaged, self.model, decay)
        return total

    def work(self) -> Iterator[tuple[list[tuple[int, Batch]], int, tuple[int, int]]]:
        """For each update: this process's micro-batches, the tokens of all, and what comes after."""
        upcoming = self.batches.iterate(*self.place)
        while True:
            group: list[Ints] = []
            for _ in range(self.settings.accumulate):
                epoch, index, chosen = next(upcoming)
                group.append(chosen)
            tokens = sum(int(self.batches.split.target.lengths[chosen].sum()) for chosen in group)
            mine = [
                (micro, self.make(chosen))
                for micro, chosen in enumerate(group)
                if micro % self.processes.count == self.processes.rank
            ]
            yield mine, tokens, (epoch, index + 1)

    def make(self, chosen: Ints) -> Batch:
        batch = self.batches.make(chosen)
        return batch.pin() if self.device.type == "cuda" else batch

    # Around the updates.

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "start": self.start,
            "dataset": self.task.dataset.checksum,
            "place": self.place,
            "best": self.best.to_table() if self.best else None,
            "best_step": self.best_step,
            "waiting": self.waiting,
            "history": self.history,
        }

    def save(self) -> None:
        if self.processes.first:
            parts = {"model": self.model, "averaged": self.averaged}
            save_state(self.folder / "last.safetensors", parts, self.adam, self.state())
            for path in self.folder.glob("weights-*.safetensors"):
                if path not in map(self._weights, self.waiting):
                    path.unlink()  # only now: the state before this one needed it

    def resume(self) -> None:
        """Go on from last.safetensors if it is there."""
        if not (self.folder / "last.safetensors").is_file():
            return
        parts = {"model": self.model, "averaged": self.averaged}
        about = load_state(self.folder / "last.safetensors", parts, self.adam)
        if about["start"] != self.start:
            raise UserError(
                f"{self.folder}: began with other weights of {self.recipe.start}, which have changed since;"
                " train it anew with --restart, or keep the old run and choose another folder"
            )
        if about.get("dataset", self.task.dataset.checksum) != self.task.dataset.checksum:
            raise UserError(
                f"{self.folder}: began with another text in {self.task.dataset.path}, which was prepared anew;"
                " train it anew with --restart, or keep the old run and choose another folder"
            )
        self.step, self.place = about["step"], tuple(about["place"])
        self.best = Validation(**about["best"]) if about["best"] else None
        self.best_step, self.waiting, self.history = about["best_step"], about["waiting"], about["history"]

    def note(self, row: dict[str, Any], writer: Any) -> None:
        """Add a row to the history, in memory (it travels with the checkpoint), on disk and in TensorBoard."""
        self.history.append(row)
        with writing_text(self.folder / "history.jsonl") as file:
            file.writelines(json.dumps(item) + "\n" for item in self.history)
        if writer is not None:
            for name, value in row.items():
                if name != "step" and value is not None:
                    writer.add_scalar(name, value, row["step"])

    def consider(self, weights: nn.Module) -> Validation:
        """Validate weights and keep them if they are the best so far."""
        found = self.task.validate(weights)
        if found.better(self.best, self.settings.keep):
            self.best, self.best_step = found, self.step
            about = {"step": self.step, "validation": found.to_table(), "start": self.start}
            save_tensors(self.folder / "model.safetensors", dict(weights.state_dict()), about)
        return found

    def keep_for_average(self) -> None:
        if not self.settings.average:
            return
        save_tensors(self._weights(self.step), dict(self.model.state_dict()), {"step": self.step})
        self.waiting = [*self.waiting, self.step][-self.settings.average :]

    def try_average(self) -> Validation | None:
        """Validate the mean of the last validated weights."""
        if not self.waiting:
            return None
        mean: dict[str, torch.Tensor] = {}
        for step in self.waiting:
            for name, tensor in load_tensors(self._weights(step), self.device)[0].items():
                mean[name] = mean.get(name, 0) + tensor / len(self.waiting)
        weights = optim.duplicate(self.averaged)
        weights.load_state_dict(mean)
        return self.consider(weights)

    def _weights(self, step: int) -> Path:
        return self.folder / f"weights-{step}.safetensors"
