"""What a server translates with: a trained run, its latencies, the pool that does the steps. The only loader."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from whilst.checkpoint import AGENT, load_run
from whilst.eager import steps_of, text_of
from whilst.errors import UserError
from whilst.evaluate import agent_names, choose, home, with_settings
from whilst.live import Text
from whilst.policy import Policy
from whilst.processes import pick_device
from whilst.server.pool import Batched, Pool, Single
from whilst.server.rounded import round_linears
from whilst.terminal import FIXED, KINDS, LATENCIES, named


@dataclass(frozen=True)
class Served:
    name: str
    source: str
    target: str
    text: Text
    latencies: dict[str, str]  # low, medium, high -> a policy's name
    check: Callable[[str], object]  # a policy's name: a UserError for one that this model has not
    pool: Callable[[int], Pool]  # for so many sessions

    def policy(self, latency: str) -> str:
        """The policy's name for a latency or a policy's name."""
        name = self.latencies.get(latency, latency)
        if name.partition("-")[0] not in KINDS:
            raise UserError(f"latency {latency[:40]!r}: unknown; write low, medium, high, or one such as wait-3")
        self.check(name)
        return name


@dataclass(frozen=True)
class How:
    """How the model's steps are done."""

    engine: str = "batch"  # all sessions' together, or "single": one by one
    precision: str = "fp32"  # or "bf16": linear layers multiply in it
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        for name, known in (("engine", ("batch", "single")), ("precision", ("fp32", "bf16"))):
            if (value := getattr(self, name)) not in known:
                raise UserError(f"--{name} {value}: write {' or '.join(known)}")


def serve_run(run: Path, overrides: list[str], how: How) -> Served:
    """The model of a run folder with its agent, if it has one; all policies share it."""
    torch.set_num_threads(how.threads)
    tuned = home(run, "agent")
    folder = tuned if (tuned / AGENT / "model.safetensors").is_file() else run
    trained = with_settings(load_run(folder, pick_device(how.device)), overrides)
    if how.precision == "bf16":
        for part in filter(None, (trained.model, trained.agent)):
            round_linears(part)
    if trained.recipe.model.cross == "monotone":
        names: list[str] | tuple[str, ...] = ["mma"]
    else:
        names = agent_names(trained) if trained.agent is not None else FIXED
    text = text_of(trained)

    @lru_cache(maxsize=64)
    def policy(name: str) -> Policy:
        return choose(name, trained, trained.recipe.evaluate, None)

    pools: dict[str, Callable[[int], Pool]] = {
        "batch": lambda places: Batched(trained.model, policy, places, text.longest, text.most(text.longest)),
        "single": lambda places: Single(lambda name: steps_of(trained, policy(name), text), places),
    }
    data = trained.recipe.data
    latencies = {latency: named(names, latency) for latency in LATENCIES}
    pair = f"{data.source}-{data.target}"
    return Served(pair, data.source, data.target, text, latencies, policy, pools[how.engine])
