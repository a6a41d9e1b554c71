"""One visible loop: batches in, weights out. Killed at any moment it goes on where it was."""

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from whilst.core.config import flat, to_table
from whilst.core.console import log, notes, progress_bar
from whilst.core.distributed import Processes, device_name, start_compile_workers, versions
from whilst.core.errors import UserError
from whilst.core.files import write_json
from whilst.core.policy_spec import distinct
from whilst.core.settings import Recipe, Role, names_with
from whilst.core.signals import handle_signals
from whilst.core.stage_times import add_stage_time, read_stage_times
from whilst.data.batches import prefetch
from whilst.data.dataset import Dataset
from whilst.evaluation.evaluate import check_evaluation, evaluate_run
from whilst.evaluation.measured import measured_already
from whilst.evaluation.report import report
from whilst.evaluation.report_screen import print_table
from whilst.model.checkpoint import copy_run, write_run
from whilst.model.run_folder import AGENT, WEIGHTS, read_recipe
from whilst.training.stages import in_order, make_task, stages
from whilst.training.trainer import Trainer
from whilst.training.validate import Validation

# Settings that a stage does not read: later stages, and the tables of which its own [train] is a copy.
UNUSED = {
    "translate": ("search.", "agent."),
    "search": ("search.train.", "agent."),
    "agent": ("search.train.", "agent.train."),
}


def train_all(
    recipes: Sequence[Recipe], device: torch.device, restart: bool = False, with_text: bool = True
) -> None:
    """Train recipes one after the other, those that others start from first; one that is named twice, once.

    One of several processes ends here.
    """
    try:
        for number, recipe in enumerate(ordered := in_order(list(dict.fromkeys(recipes))), start=1):
            if len(ordered) > 1 and Processes.join(device).first:
                notes.print(f"recipe {number} of {len(ordered)}: {recipe.run} ({', '.join(recipe.stages)})")
            train(recipe, device, restart, with_text)
        processes = Processes.join(device)
        processes.broadcast(True, device)  # all leave together: the first has evaluated last
    finally:
        Processes.leave()
    processes.exit()


def train(recipe: Recipe, device: torch.device, restart: bool = False, with_text: bool = True) -> Path:
    """Do the stages of a recipe, going on where an earlier call was stopped; returns the folder trained last."""
    if "translate" in recipe.stages and recipe.start and Path(recipe.start) == Path(recipe.run):
        raise UserError(f"start: {recipe.start} is the run itself and would be replaced; choose another run")
    dataset = Dataset.open(Path(recipe.data.dataset))
    dataset.require_languages("data.dataset", Path(recipe.run), recipe.data)
    if "evaluate" in recipe.stages:
        check_evaluation(recipe, dataset, device)  # now, not after hours
    if any(stage.train.compile for stage in stages(recipe)):
        start_compile_workers(device)
    folder, first = Path(recipe.run), Processes.join(device).first
    for stage in stages(recipe):
        began, start = time.perf_counter(), Path(stage.start)
        copied = stage.stages == ("agent",) and bool(stage.start) and Path(stage.run).parent != start
        if copied:
            require_no_translator(Path(stage.run).parent, start)
        trainer = Trainer(stage, make_task(stage, dataset, device))
        prepare_folder(trainer, restart)
        folder, done = trainer.folder, trainer.step
        try:
            run(trainer)
        finally:
            if first and trainer.step > done:
                add_stage_time(Path(recipe.run), stage.stages[0], time.perf_counter() - began, resumed=done > 0)
        if copied and first:
            copy_run(start, folder.parent)
    if "evaluate" in recipe.stages and first:
        evaluate(recipe, device, restart, with_text)
    return folder


def require_no_translator(folder: Path, start: Path) -> None:
    """An agent alone brings a copy of its translator with it, which must not replace another one."""
    if any((folder / name).is_file() for name in ("last.safetensors", "summary.json")):
        raise UserError(
            f"run: {folder} was trained itself, and a copy of {start} would replace its model; choose another"
            f" folder with --set run=…, or --set run={start} to have the agent there"
        )


def evaluate(recipe: Recipe, device: torch.device, restart: bool, with_text: bool) -> None:
    """The recipe's policies, each on the model that it is for, but for those measured already; then the report."""
    run, began = Path(recipe.run), time.perf_counter()
    names = [str(policy) for policy in distinct(recipe.evaluate.policies, recipe.evaluate.threshold)]
    found = {} if restart else measured_already(run, names, with_text, recipe.evaluate)
    for name in found:
        notes.print(f"{name}: measured already")
    if left := [name for name in names if name not in found]:
        goes_on = bool(found)
        records = evaluate_run(run, left, None, with_text, [], str(device), recipe.evaluate)
        found |= dict(zip(left, records, strict=True))
        add_stage_time(run, "evaluate", time.perf_counter() - began, goes_on)
    records = [found[name] for name in names]
    taught = read_stage_times(Path(recipe.teacher)) if recipe.teacher else {}
    times = {f"teacher: {stage}": seconds for stage, seconds in taught.items()} | read_stage_times(run)
    written = report(records, run / "report", split=recipe.evaluate.split, times=times)
    print_table(records)
    notes.print(f"{run / 'report'}: {', '.join(path.name for path in written)}")


def prepare_folder(trainer: Trainer, restart: bool) -> None:
    """Begin a run folder, or check that it is the same run and load where it stopped."""
    folder = trainer.folder
    if (folder / "recipe.json").is_file() and not restart:
        if changed := differences(read_recipe(folder), trainer.recipe):
            raise UserError(
                f"{folder}: was trained with other settings ({', '.join(changed)});"
                " choose another folder with --set run=… or begin anew with --restart"
            )
        trainer.task.dataset.require_units("data.dataset", folder)  # it may have been prepared anew
        trainer.resume()
    require_own(folder)
    if not restart:
        require_whole(folder)
    if trainer.processes.first:
        if restart:
            # An agent belongs to the weights that are gone now.
            for name in ("last.safetensors", WEIGHTS, "summary.json", f"{AGENT}/{WEIGHTS}"):
                (folder / name).unlink(missing_ok=True)
            remove(folder, "weights-*.safetensors")
        for pattern in (".*.tmp", ".tmp*"):  # what a killed process was about to write, and safetensors for it
            remove(folder, pattern)
        dataset = trainer.task.dataset
        write_run(folder, trainer.recipe, dataset.source, dataset.target)


def require_own(folder: Path) -> None:
    """A run does not settle among files that are somebody else's."""
    ours = (".", "source.", "target.", "times.", "model.", "last.", "summary.", "history.", "weights-")
    if folder.is_dir() and not (folder / "recipe.json").is_file():
        for path in sorted(folder.iterdir()):
            if path.is_file() and not path.name.startswith(ours):
                raise UserError(f"run: {folder} is no run folder (it has {path.name}); choose another: --set run=…")


def require_whole(folder: Path) -> None:
    """A run that came to its end, and lost a file since, must neither be replaced nor be taken for whole."""
    files = ("recipe.json", "last.safetensors", WEIGHTS)
    gone = [name for name in files if not (folder / name).is_file()]
    if gone and (folder / "summary.json").is_file():
        raise UserError(
            f"{folder}: was trained to its end, but {' and '.join(gone)} is gone; put it back, choose another"
            " folder with --set run=…, or begin anew with --restart"
        )


def remove(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink(missing_ok=True)


def differences(old: Recipe, new: Recipe) -> list[str]:
    """Settings that a stage reads, and that may not differ when it is resumed."""
    before, after = (flat(to_table(recipe)) for recipe in (old, new))
    free, unused = names_with(Role.RESUME), UNUSED[new.stages[0]]
    return [
        name for name in after if before[name] != after[name] and name not in free and not name.startswith(unused)
    ]


def run(trainer: Trainer) -> None:
    """The loop."""
    settings, device = trainer.settings, trainer.device
    if settings.compile and device.type == "cuda":
        trainer.compile()
    writer = open_tensorboard(trainer) if settings.tensorboard and trainer.processes.first else None
    if trainer.processes.first:
        notes.print(
            f"{trainer.folder}: {trainer.parameters / 1e6:.1f} M parameters, {device},"
            f" {trainer.batches.layout} batches of {settings.batch_tokens} tokens,"
            f" {settings.steps} steps" + (f", going on from step {trainer.step}" if trainer.step else "")
        )
    updates = prefetch(trainer.work())
    losses, tokens, since = torch.zeros((), device=device), 0, time.perf_counter()
    busy = 0.0  # seconds spent on updates, validation left out
    trained_tokens = 0
    began = trainer.step
    stop, halted = trainer.step >= settings.steps or out_of_patience(trainer), False
    with (
        interrupts() as interrupted,
        progress_bar(range(0), "training", "steps", settings.steps, trainer.step) as progress,
    ):
        while not stop:
            micros, count, trainer.place = next(updates)
            losses += trainer.update(micros, count)
            tokens += count
            progress.update()
            step = trainer.step
            is_logged = step % settings.log_every == 0 or step == settings.steps
            if is_logged:
                loss = trainer.processes.sum(losses).item() / tokens
                seconds = time.perf_counter() - since
                busy, trained_tokens = busy + seconds, trained_tokens + tokens
                rate = tokens / seconds
                progress.set_postfix_str(f"loss {loss:.3f}, {rate:,.0f} tokens/s")
                row = {"step": step, "train/loss": loss, "train/lr": trainer.adam.param_groups[0]["lr"]}
                if trainer.processes.first:
                    trainer.note(row, writer)
                    if writer is not None:
                        writer.add_scalar("train/tokens_per_second", rate, step)
                losses, tokens, since = torch.zeros((), device=device), 0, time.perf_counter()
            if step % settings.validate_every == 0 or step == settings.steps:
                paused = time.perf_counter()
                if trainer.processes.first:
                    trainer.keep_for_average()
                    show(trainer, trainer.consider(trainer.averaged), writer)
                stop = trainer.processes.broadcast(out_of_patience(trainer), device)
                since += time.perf_counter() - paused
            # All must stop at the same step; a GPU asks the others only where it is waited for anyway.
            if is_logged or trainer.processes.count == 1 or device.type == "cpu":
                halted = trainer.processes.any_rank(interrupted(), device)
            stop = stop or step >= settings.steps or halted
            if stop or step % settings.save_every == 0:
                paused = time.perf_counter()
                trainer.save()
                since += time.perf_counter() - paused
    if halted:
        raise UserError(f"{trainer.folder}: stopped after step {trainer.step}; the same command goes on from there")
    if tokens:  # since the last row of the history: patience does not wait for the next
        busy, trained_tokens = busy + time.perf_counter() - since, trained_tokens + tokens
    if trainer.processes.first:
        finish(trainer, writer, trained_tokens, busy, trainer.step > began)
    trainer.processes.broadcast(True, device)  # nobody goes on before the weights are final


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a request to stop after this step; a second one stops at once."""
    asked = False

    def ask(number: int, frame: object) -> None:  # noqa: ARG001
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    with handle_signals((signal.SIGINT,), ask):
        yield lambda: asked


def out_of_patience(trainer: Trainer) -> bool:
    patience = trainer.settings.patience
    return bool(patience) and trainer.step - trainer.best_step >= patience * trainer.settings.validate_every


def show(trainer: Trainer, found: Validation, writer: Any) -> None:
    figures = {f"valid/{name}": value for name, value in found.figures.items()}
    trainer.note({"step": trainer.step, "valid/loss": found.loss, "valid/bleu": found.bleu} | figures, writer)
    bleu = "" if found.bleu is None else f"  BLEU {found.bleu:.2f}"
    bleu += "".join(f"  {name} {value:.3f}" for name, value in found.figures.items())
    best = "  best so far" if trainer.best is found and not math.isnan(found.loss) else ""
    log(f"step {trainer.step:>6}  loss {found.loss:.4f}{bleu}{best}")
    if math.isnan(found.loss):
        notes.print("the loss is not a number: training has diverged; begin anew with a smaller train.lr")


def finish(trainer: Trainer, writer: Any, tokens: int, seconds: float, went_on: bool) -> None:
    """Try the average of the last weights, and sum up."""
    # Once: who has begun with these weights must find the very same file when nothing is left to do.
    is_new = went_on or not (trainer.folder / "summary.json").is_file()  # it may have been killed just before
    found = trainer.try_average() if is_new else None
    if found is not None:
        notes.print(f"average of {len(trainer.waiting)} checkpoints:")
        show(trainer, found, writer)
        trainer.save()
    if writer is not None:
        writer.close()
    rate = tokens / seconds if seconds else 0.0
    best = trainer.best.to_table() if trainer.best else None
    if is_new:
        summary = {
            "steps": trainer.step,
            "best_step": trainer.best_step,
            "best": best,
            "parameters": trainer.parameters,
            "dataset_sha256": trainer.task.dataset.checksum,
            "device": device_name(trainer.device),
            "versions": versions(),
            # Of the part of the run since it was last started, validation left out.
            "seconds": round(seconds, 1),
            "target_tokens_per_second": round(rate),
        }
        write_json(trainer.folder / "summary.json", summary)
    notes.print(
        f"{trainer.folder}: {trainer.step} steps"
        + (f", {seconds:.0f} s, {rate:,.0f} target tokens/s" if went_on else ", nothing left to do")
    )


def open_tensorboard(trainer: Trainer) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(trainer.folder / "tensorboard"), purge_step=trainer.step + 1)
