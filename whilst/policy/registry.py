"""Make the policy of a PolicySpec. `register` adds a kind of policy, whose names every command then accepts."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path

from whilst.core.errors import UserError, as_user_error
from whilst.core.files import require_file
from whilst.core.policy_spec import KINDS, PolicyKind, PolicySpec
from whilst.data.vocabulary import Language
from whilst.model.agent import Agent
from whilst.model.lags import at_lag
from whilst.model.transformer import Translator
from whilst.policy.base import Policy
from whilst.policy.fixed import Diagonal, Full, Oracle, WaitK
from whilst.policy.learnt import AgentPolicy, Monotonic
from whilst.policy.patient import Patient
from whilst.policy.words import ByWords, WordPolicy

NO_HEADS = 'policy mma: this model has no monotonic heads; train one with model.cross = "monotone"'
NO_AGENT = 'policy {}: {} has no agent; train one with stages = [… "agent"]'


@dataclass(frozen=True)
class Context:
    """What policies are made from."""

    model: Translator
    languages: tuple[Language, Language]  # source and target
    run: str  # path of the run folder
    agent: Agent | None
    agent_policies: Sequence[PolicySpec]  # in the order of the agent's intervals
    threshold: float  # of agents whose spec has none
    length_ratio: Callable[[], tuple[int, int]]  # J and I of the training data
    reference_reads: Callable[[PolicySpec], Sequence[Sequence[int]]]  # of the oracle, for each sentence
    is_patient: bool  # evaluate.ending = "patient"


Factory = Callable[[PolicySpec, Context], Policy | WordPolicy]


def make_agent(spec: PolicySpec, context: Context) -> Policy:
    if context.agent is None:
        raise UserError(NO_AGENT.format(spec.name, context.run))
    threshold = context.threshold if spec.threshold is None else spec.threshold
    return AgentPolicy(spec, context.agent, context.model, spec.index_in(context.agent_policies), threshold)


def make_monotonic(spec: PolicySpec, context: Context) -> Policy:  # noqa: ARG001
    if context.model.settings.cross != "monotone":
        raise UserError(NO_HEADS)
    return Monotonic()


def refuse(spec: PolicySpec, context: Context) -> Policy:  # noqa: ARG001
    """The factory of offline policies, which some commands decode in another way."""
    commands = f"`whilst translate`, `evaluate` and `live --latency {spec}`"
    raise UserError(f"policy {spec}: translates the source anew after every word, which only {commands} can do")


FACTORIES: dict[str, Factory] = {
    "full": lambda spec, context: Full(),  # noqa: ARG005
    "wait": lambda spec, context: WaitK(spec.count),  # noqa: ARG005
    "diagonal": lambda spec, context: Diagonal(spec.count, context.length_ratio()),
    "mma": make_monotonic,
    "agent": make_agent,
    "lag": lambda spec, context: make_agent(at_lag(Path(context.run), spec)[0], context),
    "oracle": lambda spec, context: Oracle(spec, context.reference_reads(spec)),
    "local-agreement": refuse,
    "align-att": refuse,
}


def register(kind: str, factory: Factory, about: PolicyKind | None = None) -> None:
    """Add a kind of policy. `about` says how names of this kind are written and what its policies can do."""
    if kind in KINDS or "-" in kind or "." in kind:
        raise ValueError(f"policy kind {kind!r}: must be new and without '-' and '.'")
    KINDS[kind], FACTORIES[kind] = about or PolicyKind(usage=kind), factory


def register_files(paths: Iterable[Path]) -> None:
    """Run Python files that register policies, each only once."""
    for path in paths:
        require_file(path)
        name = f"policies of {path.resolve()}"
        if name in sys.modules:
            continue
        loader, known = SourceFileLoader(name, str(path)), set(KINDS)
        module = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
        sys.modules[name] = module  # dataclasses look their module up here
        try:
            with as_user_error(f"--policy-file {path}"):
                loader.exec_module(module)
            if KINDS.keys() == known:
                raise UserError(f"--policy-file {path}: registers no policy; call whilst.register_policy in it")
        except UserError:
            del sys.modules[name]
            for kind in KINDS.keys() - known:
                del KINDS[kind], FACTORIES[kind]
            raise


def make_policy(spec: PolicySpec, context: Context) -> Policy:
    made = FACTORIES[spec.kind](spec, context)
    policy = ByWords(spec, made, context.languages) if isinstance(made, WordPolicy) else made
    return Patient(policy, context.model.logits) if context.is_patient and spec.about.can_end_early else policy
