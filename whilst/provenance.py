"""How a figure was made, by its record and the recipes at hand; and for one that was not, the commands that would.

Nothing here is known beforehand: a recipe is found by its settings, and so is the one that makes a system.
"""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whilst import paper
from whilst.config import build, load_recipe, to_table
from whilst.document import Block, Code, Details, Items, Text
from whilst.evaluate import pair_of
from whilst.families import POINT, Family, changes, describe, flat, relevant
from whilst.settings import Recipe
from whilst.stages import stages

FAR = 12  # a recipe with more differences is another experiment


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
        if "agent" in self.recipe.stages:
            own = changes(flat(to_table(self.recipe)), self.base, self.recipe.search.size)
            translating = self.recipe.agent.labels == "translation"
            made |= {"translation-based": {}} if translating else {"bs-simt": own, "bs-simt oracle": own}
        return made


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
    """The recipe that differs least from what was measured, and how to make it the same."""
    record = family.first
    tuned = record.settings["objective"]["name"] == "search"
    base = family.changes.get("base", "multi-path")
    own = relevant(flat(to_table(build(Recipe, record.settings))), family.kind, family.system)
    best: tuple[Known, list[str]] | None = None
    for item in known:
        if pair_of(item.recipe.data) != family.pair or (tuned and item.base != base):
            continue
        for stage in (item.recipe, *stages(item.recipe)):
            table = flat(to_table(stage))
            if table["objective.name"] != record.settings["objective"]["name"]:
                continue
            sets = _sets(own, relevant(table, family.kind, family.system), family.system)
            if best is None or len(sets) < len(best[1]):
                best = item, sets
    return best if best is not None and len(best[1]) <= FAR else None


def _sets(own: dict[str, Any], recipe: dict[str, Any], system: str) -> list[str]:
    """What to say on the command line to get these settings; seeds and what makes a point are left out."""
    found = []
    for name, value in own.items():
        if name.startswith("evaluate.") or name.endswith("train.seed") or name in POINT.get(system, ()):
            continue
        if value == recipe.get(name):
            continue
        if name == "search.intervals" and len(value) == 1 and value[0] in recipe[name]:
            found.append("--each-interval")
        else:
            found.append(f"--set {shlex.quote(f'{name}={_toml(value)}')}")
    return found


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
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
        recipe = f"recipe: [{near[0].path.as_posix()}]({link(near[0].path, folder)}){with_}"
    seeds = sorted({"/".join(map(str, describe(item)[2])) for item in filed})
    machines = sorted({f"{r.device}, torch {r.versions.get('torch', '?')}" for r in records})
    first = records[0]
    lines = [
        recipe,
        f"seeds: {', '.join(seeds)}" + (" (a number for each stage)" if any("/" in seed for seed in seeds) else ""),
        f"machine: {'; '.join(machines)}",
        f"text: {family.pair}, {first.split}, {first.scores.sentences:,} sentences; SHA-256 of the source"
        f" `{first.source_sha256[:12]}`, of the reference `{first.reference_sha256[:12]}`",
        f"weights: SHA-256 {', '.join(f'`{sha}`' for sha in sorted({r.model_sha256[:12] for r in records}))}",
        f"BLEU: `{first.scores.signatures.get('bleu', 'no signature')}`",
        *(f"decoded with `{command}`" for command in sorted({record.command for record in records})),
        "records: " + ", ".join(f"[{item.record.policy}]({link(item.path, folder)})" for item in filed),
    ]
    return Details(f"How our {name} was made", [Items(lines)])


def link(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def maker(task: str, system: str, known: Sequence[Known], changed: dict[str, str]) -> Known | None:
    """The recipe that makes a system for one of the paper's tasks, if possible on the paper's own text."""
    makers = [item for item in known if paper.task(pair_of(item.recipe.data)) == task]
    makers = [item for item in makers if item.systems.get(system) == changed]
    return min(makers, key=lambda item: pair_of(item.recipe.data) != task, default=None)


def missing(
    task: str, system: str, labels: Sequence[str], known: Sequence[Known], changed: dict[str, str] | None = None
) -> Block:
    """The commands that would make these points of a system, or of a BS-SiMT that changes something."""
    changed = changed or {}
    item = maker(task, system, known, changed)
    if item is None:
        return Text(f"Not run: {system}. No recipe in this checkout makes it for {task}.")
    recipe = item.path.as_posix()
    change = "".join(f"-{name}-{value}" for name, value in changed.items())
    out = f"results/{pair_of(item.recipe.data)}/{system.removesuffix(' oracle')}{change}"
    lines = [f"whilst prepare {recipe}"]
    if system in POINT:
        for label in labels:
            lines += _one_model(item, system, label, f"{out}/{label}")
    else:
        policies = " ".join(f"--policy {_policy(system, label)}" for label in labels)
        before = [other.path.as_posix() for other in known if _makes(other, item.recipe.start)][:1]
        lines.append(" ".join(["whilst train", *before, recipe]))
        lines.append(f"whilst evaluate {item.recipe.run} {policies} --no-text --out {out}")
    named = [system, *(f"with {name} {value}" for name, value in changed.items()), ", ".join(labels)]
    return Details(f"Not run: {' '.join(filter(None, named))}. What would run it", [Code(lines)])


def _makes(item: Known, run: str) -> bool:
    return any(stage.run == run for stage in stages(item.recipe))


def _one_model(item: Known, system: str, label: str, out: str) -> list[str]:
    """Where each point is a model of its own."""
    run = item.recipe.run.removesuffix("-3").removesuffix("/0.1") + ("/" if system == "mma" else "-") + label
    sets = " ".join(f"--set {name}={label}" for name in POINT[system])
    stage = "" if item.recipe.stages == ("translate",) else """ --set 'stages=["translate"]'"""
    return [
        f"whilst train {item.path.as_posix()} {sets} --set run={run}{stage}",
        f"whilst evaluate {run} --policy {_policy(system, label)} --no-text --out {out}",
    ]


def _policy(system: str, label: str) -> str:
    fixed = {"full-sentence": "full", "mma": "mma", "translation-based": "agent-translation"}
    if system in fixed:
        return fixed[system]
    kind = "oracle" if system.endswith("oracle") else "agent" if system == "bs-simt" else "wait"
    return f"{kind}-{label.strip('[').partition(',')[0]}"
