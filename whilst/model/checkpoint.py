"""Read and write a run folder, so that training can be killed at any moment.

recipe.json            every setting of the run
source.*, target.*     the two languages: the folder needs no dataset to translate
model.safetensors      the best weights so far, for translation, with their validation figures
last.safetensors       weights, their averages and Adam's moments, to resume training from
history.jsonl          training and validation figures by step
labels/                reads found by search with these weights, for agents
"""

import functools
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from whilst.core.config import FORMAT, read_recipe, to_table
from whilst.core.errors import UserError
from whilst.core.files import read_json, write_json, writing
from whilst.core.policy_spec import PolicySpec, agent_policies
from whilst.core.settings import Recipe, Search
from whilst.data.vocabulary import Language
from whilst.data.writer import WordRules
from whilst.model.agent import Agent
from whilst.model.engine_weights import read_engine_weights
from whilst.model.run_folder import (
    AGENT,
    BASE_OBJECTIVE,
    SHIPPED,
    WEIGHTS,
    base_objective,
    has_agent,
    weights_checksum,
    weights_path,
)
from whilst.model.transformer import Translator


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """`metadata` is stored as JSON in the header of the file."""
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        with writing(path) as temporary:
            save_file(contiguous, temporary, {"about": json.dumps(metadata)})
    except SafetensorError as error:  # such as a full disk
        raise UserError(f"{path}: cannot be written ({error}); the old file stays") from None


def load_tensors(path: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            metadata: dict[str, Any] = json.loads((file.metadata() or {}).get("about", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        advice = "get the file again, or train again with --restart"
        raise UserError(f"{path}: cannot be read as safetensors ({error}); {advice}") from None


def read_weights(folder: Path, model: Translator, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a run's translator, and their validation figures. `model`: a translator of the same shape."""
    path = weights_path(folder)
    if path.name == WEIGHTS:
        return load_tensors(path, device)
    return {name: value.to(device) for name, value in read_engine_weights(path.parent, model).items()}, {}


def load_weights(path: Path, module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load weights that were read from `path` into a module."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        difference = str(error).splitlines()[1].strip()  # torch lists the differences below a headline
        raise UserError(f"{path}: holds the weights of another model ({difference[:200]})") from None


def save_state(
    path: Path, parts: Mapping[str, nn.Module], adam: torch.optim.AdamW, metadata: dict[str, Any]
) -> None:
    """Everything that training resumes from."""
    tensors = {f"{part}.{name}": t for part, module in parts.items() for name, t in module.state_dict().items()}
    for number, state in adam.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": value for name, value in state.items()}
    save_tensors(path, tensors, metadata)


def load_state(path: Path, parts: Mapping[str, nn.Module], adam: torch.optim.AdamW) -> dict[str, Any]:
    tensors, metadata = load_tensors(path, torch.device("cpu"))
    for part, module in parts.items():
        prefix = f"{part}."
        weights = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        load_weights(path, module, weights)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("adam."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = value
    adam.load_state_dict({"state": state, "param_groups": adam.state_dict()["param_groups"]})
    return metadata


@dataclass(frozen=True)
class LoadedRun:
    """A trained model and what is needed to use it."""

    path: Path
    recipe: Recipe
    source: Language
    target: Language
    model: Translator
    about: dict[str, Any]  # step and validation figures of the weights
    agent: Agent | None = None
    agents: tuple[PolicySpec, ...] = ()  # policies of the agent, in the order of its latencies
    agent_search: Search | None = None  # settings of the search that the agent learnt from, if any

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def modules(self) -> list[nn.Module]:
        return [self.model, *filter(None, [self.agent])]

    @functools.cached_property
    def checksum(self) -> str:
        return weights_checksum(self.path)

    @functools.cached_property
    def rules(self) -> WordRules:
        return WordRules.of(self.recipe, self.source, self.target)

    def require_causal_encoder(self) -> None:
        """Raise a UserError if the model cannot translate from a part of the source."""
        if self.model.bidirectional:
            reason = "its encoder is bidirectional, so it needs the whole source"
            raise UserError(f"{self.path}: {reason}; use `whilst translate`")


def write_run(folder: Path, recipe: Recipe, source: Language, target: Language) -> None:
    source.save(folder, "source")
    target.save(folder, "target")
    write_recipe(folder, recipe)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    base = base_objective(recipe) or base_objective(recipe, folder)  # recorded when the run began
    origin = {BASE_OBJECTIVE: base} if base else {}
    write_json(folder / "recipe.json", {"format": FORMAT, "recipe": to_table(recipe), **origin})


def load_run(folder: Path, device: torch.device) -> LoadedRun:
    """The best model of a run, ready to translate, with its agent if it has one."""
    trained = load_translator(folder, device)
    return with_agent(trained, device) if has_agent(folder) else trained


def load_translator(folder: Path, device: torch.device) -> LoadedRun:
    """A run without its agent."""
    recipe = read_recipe(folder)
    if recipe.stages == ("agent",) and folder.name == AGENT:
        raise UserError(f"{folder}: is an agent; name its translator, {folder.parent}")
    weights = weights_path(folder)
    source, target = Language.load(folder, "source"), Language.load(folder, "target")
    model = Translator(recipe.model, len(source), len(target))
    tensors, metadata = read_weights(folder, model, torch.device("cpu"))
    load_weights(weights, model, tensors)
    return LoadedRun(folder, recipe, source, target, model.to(device).eval(), metadata)


def with_agent(trained: LoadedRun, device: torch.device) -> LoadedRun:
    """Add the agent that was trained for this run. Its recipe may be newer, so its evaluation settings apply."""
    folder = trained.path / AGENT
    recipe, weights = read_recipe(folder), folder / WEIGHTS
    agent = Agent(recipe.agent, recipe.model.width, recipe.latencies)
    tensors, metadata = load_tensors(weights, torch.device("cpu"))
    start = metadata.get("start")
    if start is not None and start != trained.checksum:  # computed only if needed: it takes time
        raise UserError(
            f"{folder}: was trained for other weights of {trained.path}, which have changed since;"
            " train the agent anew, or delete its folder"
        )
    load_weights(weights, agent, tensors)
    agent_search = recipe.search if recipe.agent.labels == "search" or recipe.agent.bounded else None
    search = agent_search or trained.recipe.search
    merged = replace(trained.recipe, file=recipe.file, rung=recipe.rung, search=search)
    merged = replace(merged, agent=recipe.agent, evaluate=recipe.evaluate)
    policies = tuple(agent_policies(recipe.search.intervals, recipe.agent.labels))
    agent = agent.to(device).eval()
    return replace(trained, recipe=merged, agent=agent, agents=policies, agent_search=agent_search)


def copy_run(folder: Path, to: Path, dataset: str) -> None:
    """Copy to another folder what is needed to translate with this run's model, and to evaluate it on a dataset."""
    table = read_json(folder / "recipe.json")
    table["recipe"]["data"]["dataset"] = dataset
    write_json(to / "recipe.json", table)
    for path in (*folder.glob("source.*"), *folder.glob("target.*")):
        with writing(to / path.name) as temporary:
            shutil.copyfile(path, temporary)
    weights = weights_path(folder)
    if weights.name != WEIGHTS:
        shutil.copytree(weights.parent, to / SHIPPED, dirs_exist_ok=True)
        return
    with writing(to / WEIGHTS) as temporary:  # last: if this file exists, so do all others
        shutil.copyfile(weights, temporary)
