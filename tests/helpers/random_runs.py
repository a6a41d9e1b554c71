"""Run folders with random weights, for tests that need no trained model."""

from dataclasses import replace
from pathlib import Path

import torch

from tests.conftest import make_model
from tests.helpers.runs import short_recipe
from tests.policy.test_learnt import learnt
from whilst.core.settings import Agent as AgentSettings
from whilst.core.settings import Data, Model, Objective, Search
from whilst.data.dataset import Dataset
from whilst.model.agent import Agent
from whilst.model.checkpoint import save_tensors, write_run
from whilst.model.run_folder import AGENT
from whilst.model.transformer import Translator


def make_run(folder: Path, data: Data, dataset: Dataset, model: Model | None = None, agent: bool = True) -> Path:
    """A run with random weights."""
    recipe = short_recipe(data, folder)
    if model is not None:
        objective = {"bidirectional": "full", "monotone": "mma"}[
            "monotone" if model.cross == "monotone" else model.encoder
        ]
        recipe = replace(recipe, model=model, objective=Objective(name=objective))  # type: ignore[arg-type]
    recipe = replace(recipe, agent=AgentSettings(hidden=8))
    torch.manual_seed(1)
    translator = Translator(recipe.model, len(dataset.source), len(dataset.target))
    write_run(folder, recipe, dataset.source, dataset.target)
    save_tensors(folder / "model.safetensors", translator.state_dict(), {})
    if agent:
        write_run(folder / AGENT, recipe, dataset.source, dataset.target)
        made = Agent(recipe.agent, recipe.model.width, recipe.latencies)
        save_tensors(folder / AGENT / "model.safetensors", made.state_dict(), {})
    return folder


def make_varied_run(folder: Path, data: Data, dataset: Dataset) -> Path:
    """One whose words depend on the source, with an agent of two latencies that depends on the source too."""
    recipe = replace(
        short_recipe(data, folder), search=Search(intervals=((1, 4), (3, 6))), agent=AgentSettings(hidden=8)
    )
    model = make_model(recipe.model, (len(dataset.source), len(dataset.target)), seed=3)
    agent = learnt(model, recipe.agent).agent
    for place, module in ((folder, model), (folder / AGENT, agent)):
        write_run(place, recipe, dataset.source, dataset.target)
        save_tensors(place / "model.safetensors", module.float().state_dict(), {})
    return folder
