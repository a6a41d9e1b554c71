"""Train recipes: each stage in its folder, resumed where an earlier call stopped, then the evaluation.

    RUN/               the translator
    RUN/search/        the translator fine-tuned on the reads that it finds by search
    RUN/search/agent/  the agent that learns these reads; it is loaded with RUN/search

The agent of an existing translator (`start`) is RUN/agent; RUN gets a copy of that translator.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from whilst.core.config import flatten, read_recipe, to_table
from whilst.core.console import notes
from whilst.core.distributed import Processes
from whilst.core.errors import UserError
from whilst.core.files import locked, read_json, write_json
from whilst.core.policy_spec import distinct
from whilst.core.settings import Recipe, Role, names_with
from whilst.data.dataset import Dataset
from whilst.evaluation.evaluate import check_evaluation, evaluate_run, find_evaluated
from whilst.evaluation.report import print_table, report
from whilst.model.checkpoint import copy_run, write_run
from whilst.model.run_folder import AGENT, SEARCH, WEIGHTS
from whilst.training.estimate import announce
from whilst.training.loop import Loop
from whilst.training.tasks import make_task, require_sizes

TIMES = "times.json"  # seconds of each stage, in the folder of a run

# Prefixes of settings that a stage does not read: those of later stages, and the table copied to its [train].
UNUSED = {
    "translate": ("search.", "agent."),
    "search": ("search.train.", "agent."),
    "agent": ("search.train.", "agent.train."),
}


def stages(recipe: Recipe) -> list[Recipe]:
    """The recipe of each stage that trains a model, in order, with its own run, start, objective and [train]."""
    base = recipe.run if "translate" in recipe.stages else recipe.start
    tuned = f"{recipe.run}/{SEARCH}" if "search" in recipe.stages else base
    with_agent = tuned if {"translate", "search"} & set(recipe.stages) else recipe.run
    recipes = []
    for name in recipe.stages:
        if name == "evaluate":
            continue
        stage = replace(recipe, stages=(name,))
        if name == "search":
            train, objective = recipe.search.train, recipe.search.objective
            stage = replace(stage, run=tuned, start=base, objective=objective, train=train)
        elif name == "agent":
            train, objective = recipe.agent.train, recipe.search.objective
            stage = replace(stage, run=f"{with_agent}/{AGENT}", start=tuned, objective=objective, train=train)
        recipes.append(stage)
    return recipes


def needs(recipes: Sequence[Recipe]) -> list[list[Recipe]]:
    """For each recipe, the other recipes whose runs it evaluates, starts from or learns from."""
    makers: dict[str, Recipe] = {}
    for recipe in recipes:
        for stage in stages(recipe):
            if makers.setdefault(str(Path(stage.run)), recipe) is not recipe:
                raise UserError(f"run: two recipes train {stage.run}; give each a folder of its own")
            makers.setdefault(str(Path(recipe.run)), recipe)  # another recipe may only evaluate this run
    result = []
    for recipe in recipes:
        origins = recipe.run, recipe.start, recipe.teacher, recipe.agent.labeller
        needed = [makers.get(str(Path(run)), recipe) for run in origins]
        require_sizes(recipe, needed[1])  # against the recipe of `start`, before that is trained
        result.append([other for other in needed if other is not recipe])
    return result


def in_order(recipes: Sequence[Recipe]) -> list[Recipe]:
    """Sort recipes so that each comes after the recipes that it needs (see `needs`)."""
    needed = needs(recipes)
    ordered: list[Recipe] = []
    while len(ordered) < len(recipes):
        waiting = [pair for pair in zip(recipes, needed, strict=True) if all(pair[0] is not r for r in ordered)]
        ready = (recipe for recipe, others in waiting if all(other in ordered for other in others))
        if (following := next(ready, None)) is None:
            names = " and ".join(recipe.run for recipe, _ in waiting)
            raise UserError(f"start, teacher: {names} each need the run of another of these recipes first")
        ordered.append(following)
    return ordered


def train_all(
    recipes: Sequence[Recipe], device: torch.device, restart: bool = False, with_text: bool = True
) -> None:
    """Train each recipe once, after the recipes that it needs. Ends the process if it is one of several."""
    try:
        for number, recipe in enumerate(ordered := in_order(list(dict.fromkeys(recipes))), start=1):
            if len(ordered) > 1 and Processes.join(device).first:
                notes.print(f"recipe {number} of {len(ordered)}: {recipe.run} ({', '.join(recipe.stages)})")
            train(recipe, device, restart, with_text)
        processes = Processes.join(device)
        processes.broadcast(True, device)  # all wait until the first process has evaluated
    finally:
        Processes.leave()
    processes.exit()


def train(recipe: Recipe, device: torch.device, restart: bool = False, with_text: bool = True) -> Path:
    """Train the stages of a recipe, each resumed where an earlier call stopped. Returns the last stage's folder."""
    if "translate" in recipe.stages and recipe.start and Path(recipe.start) == Path(recipe.run):
        raise UserError(f"start: {recipe.start} is the run itself and would be replaced; choose another run")
    dataset = Dataset.open(Path(recipe.data.dataset))
    dataset.require_languages("data.dataset", Path(recipe.run), recipe.data)
    recipe = replace(recipe, data=dataset.cleaning_settings(recipe.data))  # live text is cleaned in the same way
    if "evaluate" in recipe.stages:
        check_evaluation(recipe, dataset, device)  # before hours of training
    folder, processes = Path(recipe.run), Processes.join(device)
    require_run_folder(folder)
    with locked(folder) if processes.first else nullcontext() as owner:
        if processes.broadcast(owner is not None, device):
            if not processes.first:
                raise SystemExit(UserError.code)
            raise UserError(f"{folder}: {owner} is training it; wait, or choose another folder: --set run=…")
        to_train = stages(recipe)
        begun = not restart and any((Path(stage.run) / "last.safetensors").is_file() for stage in to_train)
        if to_train and not begun and device.type == "cpu" and processes.count == 1:
            announce(recipe, to_train, dataset, device)
        for stage in to_train:
            folder = train_stage(stage, dataset, device, restart, Path(recipe.run))
        if "evaluate" in recipe.stages and processes.first:
            evaluate(recipe, device, restart, with_text)
    return folder


def train_stage(stage: Recipe, dataset: Dataset, device: torch.device, restart: bool, run: Path) -> Path:
    """Train one stage; its duration is recorded in the folder `run`."""
    began, start, folder = time.perf_counter(), Path(stage.start), Path(stage.run)
    # An agent whose translator lies elsewhere gets a copy of it.
    needs_copy = stage.stages == ("agent",) and bool(stage.start) and folder.parent != start
    if needs_copy:
        require_no_translator(folder.parent, start)
    loop = Loop(stage, make_task(stage, dataset, device))
    prepare_folder(loop, restart)
    first_step, is_first = loop.state.step, loop.processes.first
    try:
        loop.run()
    finally:
        if is_first and loop.state.step > first_step:
            add_stage_time(run, stage.stages[0], time.perf_counter() - began, resumed=first_step > 0)
    if needs_copy and is_first:
        copy_run(start, folder.parent, stage.data.dataset)
    return folder


def require_no_translator(folder: Path, start: Path) -> None:
    """Raise UserError if a copy of an agent's translator would replace a model that was trained in `folder`."""
    if any((folder / name).is_file() for name in ("last.safetensors", "summary.json")):
        raise UserError(
            f"run: {folder} has a trained model, which a copy of {start} would replace; choose another folder"
            f" with --set run=…, or put the agent beside its translator with --set run={start}"
        )


def read_stage_times(run: Path) -> dict[str, float]:
    """Seconds by stage, in the order in which the stages ran; empty if none were recorded."""
    times = read_json(run / TIMES) if (run / TIMES).is_file() else {}
    return {str(name): float(seconds) for name, seconds in times.items()} if isinstance(times, dict) else {}


def add_stage_time(run: Path, stage: str, seconds: float, resumed: bool) -> None:
    """Record the duration of a stage. The durations of a resumed stage are added up."""
    times = read_stage_times(run)
    times[stage] = round(seconds + (times.get(stage, 0.0) if resumed else 0.0), 1)
    write_json(run / TIMES, times)


def evaluate(recipe: Recipe, device: torch.device, restart: bool, with_text: bool) -> None:
    """Evaluate the recipe's policies that have no record yet, and write the report."""
    run, began = Path(recipe.run), time.perf_counter()
    names = [str(policy) for policy in distinct(recipe.evaluate.policies, recipe.evaluate.threshold)]
    evaluated = {} if restart else find_evaluated(run, names, with_text, recipe.evaluate)
    for name in evaluated:
        notes.print(f"{name}: evaluated already")
    if left := [name for name in names if name not in evaluated]:
        resumed = bool(evaluated)
        records = evaluate_run(run, left, None, with_text, [], str(device), recipe.evaluate)
        evaluated |= dict(zip(left, records, strict=True))
        add_stage_time(run, "evaluate", time.perf_counter() - began, resumed)
    records = [evaluated[name] for name in names]
    teacher = read_stage_times(Path(recipe.teacher)) if recipe.teacher else {}
    times = {f"teacher: {stage}": seconds for stage, seconds in teacher.items()} | read_stage_times(run)
    written = report(records, run / "report", split=recipe.evaluate.split, times=times)
    print_table(records)
    notes.print(f"{run / 'report'}: {', '.join(path.name for path in written)}")


def prepare_folder(loop: Loop, restart: bool) -> None:
    """Create a run folder; or check that it has a run with the same settings, and load its last checkpoint."""
    state = loop.state
    folder = state.folder
    if (folder / "recipe.json").is_file() and not restart:
        if changed := differences(read_recipe(folder), state.recipe):
            raise UserError(
                f"{folder}: was trained with other settings ({', '.join(changed)});"
                " choose another folder with --set run=… or start again with --restart"
            )
        state.dataset.require_units("data.dataset", folder)  # the dataset may have been prepared again
        state.resume()
    require_run_folder(folder)
    if not restart:
        require_complete(folder)
    if loop.processes.first:
        patterns = [".*.tmp", ".tmp*"]  # unfinished files of a killed process
        if restart:
            # The agent is deleted too, since it was trained for these weights.
            patterns += ["last.safetensors", WEIGHTS, "summary.json", f"{AGENT}/{WEIGHTS}"]
        for path in [path for pattern in patterns for path in folder.glob(pattern)]:
            path.unlink(missing_ok=True)
        dataset = state.dataset
        write_run(folder, state.recipe, dataset.source, dataset.target)


def require_run_folder(folder: Path) -> None:
    """Raise UserError if the folder has files that no run has written."""
    prefixes = (".", "source.", "target.", "times.", "model.", "last.", "summary.", "history.")
    if folder.is_dir() and not (folder / "recipe.json").is_file():
        for path in sorted(folder.iterdir()):
            if path.is_file() and not path.name.startswith(prefixes):
                raise UserError(
                    f"run: {folder} is not a run folder (it has {path.name}); choose another: --set run=…"
                )


def require_complete(folder: Path) -> None:
    """Raise UserError if files of a finished run are missing, instead of training it again or using it as it is."""
    files = ("recipe.json", "last.safetensors", WEIGHTS)
    missing = [name for name in files if not (folder / name).is_file()]
    if missing and (folder / "summary.json").is_file():
        raise UserError(
            f"{folder}: its training has finished, but {' and '.join(missing)} is missing; put it back, choose"
            " another folder with --set run=…, or start again with --restart"
        )


def differences(old: Recipe, new: Recipe) -> list[str]:
    """Names of the settings that differ but must not change when the stage is resumed."""
    before, after = (flatten(to_table(recipe)) for recipe in (old, new))
    free, unused = names_with(Role.RESUME), UNUSED[new.stages[0]]
    return [
        name for name in after if before[name] != after[name] and name not in free and not name.startswith(unused)
    ]
