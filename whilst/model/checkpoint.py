"""What a run folder holds, and how it is written so that it can be cut off at any moment.

recipe.json            every setting of the run
source.*, target.*     the two languages, so that the folder translates by itself
model.safetensors      the best weights so far (those that are used), with their validation figures
last.safetensors       weights, averages and moments, to go on from
weights-N.safetensors  validated weights that wait for their average (train.average)
history.jsonl          training and validation figures by step
labels/                the reads that search finds with these weights, for agents
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

from whilst.core.config import to_table
from whilst.core.errors import UserError
from whilst.core.files import sha256, write_json, writing
from whilst.core.policy_spec import PolicySpec, agent_policies
from whilst.core.settings import Recipe, Search
from whilst.data.vocabulary import Language
from whilst.model.agent import Agent
from whilst.model.run_folder import AGENT, BEGAN, FORMAT, WEIGHTS, began_with, has_agent, read_recipe, weights_of
from whilst.model.transformer import Translator


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        with writing(path) as temporary:
            save_file(whole, temporary, {"about": json.dumps(about)})
    except SafetensorError as error:  # which is how it tells of a full disk
        raise UserError(f"{path}: cannot be written ({error}); what was there stays") from None


def load_tensors(path: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            about: dict[str, Any] = json.loads((file.metadata() or {}).get("about", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        advice = "get it anew, or train again with --restart"
        raise UserError(f"{path}: cannot be read as safetensors ({error}); {advice}") from None


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
    agents: tuple[PolicySpec, ...] = ()  # the policies of its agent, in the order of its latencies
    taught: Search | None = None  # the search that its agent has learnt, if it has learnt one

    @functools.cached_property
    def checksum(self) -> str:
        return sha256(self.path / WEIGHTS)

    def require_parts(self) -> None:
        """For whoever asks what a part of the source tells it."""
        if self.model.bidirectional:
            why = "its encoder needs the whole source, so it has nothing to say about a part of it"
            raise UserError(f"{self.path}: {why}")


def write_run(folder: Path, recipe: Recipe, source: Language, target: Language) -> None:
    source.save(folder, "source")
    target.save(folder, "target")
    write_recipe(folder, recipe)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    base = began_with(recipe) or began_with(recipe, folder)  # it may have been there when the run began
    about = {BEGAN: base} if base else {}
    write_json(folder / "recipe.json", {"format": FORMAT, "recipe": to_table(recipe), **about})


def load_run(folder: Path, device: torch.device) -> Trained:
    """The best model of a run, ready to translate, with its agent if it has one."""
    trained = load_translator(folder, device)
    return with_agent(trained, device) if has_agent(folder) else trained


def load_translator(folder: Path, device: torch.device) -> Trained:
    """Without its agent: for whoever makes a new one, or needs none."""
    recipe = read_recipe(folder)
    if recipe.stages == ("agent",) and folder.name == AGENT:
        raise UserError(f"{folder}: is an agent; name its translator, {folder.parent}")
    weights = weights_of(folder)
    source, target = Language.load(folder, "source"), Language.load(folder, "target")
    model = Translator(recipe.model, len(source.vocabulary), len(target.vocabulary))
    tensors, about = load_tensors(weights, torch.device("cpu"))
    load_weights(weights, model, tensors)
    return Trained(folder, recipe, source, target, model.to(device).eval(), about)


def with_agent(trained: Trained, device: torch.device) -> Trained:
    """With the agent that was trained for this run, and what it has learnt: it may have come later.

    How to evaluate is said by the recipe that came last, and it need not be the translator's.
    """
    folder = trained.path / AGENT
    recipe, weights = read_recipe(folder), folder / WEIGHTS
    agent = Agent(recipe.agent, recipe.model.width, recipe.latencies)
    tensors, about = load_tensors(weights, torch.device("cpu"))
    start = about.get("start")
    if start is not None and start != trained.checksum:  # a checksum takes time: only where there is one to compare
        raise UserError(
            f"{folder}: was trained for other weights of {trained.path}, which have changed since;"
            " train the agent anew, or delete its folder"
        )
    load_weights(weights, agent, tensors)
    taught = recipe.search if recipe.agent.labels == "search" or recipe.agent.bounded else None
    search = taught or trained.recipe.search
    both = replace(trained.recipe, search=search, agent=recipe.agent, evaluate=recipe.evaluate)
    names = tuple(agent_policies(recipe.search.intervals, recipe.agent.labels))
    return replace(trained, recipe=both, agent=agent.to(device).eval(), agents=names, taught=taught)


def copy_run(folder: Path, to: Path) -> None:
    """Give another folder all that it takes to translate with this run's model."""
    for path in (folder / "recipe.json", *folder.glob("source.*"), *folder.glob("target.*")):
        with writing(to / path.name) as temporary:
            shutil.copyfile(path, temporary)
    with writing(to / "model.safetensors") as temporary:  # last: whoever finds it finds the others
        shutil.copyfile(folder / "model.safetensors", temporary)
