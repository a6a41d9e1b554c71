"""Live translation with the CPU engine, under policies that need no PyTorch. Knows units, not words."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec, fixed_reads, log_odds
from whilst.core.settings import Evaluate
from whilst.data.vocabulary import EOS
from whilst.engine.runtime import Engine, EngineAgent, EngineSession
from whilst.live.session import Backend

KINDS = "full", "wait", "diagonal", "agent"  # of policies that have a rule here


@dataclass(frozen=True)
class FixedRule:
    """Wait-k, the diagonal, or full, whose k no source reaches."""

    k: int = sys.maxsize
    length_ratio: tuple[int, int] = (1, 1)  # J and I
    is_patient: bool = False  # evaluate.ending = "patient"


@dataclass(frozen=True)
class AgentRule:
    interval: int  # index of the agent's latency
    threshold: float
    is_patient: bool = False

    @cached_property
    def bound(self) -> np.float32:
        return np.float32(log_odds(self.threshold))


Rule = FixedRule | AgentRule


def make_rule(
    policy: PolicySpec, agents: Sequence[PolicySpec], settings: Evaluate, length_ratio: tuple[int, int] | None
) -> Rule:
    """`agents`: the policies of the run's agent; `length_ratio`: J and I of its training data, if known."""
    is_patient = settings.ending == "patient"
    match policy.kind:
        case "full":
            return FixedRule()
        case "wait":
            return FixedRule(policy.count, is_patient=is_patient)
        case "diagonal":
            if length_ratio is None:
                known = "the training data's length ratio is not known; export where its dataset is"
                raise UserError(f"policy {policy}: {known}")
            return FixedRule(policy.count, length_ratio, is_patient)
        case "agent":
            if not agents:
                raise UserError(f"policy {policy}: there is no agent; train one and export its run again")
            threshold = settings.threshold if policy.threshold is None else policy.threshold
            return AgentRule(policy.index_in(agents), threshold, is_patient)
    raise UserError(f"policy {policy}: the engine knows full, wait-K, diagonal-K, agent-L; others need PyTorch")


class EngineBackend(Backend):
    """One sentence at a time, in the memory of the one before."""

    def __init__(self, engine: Engine, rule: Rule) -> None:
        self.rule = rule
        self.session = EngineSession(engine)
        self.agent = EngineAgent(self.session, rule.interval) if isinstance(rule, AgentRule) else None

    def begin(self) -> None:
        self.session.restart()
        if self.agent is not None:
            self.agent.restart()

    def read(self, unit: int) -> None:
        self.session.read(unit)

    def decide(self) -> bool:
        return self._is_ready() and not (self.rule.is_patient and self.session.next_token() == EOS)

    def _is_ready(self) -> bool:
        if isinstance(self.rule, FixedRule):
            needed = fixed_reads(self.session.written_count, self.rule.k, self.rule.length_ratio)
            return self.session.read_count >= needed
        assert self.agent is not None
        return bool(self.agent.log_odds() >= self.rule.bound)

    def write(self) -> int:
        unit = self.session.next_token()
        self.session.commit(unit)
        return unit
