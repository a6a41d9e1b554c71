"""What an evaluation goes by: system, policy and pair; and where its weights come from."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whilst.core.config import to_table
from whilst.core.files import read_json, sha256
from whilst.core.policy_spec import AGENT_TRANSLATION, PolicySpec
from whilst.core.settings import Data, Evaluate, Recipe
from whilst.data.dataset import Dataset
from whilst.model.checkpoint import LoadedRun
from whilst.model.run_folder import AGENT, WEIGHTS, base_objective

NAMELESS = "n/a"  # the one point of a system that has no other, as the paper calls it
THRESHOLD = re.compile(r"threshold-(\d*\.?\d+)\.?")  # in the name of a record's policy


def point_name(policy: str, intervals: Sequence[Sequence[int]], weight: object) -> str:
    """What tells a point apart on its curve: k, the search interval, MMA's weight of latency, or a threshold."""
    kind, _, argument = policy.partition(".")[0].partition("-")
    if kind in ("wait", "diagonal"):
        return f"k={argument}"
    if kind == "mma":
        return f"λ={weight}"
    if policy.startswith(AGENT_TRANSLATION.name):
        threshold = THRESHOLD.search(policy)
        return threshold[1] if threshold else NAMELESS
    return next((f"[{first},{last}]" for first, last in intervals if str(first) == argument), policy)


def bare(system: str) -> str:
    """A system's name without what it was made from: of "bs-simt (multi-path)" it is bs-simt."""
    return re.sub(r" \([^)]*\)", "", system)


def agent_checksum(trained: LoadedRun, policy: PolicySpec) -> str:
    """Of the agent's weights if it decides under this policy; else empty."""
    return sha256(trained.path / AGENT / WEIGHTS) if policy.kind == "agent" else ""


def origin(run: Path, recipe: Recipe) -> dict[str, str]:
    """What a record says of where a run's weights come from, as far as it is known."""
    summaries = (run / "summary.json", run / AGENT / "summary.json")  # a copy of a translator has but its agent's
    summary: Any = next((read_json(path) for path in summaries if path.is_file()), None)
    summary = summary if isinstance(summary, dict) else {}
    found = {"dataset_sha256": str(summary.get("dataset_sha256", "")), "began_with": base_objective(recipe, run)}
    return {name: value for name, value in found.items() if value}


def settings_table(recipe: Recipe, settings: Evaluate, dataset: Dataset, policy: PolicySpec) -> dict[str, Any]:
    """What a record keeps: all that made the model, how it was evaluated, and how the text of that was cleaned."""
    if not policy.about.can_end_early:
        settings = replace(settings, ending=Evaluate().ending)  # it changes nothing
    return to_table(replace(recipe, evaluate=settings, data=dataset.cleaning_settings(recipe.data)))


def policy_name(policy: PolicySpec, settings: Evaluate) -> str:
    """The policy with what else decides its outcome, such as agent-1.threshold-0.4, full.beam-5.

    A second evaluation with another threshold or beam is another point: it must not overwrite the first.
    """
    usual, name = Evaluate(), policy.name
    if policy.about.has_threshold and settings.threshold != usual.threshold:
        name += f".threshold-{settings.threshold}"
    if settings.beam != usual.beam:
        name += f".beam-{settings.beam}"
    if settings.unknown != usual.unknown:
        name += f".unknown-{settings.unknown}"
    if settings.ending != usual.ending and policy.about.can_end_early:
        name += f".ending-{settings.ending}"
    if settings.precision != usual.precision:
        name += f".{settings.precision}"
    return name


def system_name(recipe: Recipe, policy: PolicySpec, run: Path | None = None) -> str:
    """The name of what was trained (in the folder `run`) and how it was used, as reports know it."""
    objective, kind = recipe.objective.name, policy.kind
    if policy.name == AGENT_TRANSLATION.name:
        return "translation-based"
    if kind in ("agent", "oracle"):
        system = _searching(recipe, run)
        return system if kind == "agent" else f"{system} oracle"
    if objective != "search":
        name = "full-sentence" if objective == "full" else objective
        other = kind == "diagonal" or (objective == "mma" and kind != "mma")
        return f"{name} ({kind})" if other else name
    return "bs-simt (diagonal)" if kind == "diagonal" else "bs-simt (wait-k)"


def _searching(recipe: Recipe, run: Path | None) -> str:
    """BS-SiMT, and in brackets how its model came about if not by fine-tuning a multi-path one (the paper)."""
    if recipe.objective.name != "search":
        return f"bs-simt ({recipe.objective.name})"  # not fine-tuned on its reads
    if not recipe.start:
        return "bs-simt (from scratch)"
    if (base := base_objective(recipe, run)) in ("", "multi-path"):
        return "bs-simt"
    return f"bs-simt (from {'full-sentence' if base == 'full' else base})"


def pair_name(recipe: Recipe) -> str:
    return pair_of(recipe.data)


def pair_of(data: Data) -> str:
    """Such as iwslt15.en-vi; raw text is another text, with other scores."""
    languages = f".{data.source}-{data.target}"
    name = (data.corpus or Path(data.dataset).name).removesuffix(languages)
    return name + "-raw" * data.detokenise + languages
