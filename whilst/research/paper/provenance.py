"""How a figure was made, by its record and the recipes at hand; and for one that was not, the commands that would.

Nothing here is known beforehand: a recipe is found by its settings, and so is the one that makes a system.
"""

import functools
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whilst.core.config import build, flat, load_recipe, to_table
from whilst.core.policy_spec import AGENT_TRANSLATION
from whilst.core.settings import Recipe
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.families import (
    DIAGONAL,
    POINT,
    TRANSLATING,
    Family,
    agreement_of,
    changes,
    describe,
    relevant,
)
from whilst.evaluation.identity import pair_of
from whilst.evaluation.paper_numbers import BEST
from whilst.evaluation.record import Record
from whilst.research.paper.document import Block, Code, Details, Items, Text
from whilst.training.stages import in_order, stages

FAR = 12  # a recipe with more differences is another experiment
ENDING = {"free": "the translation ends", "patient": "it reads on"}
UNKNOWN = {"keep": "`<unk>`", "copy": "names of the source in their place"}


@dataclass(frozen=True)
class Known:
    """A recipe file."""

    path: Path
    recipe: Recipe
    base: str  # what its fine-tuning begins with: multi-path, full-sentence, scratch, …

    @property
    def systems(self) -> dict[str, dict[str, str]]:
        """The systems that it makes, each with what it changes of the paper's choices."""
        made: dict[str, dict[str, str]] = {}
        if "translate" in self.recipe.stages:
            name = self.recipe.objective.name
            made["full-sentence" if name == "full" else name] = {}
            made |= {DIAGONAL: {}} if name == "multi-path" else {}
        if "agent" in self.recipe.stages:
            settings = flat(to_table(self.recipe))
            if self.recipe.agent.labels == "search":
                own = changes(settings, self.base, self.recipe.search.size)
                made |= {"bs-simt": own, "bs-simt oracle": own}
            elif not agreement_of(settings):
                made[TRANSLATING] = {}
        return made

    def reaches(self, system: str, label: str) -> bool:
        """Whether the point of this label is one that its model is trained for."""
        if system in POINT:
            table = flat(to_table(self.recipe))
            return all(str(table[name]) == label for name in POINT[system])
        if system.startswith(BEST):
            return label in (f"[{first},{last}]" for first, last in self.recipe.search.intervals)
        return True

    @functools.cached_property
    def makes(self) -> list[str]:
        """The run folders with what it trains."""
        return [stage.run for stage in stages(self.recipe)]


def read_recipes(folder: Path) -> list[Known]:
    """All recipes of a folder, those of its sub-folders last; none if there is no such folder."""
    paths = sorted(folder.rglob("*.toml"), key=lambda path: (len(path.parts), path.name))
    recipes = {path: load_recipe(path, []) for path in paths}
    trained = {stage.run: stage.objective.name for recipe in recipes.values() for stage in stages(recipe)}
    found = []
    for path, recipe in recipes.items():
        own = "translate" in recipe.stages
        start = recipe.start.removesuffix("/search")
        base = recipe.objective.name if own else trained.get(start, "scratch" if not start else "unknown")
        found.append(Known(path, recipe, "full-sentence" if base == "full" else base))
    return found


def nearest(family: Family, known: Sequence[Known]) -> tuple[Known, list[str]] | None:
    """The recipe that differs least from what was measured, and how to make it the same; of equals the main one."""
    ways = [(item, sets) for item in known if (sets := _from(item, family)) is not None]
    near = [(item, sets) for item, sets in ways if len(sets) <= FAR]
    return min(near, key=lambda way: (len(way[1]), len(way[0].recipe.run)), default=None)


def _of_points(family: Family, near: Known, sets: list[str], known: Sequence[Known]) -> list[Known]:
    """Where each point is a model: those recipes as near as the nearest one that are for these points."""
    labels = [point.label for point in family.points] if family.system in POINT else []
    alike = [item for item in known if labels and _from(item, family) == sets]
    return [item for label in labels for item in alike if item.reaches(family.system, label)] or [near]


def _from(item: Known, family: Family) -> list[str] | None:
    """How to get from a recipe to what was measured; nothing if it is for something else."""
    record = family.first
    objective = record.settings["objective"]["name"]
    if pair_of(item.recipe.data) != family.pair:
        return None
    if objective == "search" and item.base != family.changes.get("base", "multi-path"):
        return None
    own = relevant(flat(to_table(build(Recipe, record.settings))), family.kind, family.system)
    tables = [flat(to_table(stage)) for stage in (item.recipe, *stages(item.recipe))]
    tables = [table for table in tables if table["objective.name"] == objective]
    ways = [_sets(own, relevant(table, family.kind, family.system), family.system) for table in tables]
    return min(ways, key=len, default=None)


def _sets(own: dict[str, Any], recipe: dict[str, Any], system: str) -> list[str]:
    """What to say on the command line to get these settings; seeds and what makes a point are left out."""
    found = []
    for name, value in own.items():
        if name.startswith("evaluate.") or name.endswith("train.seed") or name in POINT.get(system, ()):
            continue
        # where a teacher lies is no setting
        if value == recipe.get(name) or (name == "teacher" and value and recipe[name]):
            continue
        one_of_several = name == "search.intervals" and system != TRANSLATING and len(value) == 1
        if one_of_several and value[0] in recipe[name]:
            found.append("--each-interval")
        else:
            found.append(f"--set {shlex.quote(f'{name}={_toml(value)}')}")
    return found


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(json.dumps(item) if isinstance(item, str) else _toml(item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def made(name: str, family: Family, known: Sequence[Known], folder: Path) -> Details:
    """Everything that the records say, for a document in this folder."""
    filed = [item for point in family.points for item in point.filed]
    records = [item.record for item in filed]
    near = nearest(family, known)
    recipe = "recipe: none in this checkout is near; the records have every setting"
    if near is not None:
        with_ = f", with `{' '.join(near[1])}`" if near[1] else ""
        used = [item.path for item in _of_points(family, *near, known)]
        files = ", ".join(f"[{path.as_posix()}]({link(path, folder)})" for path in used)
        recipe = f"recipe: {files}{with_}"
    seeds = sorted({"/".join(map(str, describe(item)[2])) for item in filed})
    machines = sorted({f"{r.device}, torch {r.versions.get('torch', '?')}" for r in records})
    first = records[0]
    lines = [
        recipe,
        f"the translator began with: {_runs(records, 'start', 'random weights')};"
        f" teacher: {_runs(records, 'teacher', 'none')}",
        f"seeds: {', '.join(seeds)}" + (" (a number for each stage)" if any("/" in seed for seed in seeds) else ""),
        f"machine: {'; '.join(machines)}",
        f"text: {family.pair}, {first.split}, {first.scores.sentences:,} sentences; SHA-256 of the source"
        f" `{first.source_sha256[:12]}`, of the reference `{first.reference_sha256[:12]}`",
        f"weights: SHA-256 {', '.join(f'`{sha}`' for sha in sorted({r.model_sha256[:12] for r in records}))}",
        f"BLEU: `{first.scores.signatures.get('bleu', 'no signature')}`",
        f"unknown words: {UNKNOWN[family.settings['evaluate.unknown']]}",
        f"where the model says too early that all has been said: {ENDING[family.settings['evaluate.ending']]}",
        *_searched(family),
        *(f"decoded with `{command}`" for command in sorted({record.command for record in records})),
        "records: " + ", ".join(f"[{item.record.policy}]({link(item.path, folder)})" for item in filed),
    ]
    return Details(f"How our {name} was made", [Items(lines)])


def _searched(family: Family) -> list[str]:
    """Of systems that obey searched reads, what was searched and what their agent sees."""
    named = {name: family.settings.get(f"search.{name}") for name in ("target", "tolerance", "slope", "condition")}
    if named["target"] is None:
        return []
    sees = f"; the agent sees: {family.settings['agent.inputs']}" if "agent.inputs" in family.settings else ""
    return [f"search: {', '.join(f'{name} {value}' for name, value in named.items())}{sees}"]


def _runs(records: Sequence[Record], name: str, without: str) -> str:
    """The run folders that records name as start or teacher."""
    found = sorted({record.settings.get(name, "") for record in records})
    return ", ".join(f"`{run}`" if run else without for run in found)


def link(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def maker(
    task: str,
    system: str,
    label: str,
    known: Sequence[Known],
    changed: dict[str, str] | None = None,
    text: str = "",
) -> Known | None:
    """The recipe that makes a point of a system for one of the paper's tasks.

    If possible on this text, else the paper's own; rather one that is evaluated than one that others go on from.
    Variants of a recipe have its run's name and something behind it: the shortest is the main one.
    """
    makers = [
        item
        for item in known
        if paper.task(pair_of(item.recipe.data)) == task
        and item.systems.get(system) == (changed or {})
        and item.reaches(system, label)
        and with_needed([item], known)
    ]

    def order(item: Known) -> tuple[bool, bool, bool, int]:
        recipe, pair = item.recipe, pair_of(item.recipe.data)
        return pair != (text or task), pair != task, "evaluate" not in recipe.stages, len(recipe.run)

    return min(makers, key=order, default=None)


def with_needed(items: Sequence[Known], known: Sequence[Known]) -> list[Known]:
    """Recipes behind all those that they start or learn from; nothing if one of these has no recipe."""
    found: list[Known] = []
    waiting = list(items)
    while waiting:
        item = waiting.pop(0)
        if any(item is other for other in found):
            continue
        found.append(item)
        for run in filter(None, (item.recipe.start, item.recipe.teacher)):
            # two files may train the same run: rather the one that is there already
            before = next((other for other in (*items, *found, *known) if run in other.makes), None)
            if before is None:
                return []
            waiting.append(before)
    of_recipe = {id(item.recipe): item for item in found}
    return [of_recipe[id(recipe)] for recipe in in_order([item.recipe for item in found])]


def training(items: Sequence[Known], known: Sequence[Known]) -> list[str]:
    """The commands that train recipes and whatever they need, in a folder where nothing is trained yet."""
    recipes = with_needed(items, known)
    datasets: dict[str, str] = {}
    for item in recipes:
        datasets.setdefault(item.recipe.data.dataset, f"whilst prepare {item.path.as_posix()}")
    return [*datasets.values(), " ".join(["whilst train", *(item.path.as_posix() for item in recipes)])]


def missing(
    task: str,
    system: str,
    labels: Sequence[str],
    known: Sequence[Known],
    changed: dict[str, str] | None = None,
    text: str = "",
) -> list[Block]:
    """The commands that would make these points of a system, or of a BS-SiMT that changes something."""
    changed = changed or {}
    makers = {label: maker(task, system, label, known, changed, text) for label in labels}
    named = " ".join([system, *(f"with {name} {value}" for name, value in changed.items())])
    blocks: list[Block] = []
    if nobody := [label for label, item in makers.items() if item is None]:
        what = f"{named} {', '.join(nobody)}".strip()
        blocks.append(Text(f"Not run: {what}. No recipe in this checkout makes it for {task}."))
    points = {label: item for label, item in makers.items() if item is not None}
    if points:
        what = f"{named} {', '.join(points)}".strip()
        lines = [*training(list(points.values()), known), *_evaluating(system, points, changed)]
        blocks.append(Details(f"Not run: {what}. What would run it", [Code(lines)]))
    return blocks


def _evaluating(system: str, points: dict[str, Known], changed: dict[str, str]) -> list[str]:
    """A command for each run, with all of its points."""
    policies: dict[tuple[str, str], list[str]] = {}
    for label, item in points.items():
        change = "".join(f"-{name}-{value}" for name, value in changed.items())
        out = f"results/{pair_of(item.recipe.data)}/{_folder(system)}{change}"
        own = f"/{label}" if system in POINT else ""
        policies.setdefault((item.recipe.run, out + own), []).append(f"--policy {policy_of(system, label)}")
    return [f"whilst evaluate {run} {' '.join(own)} --no-text --out {out}" for (run, out), own in policies.items()]


def _folder(system: str) -> str:
    return "diagonal" if system == DIAGONAL else system.removesuffix(" oracle")


def policy_of(system: str, label: str) -> str:
    fixed = {"full-sentence": "full", "mma": "mma", "translation-based": AGENT_TRANSLATION.name}
    if system in fixed:
        return fixed[system]
    kinds = {BEST: "agent", f"{BEST} oracle": "oracle", DIAGONAL: "diagonal"}
    return f"{kinds.get(system, 'wait')}-{label.strip('[').partition(',')[0]}"
