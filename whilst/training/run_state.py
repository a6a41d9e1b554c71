"""The state of a training run and its files: weights, moving average, Adam's moments, position, best validation."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from whilst.core.distributed import device_name, versions
from whilst.core.errors import UserError
from whilst.core.files import sha256, write_json, write_lines
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.model.checkpoint import load_state, save_state, save_tensors
from whilst.model.run_folder import WEIGHTS
from whilst.training import optim
from whilst.training.tasks import Validation

Position = tuple[int, int]  # epoch and micro-batch


class RunState:
    def __init__(self, recipe: Recipe, model: nn.Module, dataset: Dataset) -> None:
        self.recipe, self.settings, self.folder = recipe, recipe.train, Path(recipe.run)
        self.model, self.dataset = model, dataset
        self.averaged = optim.copy_module(model)
        self.optimiser = optim.preset_of(self.settings)
        self.adam = optim.adam(model, self.optimiser)
        # Checksum of the weights that the run began with: a stage does not resume when they have changed.
        start = Path(recipe.start) / WEIGHTS
        self.start = sha256(start) if recipe.start and start.is_file() else None
        self.step = 0  # updates done
        self.position: Position = (0, 0)  # of the next micro-batch
        self.best: Validation | None = None
        self.best_step = 0
        self.history: list[dict[str, Any]] = []
        self.tensorboard: Any = None
        self.summary = self.folder / "summary.json"

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def out_of_patience(self) -> bool:
        patience = self.settings.patience
        return bool(patience) and self.step - self.best_step >= patience * self.settings.validate_every

    # Saving and resuming.

    def save(self) -> None:
        about = {
            "step": self.step,
            "start": self.start,
            "dataset": self.dataset.checksum,
            "place": self.position,
            "best": asdict(self.best) if self.best else None,
            "best_step": self.best_step,
            "history": self.history,
        }
        parts = {"model": self.model, "averaged": self.averaged}
        save_state(self.folder / "last.safetensors", parts, self.adam, about)

    def resume(self) -> None:
        """Load last.safetensors if it is there."""
        if not (self.folder / "last.safetensors").is_file():
            return
        parts = {"model": self.model, "averaged": self.averaged}
        about = load_state(self.folder / "last.safetensors", parts, self.adam)
        advice = "train it anew with --restart, or keep the old run and choose another folder"
        if about["start"] != self.start:
            raise UserError(
                f"{self.folder}: the weights of {self.recipe.start} have changed since this run began; {advice}"
            )
        if about.get("dataset", self.dataset.checksum) != self.dataset.checksum:
            raise UserError(
                f"{self.folder}: the text in {self.dataset.path} was prepared anew since this run began; {advice}"
            )
        self.step, self.position = about["step"], tuple(about["place"])
        self.best = Validation(**about["best"]) if about["best"] else None
        self.best_step, self.history = about["best_step"], about["history"]

    # The best weights.

    def keep_if_best(self, found: Validation) -> bool:
        """Save the averaged weights if they are better than all before."""
        if not found.better(self.best, self.settings.keep):
            return False
        self.best, self.best_step = found, self.step
        about = {"step": self.step, "validation": asdict(found), "start": self.start}
        save_tensors(self.folder / WEIGHTS, dict(self.averaged.state_dict()), about)
        return True

    # Figures.

    def log(self, figures: dict[str, Any]) -> None:
        """Add a row to the history, which is part of the checkpoint too, and to TensorBoard."""
        self.history.append({"step": self.step} | figures)
        write_lines(self.folder / "history.jsonl", map(json.dumps, self.history))
        for name, value in figures.items():
            if value is not None:
                self.plot(name, value)

    def plot(self, name: str, value: float) -> None:
        if self.tensorboard is not None:
            self.tensorboard.add_scalar(name, value, self.step)

    def open_tensorboard(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.tensorboard = SummaryWriter(str(self.folder / "tensorboard"), purge_step=self.step + 1)

    def close_tensorboard(self) -> None:
        if self.tensorboard is not None:
            self.tensorboard.close()

    def write_summary(self, device: torch.device, seconds: float, tokens_per_second: float) -> None:
        """Seconds and speed are those since the run was last started, without validation."""
        summary = {
            "steps": self.step,
            "best_step": self.best_step,
            "best": asdict(self.best) if self.best else None,
            "parameters": self.parameters,
            "dataset_sha256": self.dataset.checksum,
            "device": device_name(device),
            "versions": versions(),
            "seconds": round(seconds, 1),
            "target_tokens_per_second": round(tokens_per_second),
        }
        write_json(self.summary, summary)
