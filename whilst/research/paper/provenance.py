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

from whilst.core.config import build, flat, load_sweep, to_table
from whilst.core.settings import Recipe
from whilst.evaluation.families import (
    POINT,
    TRANSLATING,
    Family,
    describe,
    relevant,
)
from whilst.evaluation.identity import pair_of
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


def nearest(family: Family, known: Sequence[Known]) -> tuple[Known, list[str]] | None:
    """The recipe that differs least from what was measured, and how to make it the same; of equals the main one."""
    ways = [(item, sets) for item in known if (sets := _from(item, family)) is not None]
    near = [(item, sets) for item, sets in ways if len(sets) <= FAR]
    return min(near, key=lambda way: (len(way[1]), len(way[0].recipe.run)), default=None)


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
        path = near[0].path
        recipe = f"recipe: [{path.as_posix()}]({link(path, folder)}){with_}"
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


def missing(task: str, system: str, labels: Sequence[str], changed: dict[str, str] | None = None) -> list[Block]:
    """What has no record, if anything."""
    named = " ".join([system, *(f"with {name} {value}" for name, value in (changed or {}).items())])
    return [Text(f"Not run on {task}: {named} {', '.join(labels)}".rstrip() + ".")] if labels else []
