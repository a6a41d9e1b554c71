"""Live translation on the CPU engine, under the policies that need no PyTorch. Handles units, not words."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec, fixed_reads, to_log_odds
from whilst.core.settings import Evaluate
from whilst.data.vocabulary import EOS
from whilst.engine.runtime import Engine, EngineAgent, EngineSession
from whilst.live.session import Backend, Operation, Request

KINDS = "full", "wait", "diagonal", "agent"  # of policies that `make_rule` knows


@dataclass(frozen=True)
class Rule:
    """When to WRITE: after a number of READs, or when the agent predicts it."""

    k: int = sys.maxsize  # of wait-k and diagonal-k; the default, for full, is more than any source has
    length_ratio: tuple[int, int] = (1, 1)  # J and I of the training data
    interval: int | None = None  # index of the agent's latency
    threshold: float = 0.5  # of the agent
    is_patient: bool = False  # evaluate.ending = "patient"


def make_rule(
    policy: PolicySpec, agents: Sequence[PolicySpec], settings: Evaluate, length_ratio: tuple[int, int] | None
) -> Rule:
    """`agents`: the policies of the run's agent; `length_ratio`: J and I of its training data, if known."""
    is_patient = settings.ending == "patient"
    match policy.kind:
        case "full":
            return Rule()
        case "wait":
            return Rule(policy.count, is_patient=is_patient)
        case "diagonal":
            if length_ratio is None:
                reason = "the training data's length ratio is not known; export again where its dataset is"
                raise UserError(f"policy {policy}: {reason}")
            return Rule(policy.count, length_ratio, is_patient=is_patient)
        case "agent":
            if not agents:
                raise UserError(f"policy {policy}: there is no agent; train one and export its run again")
            threshold = settings.threshold if policy.threshold is None else policy.threshold
            return Rule(interval=policy.index_in(agents), threshold=threshold, is_patient=is_patient)
    raise UserError(f"policy {policy}: the engine knows full, wait-K, diagonal-K, agent-L; others need PyTorch")


class EngineBackend(Backend):
    """Translates one sentence at a time; each reuses the buffers of the sentence before."""

    def __init__(self, engine: Engine, rule: Rule) -> None:
        self.rule = rule
        self.session = EngineSession(engine)
        self.agent = None if rule.interval is None else EngineAgent(self.session, rule.interval)
        self._bound = np.float32(to_log_odds(rule.threshold))

    def run(self, request: Request) -> int:
        match request.operation:
            case Operation.BEGIN:
                self.session.restart()
                if self.agent is not None:
                    self.agent.restart()
            case Operation.READ:
                self.session.read(request.unit)
            case Operation.DECIDE:
                return self._is_ready() and not (
                    self.rule.is_patient and self.session.next_token(request.banned) == EOS
                )
            case Operation.WRITE:
                unit = self.session.next_token(request.banned)
                self.session.commit(unit)
                return unit
        return 0

    def _is_ready(self) -> bool:
        if self.agent is not None:
            return bool(self.agent.log_odds() >= self._bound)
        needed = fixed_reads(self.session.written_count, self.rule.k, self.rule.length_ratio)
        return self.session.read_count >= needed
