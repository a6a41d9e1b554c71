"""From a PolicySpec to its policy. `register` adds a kind that every command then knows by its own name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from whilst.core.errors import UserError
from whilst.core.policy_spec import KINDS, PolicyKind, PolicySpec
from whilst.model.agent import Agent
from whilst.model.transformer import Translator
from whilst.policy.agent import AgentPolicy
from whilst.policy.base import Policy
from whilst.policy.fixed import Diagonal, Full, WaitK
from whilst.policy.monotonic import NO_HEADS, Monotonic
from whilst.policy.oracle import Oracle
from whilst.policy.patient import Patient

NO_AGENT = 'policy {}: {} has no agent; train one with stages = [… "agent"]'


def _no_length_ratio() -> tuple[int, int]:
    raise UserError("policy diagonal-K: the length ratio of the training data is not known")


def _no_reference(spec: PolicySpec) -> Sequence[Sequence[int]]:
    raise UserError(f"policy {spec}: an oracle needs the reference; use it with `whilst evaluate`")


@dataclass(frozen=True)
class Context:
    """What policies are made from."""

    model: Translator | None = None
    run: str = "this model"  # in messages
    agent: Agent | None = None
    agent_policies: Sequence[PolicySpec] = ()  # in the order of the agent's intervals
    threshold: float = 0.5  # of agents whose spec has none
    length_ratio: Callable[[], tuple[int, int]] = _no_length_ratio  # J and I of the training data
    reference_reads: Callable[[PolicySpec], Sequence[Sequence[int]]] = _no_reference  # for each sentence
    is_patient: bool = False  # evaluate.ending = "patient"
    logits: Callable[[Tensor], Tensor] | None = None  # of decoder states, if not the model's own


Factory = Callable[[PolicySpec, Context], Policy]


def make_agent(spec: PolicySpec, context: Context) -> Policy:
    if context.agent is None or context.model is None:
        raise UserError(NO_AGENT.format(spec.name, context.run))
    threshold = context.threshold if spec.threshold is None else spec.threshold
    return AgentPolicy(spec, context.agent, context.model, spec.index_in(context.agent_policies), threshold)


def make_monotonic(spec: PolicySpec, context: Context) -> Policy:  # noqa: ARG001
    if context.model is not None and context.model.settings.cross != "monotone":
        raise UserError(NO_HEADS)
    return Monotonic()


FACTORIES: dict[str, Factory] = {
    "full": lambda spec, context: Full(),  # noqa: ARG005
    "wait": lambda spec, context: WaitK(spec.count),  # noqa: ARG005
    "diagonal": lambda spec, context: Diagonal(spec.count, context.length_ratio()),
    "mma": make_monotonic,
    "agent": make_agent,
    "oracle": lambda spec, context: Oracle(spec, context.reference_reads(spec)),
}


def register(kind: str, factory: Factory, about: PolicyKind | None = None) -> None:
    """Add a kind of policy; `about` says how its names are written and what it can do."""
    if kind in KINDS or "-" in kind or "." in kind:
        raise ValueError(f"policy kind {kind!r}: must be new and without '-' and '.'")
    KINDS[kind], FACTORIES[kind] = about or PolicyKind(usage=kind), factory


def make_policy(spec: PolicySpec, context: Context | None = None) -> Policy:
    context = context or Context()
    policy = FACTORIES[spec.kind](spec, context)
    if not context.is_patient or not spec.about.can_end_early:
        return policy
    logits = context.logits or (context.model.logits if context.model is not None else None)
    assert logits is not None, "patient policies need a model"
    return Patient(policy, logits)
