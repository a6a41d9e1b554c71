"""Train and evaluate every system of a pair and write the paper's document: `whilst paper --run`.

The plan of a pair is the file plan.txt beside its recipes. It lists the recipes in the order in which they are run;
a run that needs another waits for it. Every run is a `whilst train` process; several run at once. Finished runs are
skipped, stopped runs are resumed.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from whilst.core.config import build, load_recipe, load_sweep, to_table
from whilst.core.console import console, notes
from whilst.core.errors import StoppedError, UserError
from whilst.core.files import read_json, write_json
from whilst.core.policy_spec import distinct
from whilst.core.settings import Recipe
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.data.dataset import MANIFEST
from whilst.data.prepare import prepare
from whilst.data.text import read_lines
from whilst.evaluation.identity import pair_name
from whilst.evaluation.record import pack, read_records, record_path, trace_path
from whilst.evaluation.report import report
from whilst.evaluation.tables import Grid
from whilst.research.paper import write_paper
from whilst.training.train import needs, stages

PLAN = "plan.txt"
RECIPES, RUNS = Path("recipes"), Path("runs")
# For estimates of time on one H200: the file of training benchmarks, the benchmark of each stage, and seconds.
BENCH = Path("bench/h200.json")
MEASURED = {"translate": "train.16k", "search": "search.32k.belief", "agent": "agent.64k"}
STARTING, COMPILING, EVALUATING = 15, 15, 3  # of a process, of a stage, of a policy


@dataclass(frozen=True, eq=False)
class Run:
    """A run of a plan."""

    name: str  # folder of its evaluations in the results: recipe and, in a sweep, run, such as paper/authors/3-7/2
    recipe: Recipe
    overrides: Sequence[str]
    folder: Path  # of the plan's log files

    @property
    def group(self) -> str:
        """The name of its recipe."""
        return self.name.partition("/")[0]

    @property
    def command(self) -> list[str]:
        """The arguments of `whilst` that train and evaluate this run."""
        point = self.name.partition("/")[2]
        sets = [part for override in self.overrides for part in ("--set", override)]
        return ["train", self.recipe.file, *(["--only", point] if point else []), "--no-text", *sets]

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def marker(self) -> Path:
        """The file that says that the run is finished, and with which settings."""
        return self.folder / f"{self.name}.json"

    @property
    def is_finished(self) -> bool:
        return self.marker.is_file() and build(Recipe, read_json(self.marker)["recipe"]) == self.recipe

    def start(self, device: str) -> "subprocess.Popen[bytes]":
        """Start the run in a new session: Ctrl-C reaches it only once, through `execute`, so that it can save."""
        command = [sys.executable, "-m", "whilst", *self.command, "--device", device]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def finish(self) -> None:
        for stage in stages(self.recipe):  # only resuming needs this file, which takes 0.7 GB in each run of a plan
            (Path(stage.run) / "last.safetensors").unlink(missing_ok=True)
        write_json(self.marker, {"recipe": to_table(self.recipe)})


def find_plan(pair: str) -> Path:
    """The plan in a folder of recipes such as iwslt15.en-vi; en-vi is enough if only one plan has this pair."""
    given = Path(pair) if (Path(pair) / PLAN).is_file() else RECIPES / pair
    found = [given / PLAN] if (given / PLAN).is_file() else sorted(RECIPES.glob(f"*.{pair}/{PLAN}"))
    if len(found) != 1:
        known = ", ".join(path.parent.name for path in sorted(RECIPES.glob(f"*/{PLAN}"))) or "none in this folder"
        raise UserError(f"--run {pair}: name one of the plans: {known}")
    return found[0]


def load_plan(plan: Path, overrides: Sequence[str]) -> list[Run]:
    """The runs of a plan in its order."""
    runs = []
    for line in filter(None, (line.partition("#")[0].strip() for line in read_lines(plan))):
        path = plan.parent / line
        first = load_recipe(path, list(overrides)).run
        for recipe in load_sweep(path, list(overrides)):
            name = PurePath(path.stem) / PurePath(recipe.run).relative_to(first)
            runs.append(Run(name.as_posix(), recipe, overrides, RUNS / f"{plan.parent.name}.plan"))
    if not runs:
        raise UserError(f"{plan}: names no recipe")
    return runs


def choose(runs: Sequence[Run], only: Sequence[str]) -> list[tuple[Run, list[Run]]]:
    """The runs that match `only` (all if empty) and those they need, each with the runs that it needs directly."""
    by_recipe = {run.recipe: run for run in runs}
    needed = needs([run.recipe for run in runs])
    graph = {run: [by_recipe[recipe] for recipe in recipes] for run, recipes in zip(runs, needed, strict=True)}
    chosen: set[Run] = set()
    waiting = list(runs) if not only else []
    for pattern in only:
        matching = [run for run in runs if pattern == run.group or PurePath(run.name).match(pattern)]
        if not matching:
            raise UserError(f"--only {pattern}: the plan has {', '.join(dict.fromkeys(run.group for run in runs))}")
        waiting += matching
    while waiting:
        chosen.add(run := waiting.pop())
        waiting += [other for other in graph[run] if other not in chosen]
    return [(run, graph[run]) for run in runs if run in chosen]


def execute(chosen: Sequence[tuple[Run, Sequence[Run]]], jobs: int, device: str) -> list[Run]:
    """Execute the unfinished runs, `jobs` at once, each after the runs it needs; returns those still unfinished."""
    waiting = {run: needed for run, needed in chosen if not run.is_finished}
    total, failed = len(waiting), list[Run]()
    running: dict[Run, subprocess.Popen[bytes]] = {}
    with handle_signals(STOP_SIGNALS, stop):
        try:
            while True:
                ready = [run for run, needed in waiting.items() if all(other.is_finished for other in needed)]
                for run in ready[: jobs - len(running)]:
                    del waiting[run]
                    running[run] = run.start(device)
                if not running:
                    return [*failed, *waiting]
                while all(process.poll() is None for process in running.values()):
                    time.sleep(0.2)
                for run in [run for run, process in running.items() if process.poll() is not None]:
                    if running.pop(run).returncode:
                        failed.append(run)
                        state = f"failed, see {run.log}"
                    else:
                        run.finish()
                        state = "finished"
                    notes.print(f"{total - len(waiting) - len(running)} of {total}: {run.name} {state}")
        except StoppedError:
            for process in running.values():
                process.send_signal(signal.SIGINT)  # the run saves its state and stops
            for process in running.values():
                process.wait()
            raise


def stop(number: int, frame: object) -> None:  # noqa: ARG001
    raise StoppedError(number, "stopped; the same command continues")


def collect(runs: Sequence[Run], results: Path) -> set[Path]:
    """Copy the evaluations of finished runs into the archives of their pairs; returns the pairs' folders."""
    folders = set()
    for run in runs:
        folder, settings = results / pair_name(run.recipe.data), run.recipe.evaluate
        for policy in distinct(settings.policies, settings.threshold):
            trace = trace_path(Path(run.recipe.run) / "evaluations", policy, settings)
            (folder / run.name).mkdir(parents=True, exist_ok=True)
            for file in (trace, record_path(trace)):
                shutil.copyfile(file, folder / run.name / file.name)
            folders.add(folder)
    for folder in folders:
        pack(folder)
    return folders


def estimate(recipe: Recipe, results: Path) -> float:
    """Seconds on one H200, by the measured speed of each stage."""
    measured = read_json(results / BENCH)
    seconds = STARTING + EVALUATING * len(recipe.evaluate.policies) * ("evaluate" in recipe.stages)
    for stage in stages(recipe):
        train = stage.train
        rate = measured[MEASURED[stage.stages[0]]]["target tokens/s"]
        passes = 1 + (stage.objective.r_drop > 0 and stage.stages[0] == "translate")
        seconds += COMPILING + passes * train.steps * train.accumulate * train.batch_tokens / rate
    return seconds


def print_plan(runs: Sequence[Run], results: Path) -> None:
    """Print the runs with the estimated minutes of those that are left."""
    minutes = {run: estimate(run.recipe, results) / 60 for run in runs if not run.is_finished}
    left = {run: f"{minutes[run]:.1f}" if run in minutes else "finished" for run in runs}
    rows = [[run.name, " ".join(run.recipe.stages), left[run]] for run in runs]
    rows.append(["together, one after the other", "", f"{sum(minutes.values()):.0f}"])
    console.print(Grid(("run", "stages", "minutes"), rows, texts=2).to_terminal())


def reproduce(
    pair: str, results: Path, out: Path, overrides: Sequence[str], only: Sequence[str], jobs: int, device: str
) -> Path:
    """Run the plan of a pair, or the part `only` of it; returns the document."""
    began = time.monotonic()
    chosen = choose(load_plan(find_plan(pair), overrides), only)
    for data in {run.recipe.data.dataset: run.recipe.data for run, _ in chosen}.values():
        if jobs and not (Path(data.dataset) / MANIFEST).is_file():
            prepare(data)
    left = execute(chosen, jobs, device)
    folders = collect([run for run, _ in chosen if run.is_finished], results)
    for folder in sorted(folders):
        report(read_records([folder]), folder)
    document = write_paper(results, out)
    minutes = (time.monotonic() - began) / 60
    done = len(chosen) - len(left)
    notes.print(f"{done} of {len(chosen)} runs are finished; this call took {minutes:.1f} minutes")
    if left and jobs:
        raise UserError(f"not finished: {', '.join(run.name for run in left)}; see {left[0].log}")
    return document
