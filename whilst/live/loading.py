"""From a model's name to what translates live, with PyTorch or the CPU engine. PyTorch is imported only if used.

A name is a run folder, a folder made by `whilst export`, or a model that comes with the package (whilst/models).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.policy_spec import LATENCIES, PolicySpec, for_latency, parse_live
from whilst.engine.engine_cache import engine_of, has_shipped
from whilst.engine.runtime import PRECISIONS, Exported, export_obstacle, is_export, load_exported
from whilst.live.engine_steps import OnEngine, Rule, rule
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
class Wanted:
    """Which model and how: what `live` and others are told by their options."""

    model: str
    latency: str = "medium"
    engine: str = "auto"
    precision: str = "int8"
    overrides: tuple[str, ...] = ()
    device: str = "auto"  # of PyTorch
    longest: int = MAX_UNITS
    by_lines: bool = False

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
class Opened:
    """A model under a policy, ready for any number of sessions."""

    text: TextPipeline
    policy: PolicySpec
    engine: str  # who does the steps, in words
    about: str  # what there is to say about the choice; mostly nothing
    steps: Callable[[], Backend]  # those of a new session


def resolve(name: str) -> Path:
    """The folder of a model's name: a path, else a model of the package."""
    try:
        folder = Path(name).expanduser()
    except RuntimeError:  # the home of a user that there is not
        folder = Path(name)
    if name and folder.exists():
        return folder
    bundled = BUNDLED / name
    if name and "/" not in name and bundled.is_dir():
        return bundled
    known = sorted(path.name for path in BUNDLED.glob("*/") if (path / "recipe.json").is_file())
    there = f"those of the package are {', '.join(known)}" if known else "the package comes with none"
    raise UserError(f"model {name!r}: no such folder, and no model of that name; {there}")


def open_model(wanted: Wanted, say: Callable[[str], None]) -> Opened:
    """`say` is told what takes time or does not go as it should."""
    folder = resolve(wanted.model)
    if is_export(folder):
        if wanted.engine == "torch":
            raise UserError(f"{folder}: is an export, which PyTorch cannot use; name the run that it came from")
        return open_exported(load_exported(folder, wanted.precision), wanted)
    if (folder / BUNDLE).is_file():
        check_bundle(folder)
    home, policy, about = choose_policy(folder, wanted.latency)
    if not _takes_engine(wanted, home, policy):
        return _eager(wanted, home, policy, about)
    rule_in(home, policy, wanted.overrides)  # what is wrong with it must not wait until the engine is made
    return open_exported(engine_of(home, wanted.precision, say), wanted, home)


def _takes_engine(wanted: Wanted, home: Path, policy: PolicySpec) -> bool:
    """Whether the CPU engine is to do it."""
    reason = export_obstacle(read_recipe(home).model)
    if wanted.engine == "onnx" and reason:
        raise UserError(f"{home}: {reason}; leave out --engine")
    if wanted.engine != "auto":
        return wanted.engine == "onnx"
    packages = find_spec("onnxruntime") and (has_shipped(home, wanted.precision) or find_spec("onnx"))
    return bool(packages) and wanted.device in ("auto", "cpu") and not reason and policy.kind != "mma"


def rule_in(run: Path, policy: PolicySpec, overrides: Sequence[str]) -> Rule:
    """The policy of this name in a run folder."""
    recipe = override_after_training(
        replace(read_recipe(run), evaluate=evaluation_settings(run)), list(overrides), run
    )
    pace = length_ratio_of(run, recipe) if policy.kind == "diagonal" else None
    return rule(policy, agent_policies_of(run), recipe.evaluate, pace)


def open_exported(exported: Exported, wanted: Wanted, run: Path | None = None) -> Opened:
    """An export that is loaded already. `run`: what it is a kept copy of, which may know more by now (the pace)."""
    if wanted.latency in LATENCIES:
        policy, about = for_latency(wanted.latency, exported.agents)
    else:
        policy, about = parse_live(wanted.latency), ""
    recipe = override_after_training(exported.recipe, list(wanted.overrides), exported.path)
    text = TextPipeline.of(recipe, exported.source, exported.target, wanted.longest, wanted.by_lines)
    if run is None:
        chosen = rule(policy, exported.agents, recipe.evaluate, exported.length_ratio)
    else:
        chosen = rule_in(run, policy, wanted.overrides)
    return Opened(text, policy, f"ONNX {exported.precision}", about, lambda: OnEngine(exported.engine, chosen))


def _eager(wanted: Wanted, home: Path, name: PolicySpec, about: str) -> Opened:
    from whilst.live.eager import load, steps_of, text_of

    trained, policy = load(home, name, list(wanted.overrides), wanted.device)
    text = text_of(trained, wanted.longest, wanted.by_lines)
    return Opened(text, name, "PyTorch", about, lambda: steps_of(trained, policy, text))
