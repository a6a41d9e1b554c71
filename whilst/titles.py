"""What an evaluation goes by: system, policy and pair; and where its weights come from."""

from pathlib import Path
from typing import Any

from whilst.checkpoint import Trained
from whilst.files import read_json, sha256
from whilst.folders import AGENT, WEIGHTS, read_recipe
from whilst.names import TRANSLATION_BASED
from whilst.settings import Data, Evaluate, Recipe


def agent_checksum(trained: Trained, policy_name: str) -> str:
    """Of the agent's weights if it decides under this policy; else empty."""
    return sha256(trained.path / AGENT / WEIGHTS) if policy_name.startswith("agent-") else ""


def origin(run: Path, recipe: Recipe) -> dict[str, str]:
    """What a record says of where a run's weights come from, as far as it is known."""
    summaries = (run / "summary.json", run / AGENT / "summary.json")  # a copy of a translator has but its agent's
    summary: dict[str, Any] = next((read_json(path) for path in summaries if path.is_file()), {})
    found = {"dataset_sha256": str(summary.get("dataset_sha256", "")), "began_with": _began_with(recipe)}
    return {name: value for name, value in found.items() if value}


def _began_with(recipe: Recipe) -> str:
    """The objective of the model that it started from; nothing where there is none, or it is gone."""
    start = Path(recipe.start)
    return read_recipe(start).objective.name if recipe.start and (start / "recipe.json").is_file() else ""


def policy_name(name: str, settings: Evaluate) -> str:
    """The policy with what else decides its outcome, such as agent-1.threshold-0.4, full.beam-5.

    A second evaluation with another threshold or beam is another point: it must not overwrite the first.
    """
    usual = Evaluate()
    if name.startswith("agent-") and settings.threshold != usual.threshold:
        name += f".threshold-{settings.threshold}"
    if settings.beam != usual.beam:
        name += f".beam-{settings.beam}"
    if settings.unknown != usual.unknown:
        name += f".unknown-{settings.unknown}"
    if settings.precision != usual.precision:
        name += f".{settings.precision}"
    return name


def system_name(recipe: Recipe, policy_name: str) -> str:
    """The name of what was trained and how it was used, as reports know it."""
    objective, kind = recipe.objective.name, policy_name.partition("-")[0]
    if policy_name == TRANSLATION_BASED:
        return "translation-based"
    if kind in ("agent", "oracle"):
        system = _searching(recipe)
        return system if kind == "agent" else f"{system} oracle"
    if objective != "search":
        name = "full-sentence" if objective == "full" else objective
        other = kind == "diagonal" or (objective == "mma" and kind != "mma")
        return f"{name} ({kind})" if other else name
    return "bs-simt (diagonal)" if kind == "diagonal" else "bs-simt (wait-k)"


def _searching(recipe: Recipe) -> str:
    """BS-SiMT, and in brackets how its model came about if not by fine-tuning a multi-path one (the paper)."""
    if recipe.objective.name != "search":
        return f"bs-simt ({recipe.objective.name})"  # not fine-tuned on its reads
    if not recipe.start:
        return "bs-simt (from scratch)"
    if (base := _began_with(recipe)) in ("", "multi-path"):
        return "bs-simt"
    return f"bs-simt (from {'full-sentence' if base == 'full' else base})"


def pair_name(recipe: Recipe) -> str:
    return pair_of(recipe.data)


def pair_of(data: Data) -> str:
    """Such as iwslt15.en-vi; raw text is another text, with other scores."""
    languages = f".{data.source}-{data.target}"
    name = (data.corpus or Path(data.dataset).name).removesuffix(languages)
    return name + "-raw" * data.detokenise + languages
