"""Open a model by name for live translation, with PyTorch or the CPU engine. Imports PyTorch only if it is used.

A name is a run folder, a folder made by `whilst export`, or a model that comes with the package (whilst/models).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.policy_spec import LATENCIES, PolicySpec, for_latency, parse_live
from whilst.core.settings import Recipe
from whilst.engine.engine_cache import engine_of, has_shipped
from whilst.engine.runtime import PRECISIONS, Exported, export_obstacle, is_export, load_exported
from whilst.live.engine_backend import KINDS, EngineBackend, Rule, make_rule
from whilst.live.session import MAX_UNITS, Backend, TextPipeline
from whilst.model.run_folder import (
    BUNDLE,
    agent_policies_of,
    check_bundle,
    choose_policy,
    evaluation_settings,
    length_ratio_of,
    override_after_training,
    read_recipe,
)

ENGINES = "auto", "torch", "onnx"
BUNDLED = Path(__file__).parents[1] / "models"


@dataclass(frozen=True)
class ModelOptions:
    model: str
    latency: str = "medium"  # or the name of a policy
    engine: str = "auto"
    precision: str = "int8"  # of the CPU engine
    overrides: tuple[str, ...] = ()
    device: str = "auto"  # of PyTorch
    max_units: int = MAX_UNITS  # of a sentence
    by_lines: bool = False
    threads: int = 0  # 0: the engine's default

    def __post_init__(self) -> None:
        if self.latency not in LATENCIES:
            parse_live(self.latency)
        if self.engine not in ENGINES:
            raise UserError(f"--engine {self.engine}: must be {', '.join(ENGINES)}")
        if self.precision not in PRECISIONS:
            raise UserError(f"--precision {self.precision}: must be {' or '.join(PRECISIONS)}")
        if self.engine == "onnx" and self.device not in ("auto", "cpu"):
            raise UserError(f"--engine onnx works on the CPU: leave out --device {self.device}")


@dataclass(frozen=True)
class LiveModel:
    """A model for any number of sessions."""

    text: TextPipeline
    recipe: Recipe
    policy: PolicySpec  # of the wanted latency
    agents: Sequence[PolicySpec]
    engine: str  # for users
    note: str  # on the choice of the policy, mostly empty
    find: Callable[[PolicySpec], object]  # its policy or rule; a UserError if it has no such policy
    make_backend: Callable[[PolicySpec], Backend]  # of a new session

    def backend(self, latency: str | None = None) -> Backend:
        """Of a new session, under the wanted policy or that of another latency."""
        return self.make_backend(self.policy if latency is None else self.policy_of(latency))

    def policy_of(self, latency: str) -> PolicySpec:
        """The policy for low, medium, high or the name of a policy. A UserError if the model has no such policy."""
        if latency not in LATENCIES:
            policy = parse_live(latency)
            self.find(policy)
            return policy
        return self.policy if self.recipe.model.cross == "monotone" else for_latency(latency, self.agents)[0]

    @property
    def latencies(self) -> dict[str, str]:
        """The names of the policies for low, medium and high."""
        return {latency: str(self.policy_of(latency)) for latency in LATENCIES}


def resolve(name: str) -> Path:
    """The folder of a model's name: a path, else a model of the package."""
    try:
        folder = Path(name).expanduser()
    except RuntimeError:  # the home of an unknown user
        folder = Path(name)
    if name and folder.exists():
        return folder
    bundled = BUNDLED / name
    if name and "/" not in name and bundled.is_dir():
        return bundled
    known = sorted(path.name for path in BUNDLED.glob("*/") if (path / "recipe.json").is_file())
    there = f"those of the package are {', '.join(known)}" if known else "the package comes with none"
    raise UserError(f"model {name!r}: no such folder, and no model of that name; {there}")


def open_model(options: ModelOptions, notify: Callable[[str], None]) -> LiveModel:
    """`notify` gets messages on what takes time or fails without harm."""
    folder = resolve(options.model)
    if is_export(folder):
        if options.engine == "torch":
            how = "choose --engine onnx, or name the run that it came from"
            raise UserError(f"{folder}: is an export, which PyTorch cannot use; {how}")
        return open_exported(load_exported(folder, options.precision, options.threads or 1), options)
    if (folder / BUNDLE).is_file():
        check_bundle(folder)
    home, policy, note = choose_policy(folder, options.latency)
    if not _is_for_engine(options, home, policy):
        from whilst.live.torch_backend import open_run

        return open_run(options, home, policy, note)
    rule_in(home, policy, options.overrides)  # raises errors before the engine is made
    return open_exported(engine_of(home, options.precision, notify, options.threads or 1), options, home)


def _is_for_engine(options: ModelOptions, home: Path, policy: PolicySpec) -> bool:
    reason = export_obstacle(read_recipe(home).model)
    if options.engine == "onnx" and reason:
        raise UserError(f"{home}: {reason}; leave out --engine")
    if options.engine != "auto":
        return options.engine == "onnx"
    packages = find_spec("onnxruntime") and (has_shipped(home, options.precision) or find_spec("onnx"))
    return bool(packages) and options.device in ("auto", "cpu") and not reason and policy.kind in KINDS


def rule_in(run: Path, policy: PolicySpec, overrides: Sequence[str]) -> Rule:
    """The policy's rule in a run folder."""
    recipe = override_after_training(
        replace(read_recipe(run), evaluate=evaluation_settings(run)), list(overrides), run
    )
    length_ratio = length_ratio_of(run, recipe) if policy.kind == "diagonal" else None
    return make_rule(policy, agent_policies_of(run), recipe.evaluate, length_ratio)


def open_exported(exported: Exported, options: ModelOptions, run: Path | None = None) -> LiveModel:
    """`run`: the folder that it was made of, if that is here: its settings may be newer, its length ratio known."""
    note = ""
    if options.latency in LATENCIES:
        policy, note = for_latency(options.latency, exported.agents)
    else:
        policy = parse_live(options.latency)
    recipe = override_after_training(exported.recipe, list(options.overrides), exported.path)
    text = TextPipeline.of(recipe, exported.source, exported.target, options.max_units, options.by_lines)

    @lru_cache(maxsize=64)
    def find(spec: PolicySpec) -> Rule:
        if run is not None:
            return rule_in(run, spec, options.overrides)
        return make_rule(spec, exported.agents, recipe.evaluate, exported.length_ratio)

    def make(spec: PolicySpec) -> Backend:
        return EngineBackend(exported.engine, find(spec))

    find(policy)  # raises errors now, not in the first session
    engine = f"ONNX {exported.precision}"
    return LiveModel(text, recipe, policy, exported.agents, engine, note, find, make)
