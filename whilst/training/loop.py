"""The training loop: optimiser, validation, checkpoints. It does not know the model: a task computes the loss.

All random numbers of an update are derived from (seed, update, micro-batch). So a resumed run ends with the same
weights as one that was never interrupted, and several processes train as one process would.
"""

import contextlib
import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whilst.core.console import notes, progress_bar
from whilst.core.cuda_graphs import CapturedGraph
from whilst.core.distributed import Processes, computes_bf16, device_name
from whilst.core.errors import StoppedError, UserError
from whilst.core.files import write_json, write_lines
from whilst.core.provenance import versions
from whilst.core.settings import Recipe
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.data.batches import Batch, Batches, Ints, prefetch
from whilst.data.dataset import Dataset
from whilst.model.checkpoint import load_state, save_state, save_tensors
from whilst.model.run_folder import WEIGHTS, weights_checksum
from whilst.training import optim
from whilst.training.loggers import Logger, open_logger
from whilst.training.tasks import Task, Validation

Position = tuple[int, int]  # epoch and micro-batch
MicroBatches = list[tuple[int, Batch]]  # with their index in the update
STALE = 5.0  # seconds since the last logged figures after which a CPU shows new ones in the progress bar


class Loop:
    """Trains the module of a task: `run` is the loop, `update` one step of the optimiser."""

    def __init__(self, recipe: Recipe, task: Task) -> None:
        self.task, self.settings, self.device = task, recipe.train, task.device
        self.processes = Processes.join(self.device)
        if self.settings.accumulate % self.processes.count:
            section = {"translate": "", "search": "search.", "agent": "agent."}[recipe.stages[0]]
            raise UserError(
                f"{section}train.accumulate: {self.settings.accumulate} micro-batches cannot be shared evenly by"
                f" {self.processes.count} processes; choose a multiple"
            )
        self.batches = self.make_batches()
        self.state = RunState(recipe, task.module, task.dataset)
        self.use_graphs = False  # whether forward and backward pass are one CUDA graph
        self.graphs: dict[torch.Size, CapturedGraph] = {}  # by the shape of the source

    def make_batches(self) -> Batches:
        """Batches of the training text in the layout of the recipe."""
        layout, task, on_gpu = self.settings.layout, self.task, self.device.type == "cuda"
        if layout == "auto":
            layout = task.gpu_layout if on_gpu else "padded"
        if layout == "packed" and not (on_gpu and task.gpu_layout == "packed"):
            raise UserError('train.layout: "packed" is for translators on a GPU; write "auto"')
        if layout == "boxed" and task.gpu_layout != "boxed":
            raise UserError('train.layout: "boxed" is for model.cross = "monotone"; write "auto"')
        return Batches(task.dataset.split("train"), self.settings.batch_tokens, self.settings.seed, layout)

    def run(self) -> None:
        """Train up to the last step, until patience runs out, or until a signal such as Ctrl-C."""
        self.start()
        settings, state = self.settings, self.state
        first_step, stop_signal = state.step, 0
        stop = state.step >= settings.steps or state.out_of_patience
        if not stop:
            self.task.begin()
        updates, meter = prefetch(self.updates()), Meter(self.device)
        with (
            open_logger(state.recipe, state.step) if self.processes.first else nullcontext() as state.logger,
            stop_signals(self.processes.count == 1) as received,
            progress_bar(range(0), "training", "steps", settings.steps, state.step) as progress,
        ):
            while not stop:
                micro_batches, tokens, state.position = next(updates)
                meter.add(self.update(micro_batches, tokens), tokens)
                is_last = state.step == settings.steps
                is_logged = is_last or state.step % settings.log_every == 0
                if is_logged:
                    progress.figures = self.log_loss(meter)
                elif self.device.type == "cpu" and self.processes.count == 1 and meter.seconds > STALE:
                    progress.figures = meter.figures()
                progress.update()
                if is_last or state.step % settings.validate_every == 0:
                    with meter.paused():
                        stop = self.validate()
                # All processes must stop at the same step. On a GPU, they exchange signals only at steps that are
                # logged, where the host waits for the GPU anyway.
                if is_logged or self.processes.count == 1 or self.device.type == "cpu":
                    stop_signal = self.processes.largest(received(), self.device)
                stop = stop or stop_signal > 0 or state.step >= settings.steps
                if self.processes.first and (stop or state.step % settings.save_every == 0):
                    with meter.paused():
                        state.save()
        if stop_signal:
            message = f"{state.folder}: stopped after step {state.step}; the same command continues"
            raise StoppedError(stop_signal, message)
        if self.processes.first:
            self.finish(meter, state.step > first_step)
        self.processes.broadcast(True, self.device)  # no process continues before the weights are final

    def update(self, micro_batches: MicroBatches, tokens: int) -> Tensor:
        """One update, over `tokens` target tokens of all processes. Returns this process's summed loss."""
        state = self.state
        state.model.train()
        self.task.set_step(state.step)
        total = torch.zeros((), device=self.device)
        # Divided by the tokens of all processes, the summed gradients are the mean over tokens. (The agent makes
        # about two decisions per token, but Adam does not depend on the scale of the gradients.)
        scale = torch.full((), 1 / tokens, device=self.device)
        for index, batch in micro_batches:
            total += self.add_gradient(index, batch.to(self.device), scale)
        self.processes.sum_gradients(state.model)
        if state.optimiser.clip:
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), state.optimiser.clip)
        state.step += 1
        for group in state.adam.param_groups:
            group["lr"] = optim.learning_rate(state.optimiser, state.step, self.settings.steps)
        state.adam.step()
        state.adam.zero_grad(set_to_none=not self.use_graphs)
        # The decay is small at first, so that the initial random weights soon vanish from the average.
        decay = min(self.settings.ema, (1 + state.step) / (10 + state.step)) if self.settings.ema else 0.0
        optim.update_average(state.averaged, state.model, decay)
        return total

    def add_gradient(self, index: int, batch: Batch, scale: Tensor) -> Tensor:
        """Add the gradient of `scale` times the loss of a micro-batch. Returns its summed loss."""
        drawn = self.draw(index, batch)
        if not self.use_graphs:
            return self.backward(batch, drawn, scale)
        shape = batch.source.shape
        if shape not in self.graphs:
            self.graphs[shape] = self.capture(batch, drawn, scale)
            drawn = self.draw(index, batch)  # capturing consumed random numbers
        return self.graphs[shape]((*batch.tensors(), drawn, scale))

    def draw(self, index: int, batch: Batch) -> Tensor:
        """Draw the random values of a micro-batch, such as its reads. Also seeds the dropout of its passes."""
        entropy = np.random.SeedSequence([self.settings.seed, self.state.step, index]).generate_state(1, np.uint64)
        seed = int(entropy[0] >> 1)
        torch.manual_seed(seed)
        with self.autocast():
            return self.task.draw(batch, torch.Generator().manual_seed(seed))

    def backward(self, batch: Batch, drawn: Tensor, scale: Tensor) -> Tensor:
        with self.autocast():
            loss = self.task.loss(batch, drawn)
        if self.use_graphs:
            optim.add_gradients(self.state.model, loss * scale)
        else:
            (loss * scale).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def capture(self, batch: Batch, drawn: Tensor, scale: Tensor) -> CapturedGraph:
        """Capture `backward` as a CUDA graph, which adds to the gradient tensors that exist now."""
        for parameter in self.state.model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        gradients = [parameter.grad for parameter in self.state.model.parameters() if parameter.grad is not None]
        before = [gradient.clone() for gradient in gradients]  # gradients of earlier micro-batches

        def work(*tensors: Tensor) -> Tensor:
            return self.backward(batch.with_tensors(tensors[:-2]), *tensors[-2:])

        graph = CapturedGraph(work, (*batch.tensors(), drawn, scale), next(iter(self.graphs.values()), None))
        torch._foreach_copy_(gradients, before)
        return graph

    def autocast(self) -> AbstractContextManager[object]:
        enabled = (self.device.type == "cuda" or self.task.bf16_on_cpu) and computes_bf16(self.device)
        return torch.autocast(self.device.type, torch.bfloat16) if enabled else nullcontext()

    def updates(self) -> Iterator[tuple[MicroBatches, int, Position]]:
        """For each update: this process's micro-batches, the target tokens of all processes, the next position."""
        upcoming = self.batches.iterate(*self.state.position)
        while True:
            group: list[Ints] = []
            for _ in range(self.settings.accumulate):
                epoch, number, rows = next(upcoming)
                group.append(rows)
            tokens = sum(int(self.batches.split.target.lengths[rows].sum()) for rows in group)
            indices = range(self.processes.rank, len(group), self.processes.count)
            yield [(index, self.make_batch(group[index])) for index in indices], tokens, (epoch, number + 1)

    def make_batch(self, rows: Ints) -> Batch:
        batch = self.batches.make(rows)
        return batch.pin() if self.device.type == "cuda" else batch

    # Before, between and after the updates.

    def compile(self) -> None:
        torch.set_float32_matmul_precision("high")
        self.task.compile()
        self.use_graphs = self.batches.layout != "padded"

    def start(self) -> None:
        state, settings = self.state, self.settings
        if settings.compile and self.device.type == "cuda":
            self.compile()
        if not self.processes.first:
            return
        notes.print(
            f"{state.folder}: {state.parameters / 1e6:.1f} M parameters, {self.device},"
            f" {self.batches.layout} batches of {settings.batch_tokens} tokens,"
            f" {settings.steps} steps" + (f", continuing from step {state.step}" if state.step else "")
        )

    def log_loss(self, meter: "Meter") -> str:
        """Log loss, learning rate and speed. Returns loss and speed as text for the progress bar."""
        loss, tokens_per_second = meter.take(self.processes)
        if self.processes.first:
            figures = {"train/loss": loss, "train/lr": self.state.adam.param_groups[0]["lr"]}
            self.state.log(figures, {"train/tokens_per_second": tokens_per_second})
        return describe_loss(loss, tokens_per_second)

    def validate(self) -> bool:
        """Validate the averaged weights; save them if they are the best so far. Returns whether to stop early."""
        if self.processes.first:
            state = self.state
            validation = self.task.validate(state.averaged)
            is_best = state.keep_if_best(validation)
            figures = {f"valid/{name}": value for name, value in validation.figures.items()}
            state.log({"valid/loss": validation.loss, "valid/bleu": validation.bleu} | figures)
            notes.print(describe(state.step, validation, is_best))
            if math.isnan(validation.loss):
                notes.print("the loss is not a number: training has diverged; start again with a smaller train.lr")
        return self.processes.broadcast(self.state.out_of_patience, self.device)

    def finish(self, meter: "Meter", trained: bool) -> None:
        """Write the summary and print the speed. A call that trained nothing keeps the summary that exists."""
        state = self.state
        seconds, rate = meter.total()
        if trained or not state.summary.is_file():  # no summary: the run was killed before it was written
            state.write_summary(self.device, seconds, rate)
        notes.print(
            f"{state.folder}: {state.step} steps"
            + (f", {seconds:.0f} s, {rate:,.0f} target tokens/s" if trained else ", nothing left to do")
        )


class RunState:
    """The state of training that is saved and resumed: weights, optimiser, best validation, history."""

    def __init__(self, recipe: Recipe, model: nn.Module, dataset: Dataset) -> None:
        self.recipe, self.settings, self.folder = recipe, recipe.train, Path(recipe.run)
        self.model, self.dataset = model, dataset
        self.averaged = optim.copy_module(model)
        self.optimiser = optim.preset_of(self.settings)
        self.adam = optim.adam(model, self.optimiser)
        # Checksum of the weights that the run began with: a stage does not resume after they have changed.
        self.start = None
        if recipe.start:
            with contextlib.suppress(UserError):  # the weights may have been deleted since
                self.start = weights_checksum(Path(recipe.start))
        self.step = 0  # updates done
        self.position: Position = (0, 0)  # of the next micro-batch
        self.best: Validation | None = None
        self.best_step = 0
        self.history: list[dict[str, Any]] = []
        self.logger: Logger | None = None  # in the first process, while it trains
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
        metadata = {
            "step": self.step,
            "start": self.start,
            "dataset": self.dataset.checksum,
            "place": self.position,
            "best": asdict(self.best) if self.best else None,
            "best_step": self.best_step,
            "history": self.history,
        }
        parts = {"model": self.model, "averaged": self.averaged}
        save_state(self.folder / "last.safetensors", parts, self.adam, metadata)

    def resume(self) -> None:
        """Load last.safetensors if it exists."""
        if not (self.folder / "last.safetensors").is_file():
            return
        parts = {"model": self.model, "averaged": self.averaged}
        metadata = load_state(self.folder / "last.safetensors", parts, self.adam)
        advice = "train it again with --restart, or keep the old run and choose another folder"
        if metadata["start"] != self.start:
            raise UserError(
                f"{self.folder}: the weights of {self.recipe.start} have changed since this run began; {advice}"
            )
        if metadata.get("dataset", self.dataset.checksum) != self.dataset.checksum:
            raise UserError(
                f"{self.folder}: the text in {self.dataset.path} has changed since this run began; {advice}"
            )
        self.step, self.position = metadata["step"], tuple(metadata["place"])
        self.best = Validation(**metadata["best"]) if metadata["best"] else None
        self.best_step, self.history = metadata["best_step"], metadata["history"]

    # The best weights.

    def keep_if_best(self, validation: Validation) -> bool:
        """Save the averaged weights if their validation is the best so far. Returns whether it is."""
        if not validation.better(self.best, self.settings.keep):
            return False
        self.best, self.best_step = validation, self.step
        metadata = {"step": self.step, "validation": asdict(validation), "start": self.start}
        save_tensors(self.folder / WEIGHTS, dict(self.averaged.state_dict()), metadata)
        return True

    # Figures.

    def log(self, figures: dict[str, Any], speed: dict[str, float] | None = None) -> None:
        """Add a row to the history, which is also part of the checkpoint. Only the logger receives the speed."""
        self.history.append({"step": self.step} | figures)
        write_lines(self.folder / "history.jsonl", map(json.dumps, self.history))
        if self.logger is not None:
            logged = figures | (speed or {})
            self.logger(self.step, {name: value for name, value in logged.items() if value is not None})

    def write_summary(self, device: torch.device, seconds: float, tokens_per_second: float) -> None:
        """`seconds` and `tokens_per_second` are measured since the run was last started, without validation."""
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


class Meter:
    """The loss since it was last logged, and the speed of training without validation and saving."""

    def __init__(self, device: torch.device) -> None:
        self.loss, self.tokens = torch.zeros((), device=device), 0
        self.since = time.perf_counter()
        self.all_tokens, self.all_seconds = 0, 0.0

    def add(self, loss: Tensor, tokens: int) -> None:
        self.loss += loss
        self.tokens += tokens

    @contextmanager
    def paused(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.since += time.perf_counter() - began

    @property
    def seconds(self) -> float:
        """Seconds since `take` was last called, without pauses."""
        return time.perf_counter() - self.since

    def figures(self) -> str:
        """Mean loss per token and tokens per second since `take` was last called, if there is only one process."""
        return describe_loss(self.loss.item() / self.tokens, self.tokens / self.seconds)

    def take(self, processes: Processes) -> tuple[float, float]:
        """Mean loss per token and tokens per second since the last call."""
        loss, tokens = processes.sum(self.loss).item() / self.tokens, self.tokens  # waits for the GPU
        seconds = self.seconds
        self.all_tokens, self.all_seconds = self.all_tokens + tokens, self.all_seconds + seconds
        self.loss, self.tokens, self.since = torch.zeros_like(self.loss), 0, time.perf_counter()
        return loss, tokens / seconds

    def total(self) -> tuple[float, float]:
        """Seconds of all updates, and tokens per second."""
        seconds, tokens = self.all_seconds, self.all_tokens
        if self.tokens:
            seconds, tokens = seconds + self.seconds, tokens + self.tokens
        return seconds, tokens / seconds if seconds else 0.0


def describe_loss(loss: float, tokens_per_second: float) -> str:
    return f"training loss {loss:.3f}, {tokens_per_second:,.0f} tokens/s"


def describe(step: int, validation: Validation, is_best: bool) -> str:
    """One line for a validation."""
    bleu = "" if validation.bleu is None else f"  BLEU {validation.bleu:.2f}"
    figures = "".join(f"  {name} {value:.3f}" for name, value in validation.figures.items())
    best = "  best so far" if is_best and not math.isnan(validation.loss) else ""
    return f"step {step:>6}  validation loss {validation.loss:.4f}{bleu}{figures}{best}"


@contextmanager
def stop_signals(alone: bool) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the number of the stop signal that was received, or 0 if there was none.

    A second Ctrl-C raises KeyboardInterrupt if this process is `alone`. Under torchrun it does not: torchrun sends
    signals again that all processes have received.
    """
    received = 0

    def handler(number: int, frame: object) -> None:  # noqa: ARG001
        nonlocal received
        if received and alone and number == signal.SIGINT:
            raise KeyboardInterrupt
        received = number

    with handle_signals(STOP_SIGNALS, handler):
        yield lambda: received
