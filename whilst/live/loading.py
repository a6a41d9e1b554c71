"""Open a model by name for live translation, with PyTorch or the CPU engine. Imports PyTorch only if it is used.

A name is the path of a run or of a folder made by `whilst export`, the name of a model that comes with the package
(whilst/models), or "hf:NAME" for a pretrained model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whilst.core.config import read_recipe
from whilst.core.errors import UserError
from whilst.core.files import find_model
from whilst.core.policy_spec import LATENCIES, AtLag, PolicySpec, for_latency
from whilst.core.settings import Recipe
from whilst.engine.runtime import (
    PRECISIONS,
    Exported,
    engine_of,
    export_obstacle,
    has_shipped,
    is_export,
    load_exported,
)
from whilst.live.engine_backend import KINDS, EngineBackend, Rule, make_rule
from whilst.live.session import Backend, Session, TextPipeline
from whilst.model.lags import at_lag, lag_finder
from whilst.model.run_folder import BUNDLE, check_bundle, choose_policy, override_after_training

if TYPE_CHECKING:
    from whilst.evaluation.trace import Sentence

ENGINES = "auto", "torch", "onnx"  # auto: onnx where it is installed and supports the model and its policy


@dataclass(frozen=True)
class ModelOptions:
    model: str
    latency: str = "medium"  # or the name of a policy
    engine: str = "auto"
    precision: str = "int8"  # of the CPU engine
    overrides: tuple[str, ...] = ()
    device: str = "auto"  # of PyTorch
    threads: int = 0  # of PyTorch; 0: its default

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UserError(f"--engine {self.engine}: must be {', '.join(ENGINES)}")
        if self.precision not in PRECISIONS:
            raise UserError(f"--precision {self.precision}: must be {' or '.join(PRECISIONS)}")
        if self.engine == "onnx" and self.device not in ("auto", "cpu"):
            raise UserError(f"--engine onnx works on the CPU: leave out --device {self.device}")


@dataclass(frozen=True)
class Model:
    """A model for live translation. Its sessions share the weights."""

    text: TextPipeline
    recipe: Recipe
    policy: PolicySpec  # of the latency that the model was opened for
    agents: Sequence[PolicySpec]  # policies of the agent, by rising latency; empty: low, medium and high are wait-k
    at_lag: AtLag  # finds the policy behind a name such as lag-3
    engine: str  # its name for users
    note: str  # for the user, on the choice of the policy; usually empty
    find: Callable[[PolicySpec], Any]  # the policy or rule for a backend; raises a UserError if there is none
    make_backend: Callable[[Any, TextPipeline], Backend]  # for a new session, from a result of `find`

    def __post_init__(self) -> None:
        self.find(self.policy)  # raises errors now, not in the first session

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target, such as ("en", "vi")."""
        return self.recipe.data.source, self.recipe.data.target

    @property
    def latencies(self) -> dict[str, str]:
        """The policies behind low, medium and high, such as {"low": "agent-1", ...}."""
        return {latency: str(self.policy_of(latency)) for latency in LATENCIES}

    def policy_of(self, latency: str) -> PolicySpec:
        """The policy for low, medium, high or a policy's name, such as lag-3. A UserError if there is none."""
        if latency in LATENCIES and self.recipe.model.cross == "monotone":
            return self.policy
        policy, _ = for_latency(latency, self.agents, self.at_lag)
        self.find(policy)
        return policy

    def backend(self, latency: str | None = None) -> Backend:
        """The backend of a new session; by default under the policy that the model was opened with."""
        policy = self.policy if latency is None else self.policy_of(latency)
        return self.make_backend(self.find(policy), self.text)

    def session(self, latency: str | None = None) -> Session:
        """A live translation under low, medium, high or a policy; by default the one the model was opened with.

        `feed` takes one or more words and returns what can be written now; `finish` ends the sentence.

            session = model.session("low")
            for word in "Thank you very much.".split():
                for event in session.feed(word):
                    print(event)
        """
        return Session(self.backend(latency), self.text)

    def translate(
        self, lines: Sequence[str], policy: str = "medium", references: Sequence[str] | None = None
    ) -> "list[Sentence]":
        """Translate sentences under a policy; the results have what had been read before each word and unit.

        `references` are kept in the result, for `whilst.score`.

            [sentence] = model.translate(["Thank you very much."], policy="wait-3")
            print(sentence.prediction, sentence.delays)
        """
        from whilst.live.evaluate_export import translate_live

        sources = [self.text.clean(line) for line in lines]
        references = [""] * len(lines) if references is None else references
        return list(translate_live(self.backend(policy), self.text, sources, references))


@dataclass(frozen=True)
class EngineModel(Model):
    """A live model on the CPU engine."""


def open_model(options: ModelOptions) -> Model:
    if Recipe(run=options.model).checkpoint:
        from whilst.live.torch_backend import open_checkpoint

        return open_checkpoint(options)
    folder = find_model(options.model)
    if is_export(folder):
        if options.engine == "torch":
            advice = "choose --engine onnx, or name the run that it came from"
            raise UserError(f"{folder}: is an export, which PyTorch cannot use; {advice}")
        return open_exported(load_exported(folder, options.precision), options)
    if (folder / BUNDLE).is_file():
        check_bundle(folder)
    run, policy, note = choose_policy(folder, options.latency)
    if policy.kind == "lag":
        policy, note = at_lag(run, policy)
    if not _is_for_engine(options, run, policy):
        from whilst.live.torch_backend import open_run

        return open_run(options, run, policy, note)
    return open_exported(engine_of(run, options.precision), options, run)


def _is_for_engine(options: ModelOptions, run: Path, policy: PolicySpec) -> bool:
    reason = export_obstacle(read_recipe(run).model)
    if options.engine == "onnx" and reason:
        raise UserError(f"{run}: {reason}; leave out --engine")
    if options.engine != "auto":
        return options.engine == "onnx"
    installed = find_spec("onnxruntime") and (has_shipped(run, options.precision) or find_spec("onnx"))
    return bool(installed) and options.device in ("auto", "cpu") and not reason and policy.kind in KINDS


def open_exported(exported: Exported, options: ModelOptions, run: Path | None = None) -> EngineModel:
    """`run`: the folder from which the export was made, if it is known."""
    find_lag = lag_finder(run or exported.path)
    policy, note = for_latency(options.latency, exported.agents, find_lag)
    recipe = override_after_training(exported.recipe, list(options.overrides), exported.path)
    text = TextPipeline.of(recipe, exported.source, exported.target)

    def find(spec: PolicySpec) -> Rule:
        return make_rule(spec, exported.agents, recipe.evaluate, exported.length_ratio)

    def make(rule: Rule, _: TextPipeline) -> Backend:
        return EngineBackend(exported.engine, rule)

    engine = f"ONNX {exported.precision}"
    return EngineModel(text, recipe, policy, exported.agents, find_lag, engine, note, find, make)
