"""How a figure was made, by its record and the recipes at hand; and for one that was not, the commands that would.

Nothing here is known beforehand: a recipe is found by its settings, and so is the one that makes a system.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whilst.core.config import flat, load_sweep, to_table
from whilst.core.settings import NEUTRAL, Recipe, names_with
from whilst.evaluation.curves import POINTS, SEEDS, Curve, seeds_of, used_by
from whilst.evaluation.identity import System, pair_name
from whilst.evaluation.record import Record
from whilst.research.paper.document import Block, Details, Items, Text
from whilst.training.stages import stages

FAR = 12  # a recipe with more differences is another experiment
ENDING = {"free": "the translation ends", "patient": "it reads on"}
UNKNOWN = {"keep": "`<unk>`", "copy": "names of the source in their place"}


@dataclass(frozen=True)
class Known:
    """A recipe file."""

    path: Path
    recipe: Recipe
    base: str  # what its fine-tuning begins with: multi-path, full-sentence, scratch, …


def read_recipes(folder: Path) -> list[Known]:
    """All recipes of a folder, those of its sub-folders last; none if there is no such folder."""
    paths = sorted(folder.rglob("*.toml"), key=lambda path: (len(path.parts), path.name))
    recipes = [(path, recipe) for path in paths for recipe in load_sweep(path, [])]
    trained = {stage.run: stage.objective.name for _, recipe in recipes for stage in stages(recipe)}
    found = []
    for path, recipe in recipes:
        own = "translate" in recipe.stages
        start = recipe.start.removesuffix("/search")
        base = recipe.objective.name if own else trained.get(start, "scratch" if not start else "unknown")
        found.append(Known(path, recipe, "full-sentence" if base == "full" else base))
    return found


def nearest(curve: Curve, known: Sequence[Known]) -> tuple[Known, list[str]] | None:
    """The recipe that differs least from what was measured, and how to make it the same; of equals the main one."""
    ways = [(item, sets) for item in known if (sets := _from(item, curve)) is not None]
    near = [(item, sets) for item, sets in ways if len(sets) <= FAR]
    return min(near, key=lambda way: (len(way[1]), len(way[0].recipe.run)), default=None)


def _from(item: Known, curve: Curve) -> list[str] | None:
    """How to get from a recipe to what was measured; nothing if it is for something else."""
    result = curve.first
    recipe = result.first.recipe
    if recipe is None or pair_name(item.recipe.data) != result.pair:
        return None
    if recipe.objective.name == "search" and item.base != result.changes.get("base", "multi-path"):
        return None
    made = [stage for stage in (item.recipe, *stages(item.recipe)) if stage.objective.name == recipe.objective.name]
    ways = [_sets(_used(recipe, curve), _used(stage, curve), result.system) for stage in made]
    return min(ways, key=len, default=None)


def _used(recipe: Recipe, curve: Curve) -> dict[str, Any]:
    """The settings of a recipe that decide such a curve."""
    used = used_by(curve.first.system, curve.first.kind, recipe, flat(to_table(recipe)))
    return {name: value for name, value in used.items() if name not in names_with(NEUTRAL) | {"start"}}


def _sets(own: dict[str, Any], recipe: dict[str, Any], system: System) -> list[str]:
    """What to say on the command line to get these settings; seeds and what makes a point are left out."""
    found = []
    for name, value in own.items():
        is_point = name in POINTS and system.name in ("wait-k", "mma")
        if name.startswith("evaluate.") or name in SEEDS or is_point:
            continue
        # where a teacher lies is no setting
        if value == recipe.get(name) or (name == "teacher" and value and recipe[name]):
            continue
        one_of_several = name == "search.intervals" and system.name != "translation-based" and len(value) == 1
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


def made(name: str, curve: Curve, known: Sequence[Known], folder: Path) -> Details:
    """Everything that the records say, for a document in this folder."""
    records = [record for result in curve.results for record in result.records]
    near = nearest(curve, known)
    recipe = "recipe: none in this checkout is near; the records have every setting"
    if near is not None:
        with_ = f", with `{' '.join(near[1])}`" if near[1] else ""
        path = near[0].path
        recipe = f"recipe: [{path.as_posix()}]({link(path, folder)}){with_}"
    seeds = sorted({"/".join(map(str, seeds_of(record))) for record in records})
    machines = sorted({f"{r.device}, torch {r.versions.get('torch', '?')}" for r in records})
    first = records[0]
    lines = [
        recipe,
        f"the translator began with: {_runs(records, 'start', 'random weights')};"
        f" teacher: {_runs(records, 'teacher', 'none')}",
        f"seeds: {', '.join(seeds)}" + (" (a number for each stage)" if any("/" in seed for seed in seeds) else ""),
        f"machine: {'; '.join(machines)}",
        f"text: {first.pair}, {first.split}, {first.scores.sentences:,} sentences; SHA-256 of the source"
        f" `{first.source_sha256[:12]}`, of the reference `{first.reference_sha256[:12]}`",
        f"weights: SHA-256 {', '.join(f'`{sha}`' for sha in sorted({r.model_sha256[:12] for r in records}))}",
        f"BLEU: `{first.scores.signatures.get('bleu', 'no signature')}`",
        f"unknown words: {UNKNOWN[curve.settings['evaluate.unknown']]}",
        f"where the model says too early that all has been said: {ENDING[curve.settings['evaluate.ending']]}",
        *_searched(curve),
        *(f"decoded with `{command}`" for command in sorted({record.command for record in records})),
        "records: " + ", ".join(f"[{one.policy}]({link(one.path, folder)})" for one in records if one.path),
    ]
    return Details(f"How our {name} was made", [Items(lines)])


def _searched(curve: Curve) -> list[str]:
    """Of systems that obey searched reads, what was searched and what their agent sees."""
    named = {name: curve.settings.get(f"search.{name}") for name in ("target", "tolerance", "slope", "condition")}
    if named["target"] is None:
        return []
    sees = f"; the agent sees: {curve.settings['agent.inputs']}" if "agent.inputs" in curve.settings else ""
    return [f"search: {', '.join(f'{name} {value}' for name, value in named.items())}{sees}"]


def _runs(records: Sequence[Record], name: str, without: str) -> str:
    """The run folders that records name as start or teacher."""
    found = sorted({record.settings.get(name, "") for record in records})
    return ", ".join(f"`{run}`" if run else without for run in found)


def link(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def missing(task: str, system: str, labels: Sequence[str], changed: dict[str, str] | None = None) -> list[Block]:
    """What has no record, if anything."""
    named = " ".join([system, *(f"with {name} {value}" for name, value in (changed or {}).items())])
    return [Text(f"Not run on {task}: {named} {', '.join(labels)}".rstrip() + ".")] if labels else []
