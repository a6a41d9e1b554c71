"""What a server translates with: a model, its latencies, the pool that does the steps. The only loader."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from whilst.core.console import log
from whilst.core.distributed import pick_device
from whilst.core.errors import UserError
from whilst.core.policy_spec import LATENCIES, for_latency, parse_live
from whilst.core.settings import Data
from whilst.engine.engine_cache import engine_of
from whilst.engine.runtime import is_export, load_exported
from whilst.evaluation.evaluate import choose, with_settings
from whilst.live.eager import require_live, steps_of, text_of
from whilst.live.loading import Opened, Wanted, open_exported, resolve
from whilst.live.session import TextPipeline
from whilst.model.checkpoint import load_run
from whilst.model.run_folder import BUNDLE, check_bundle, choose_policy
from whilst.policy import Policy
from whilst.server.packed import PRECISIONS, can_pack, pack
from whilst.server.pool import Batched, Pool, Single

# Who does the steps, and the precisions of its weights, the usual one first.
ENGINES = {"batch": tuple(PRECISIONS), "single": tuple(PRECISIONS), "onnx": ("int8", "fp32")}


@dataclass(frozen=True)
class How:
    """How the model's steps are done."""

    engine: str = "batch"  # all sessions' together; "single": one by one; "onnx": so too, with exported graphs
    precision: str = ""  # empty: the engine's usual one
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UserError(f"--engine {self.engine}: write {', '.join(ENGINES)}")
        if self.precision not in ("", *ENGINES[self.engine]):
            known = " or ".join(ENGINES[self.engine])
            raise UserError(f"--precision {self.precision}: with --engine {self.engine} it is {known}")

    @property
    def weights(self) -> str:
        return self.precision or ENGINES[self.engine][0]


@dataclass(frozen=True)
class Served:
    name: str
    source: str
    target: str
    text: TextPipeline
    latencies: dict[str, str]  # low, medium, high -> a policy's name
    check: Callable[[str], object]  # a policy's name: a UserError for one that this model has not
    pool: Callable[[int], Pool]  # for so many sessions
    precision: str  # of the weights as they are used

    def policy(self, latency: str) -> str:
        """The canonical name of the policy for a latency or a policy's name."""
        name = self.latencies.get(latency) or str(parse_live(latency))
        self.check(name)
        return name


def serve_model(model: str, overrides: Sequence[str], how: How) -> Served:
    """By its name: a run folder, an export, or one that comes with the package."""
    folder = resolve(model)
    exported = is_export(folder)
    if (folder / BUNDLE).is_file():
        check_bundle(folder)
    if exported and how.engine != "onnx":
        raise UserError(f"{folder}: is an export; serve it with --engine onnx, or name the run that it came from")
    return on_engine(folder, overrides, how, exported) if how.engine == "onnx" else on_torch(folder, overrides, how)


def on_torch(folder: Path, overrides: Sequence[str], how: How) -> Served:
    """All policies share the model that low, medium and high are for."""
    torch.set_num_threads(how.threads)  # of the whole process, so not where PyTorch does no steps
    home = choose_policy(folder, "medium")[0]
    trained = with_settings(load_run(home, pick_device(how.device)), list(overrides))
    model, output = trained.model, None
    require_live(model)  # now: pools are made when clients may come already
    # A bundle's weights are in half precision as they are: nothing is lost, and it is faster.
    halves = (folder / BUNDLE).is_file() and can_pack(model, "fp16")
    weights = how.precision or ("fp16" if halves else how.weights)
    if can_pack(model, weights):
        layer = PRECISIONS[weights]
        for part in filter(None, (model, trained.agent)):
            pack(part, layer)
        output = layer(model.target_embedding.weight, None)
    elif weights != "fp32":
        raise UserError(f"--precision {weights}: this machine cannot; leave it away")
    text = text_of(trained)

    @lru_cache(maxsize=64)
    def policy(name: str) -> Policy:
        writer = output if how.engine == "batch" else None  # steps one by one write by the model's own
        return choose(parse_live(name), trained, trained.recipe.evaluate, None, writer)

    pools: dict[str, Callable[[int], Pool]] = {
        "batch": lambda places: Batched(
            model, policy, places, text.max_units, text.max_target_units(text.max_units), output
        ),
        "single": lambda places: Single(lambda name: steps_of(trained, policy(name), text), places),
    }
    latencies = {latency: str(choose_policy(folder, latency)[1]) for latency in LATENCIES}
    return served(trained.recipe.data, text, latencies, policy, pools[how.engine], weights)


def on_engine(folder: Path, overrides: Sequence[str], how: How, is_export: bool) -> Served:
    run = None if is_export else choose_policy(folder, "medium")[0]
    if run is None:
        exported = load_exported(folder, how.weights, how.threads)
    else:
        exported = engine_of(run, how.weights, log, how.threads)

    @lru_cache(maxsize=64)
    def opened(name: str) -> Opened:
        return open_exported(exported, Wanted("", name, "onnx", how.weights, tuple(overrides)), run)

    def pool(places: int) -> Pool:
        return Single(lambda name: opened(name).steps(), places)

    latencies = {latency: str(for_latency(latency, exported.agents)[0]) for latency in LATENCIES}
    return served(exported.recipe.data, opened("medium").text, latencies, opened, pool, how.weights)


def served(
    data: Data,
    text: TextPipeline,
    latencies: dict[str, str],
    check: Callable[[str], object],
    pool: Callable[[int], Pool],
    precision: str,
) -> Served:
    name = f"{data.source}-{data.target}"
    return Served(name, data.source, data.target, text, latencies, check, pool, precision)
