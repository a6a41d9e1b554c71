"""What a run folder holds, and how it is written so that it can be cut off at any moment.

    recipe.json            every setting of the run
    source.*, target.*     the two languages, so that the folder translates by itself
    model.safetensors      the best weights so far (those that are used), with their validation figures
    last.safetensors       weights, averages and moments, to go on from
    weights-N.safetensors  validated weights that wait for their average (train.average)
    history.jsonl          training and validation figures by step
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from whilst.agent import Agent
from whilst.config import build, to_table
from whilst.errors import UserError
from whilst.files import read_json, sha256, write_json, writing
from whilst.model import Translator
from whilst.settings import Recipe
from whilst.vocab import Language

FORMAT = 1
SEARCH = "search"  # folder of the fine-tuned translator in that of the one that it comes from
AGENT = "agent"  # folder of the agent in that of its translator


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    with writing(path) as temporary:
        save_file({name: t.contiguous() for name, t in tensors.items()}, temporary, {"about": json.dumps(about)})


def load_tensors(path: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            about: dict[str, Any] = json.loads((file.metadata() or {}).get("about", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise UserError(f"{path}: cannot be read as safetensors ({error}); delete it to start anew") from None


def load_weights(path: Path, module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give a module the weights that were read from `path`."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(f"{path}: holds the weights of some other model ({_first_difference(error)})") from None


def _first_difference(error: RuntimeError) -> str:
    """Of torch's account of all that does not fit, the first item: a headline comes before it."""
    detail = str(error).splitlines()[1].strip()
    return detail if len(detail) < 200 else detail[:200] + "…"


def save_state(path: Path, parts: Mapping[str, nn.Module], adam: torch.optim.AdamW, about: dict[str, Any]) -> None:
    """Everything that training goes on from."""
    tensors = {f"{part}.{name}": t for part, module in parts.items() for name, t in module.state_dict().items()}
    for number, state in adam.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": value for name, value in state.items()}
    save_tensors(path, tensors, about)


def load_state(path: Path, parts: Mapping[str, nn.Module], adam: torch.optim.AdamW) -> dict[str, Any]:
    tensors, about = load_tensors(path, torch.device("cpu"))
    for part, module in parts.items():
        prefix = f"{part}."
        mine = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        load_weights(path, module, mine)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("adam."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = value
    adam.load_state_dict({"state": state, "param_groups": adam.state_dict()["param_groups"]})
    return about


@dataclass(frozen=True)
class Trained:
    """A trained model and all that it takes to use it."""

    path: Path
    recipe: Recipe
    source: Language
    target: Language
    model: Translator
    about: dict[str, Any]  # step and validation figures of the weights
    agent: Agent | None = None

    @property
    def checksum(self) -> str:
        return sha256(self.path / "model.safetensors")


def write_run(folder: Path, recipe: Recipe, source: Language, target: Language) -> None:
    source.save(folder, "source")
    target.save(folder, "target")
    write_json(folder / "recipe.json", {"format": FORMAT, "recipe": to_table(recipe)})


def read_recipe(folder: Path) -> Recipe:
    if not (folder / "recipe.json").is_file():
        raise UserError(f"{folder}: not a run folder (no recipe.json); `whilst train` makes one")
    record = read_json(folder / "recipe.json")
    if not isinstance(record, dict) or not isinstance(record.get("recipe"), dict):
        raise UserError(f"{folder}: recipe.json is damaged; begin the run anew with `whilst train --restart`")
    if record.get("format") != FORMAT:
        raise UserError(f"{folder}: written by another version of whilst (format {record.get('format')})")
    try:
        return build(Recipe, record["recipe"])
    except UserError as error:
        raise UserError(f"{folder}: recipe.json: {error}") from None


def load_run(folder: Path, device: torch.device) -> Trained:
    """The best model of a run, ready to translate."""
    recipe = read_recipe(folder)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise UserError(f"{folder}: no model.safetensors yet; let `whilst train` reach its first validation")
    source, target = Language.load(folder, "source"), Language.load(folder, "target")
    model = Translator(recipe.model, len(source.vocabulary), len(target.vocabulary))
    tensors, about = load_tensors(weights, torch.device("cpu"))
    load_weights(weights, model, tensors)
    trained = Trained(folder, recipe, source, target, model.to(device).eval(), about)
    return with_agent(trained, device) if (folder / AGENT / "model.safetensors").is_file() else trained


def with_agent(trained: Trained, device: torch.device) -> Trained:
    """With the agent that was trained for this run, and what it has learnt: it may have come later."""
    folder = trained.path / AGENT
    recipe, weights = read_recipe(folder), folder / "model.safetensors"
    agent = Agent(recipe.agent, recipe.model.width, recipe.latencies)
    load_weights(weights, agent, load_tensors(weights, torch.device("cpu"))[0])
    both = replace(trained.recipe, search=recipe.search, agent=recipe.agent)
    return replace(trained, recipe=both, agent=agent.to(device).eval())
