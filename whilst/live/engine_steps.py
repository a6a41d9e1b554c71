"""The steps of a live translation, done by the CPU engine under policies that need no PyTorch. Knows units only."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Evaluate
from whilst.data.vocabulary import EOS
from whilst.engine.runtime import Engine
from whilst.live.session import Backend


@dataclass(frozen=True)
class Paced:
    """g_i = K + (i - 1) J / I, rounded down. Wait-k has the pace 1 : 1; full waits for ever."""

    name: str
    k: int = sys.maxsize
    pace: tuple[int, int] = (1, 1)  # J and I
    patient: bool = False  # see `evaluate.ending`


@dataclass(frozen=True)
class Learnt:
    name: str
    interval: int  # which of the agent's latencies, by number
    threshold: float
    patient: bool = False


Rule = Paced | Learnt


def rule(
    policy: PolicySpec, agents: Sequence[PolicySpec], settings: Evaluate, pace: tuple[int, int] | None
) -> Rule:
    """The policy of this name, of a run with such an agent and such training data."""
    kind, name = policy.kind, policy.name
    patient = settings.ending == "patient"
    if kind == "wait":
        return Paced(name, policy.count, patient=patient)
    if kind == "diagonal":
        if pace is None:
            raise UserError(f"policy {name}: the training data's pace is not known; export where its dataset is")
        return Paced(name, policy.count, pace, patient)
    if kind == "full":
        return Paced(name)
    if kind != "agent":
        raise UserError(f"policy {name}: the engine knows full, wait-K, diagonal-K, agent-L; others need PyTorch")
    if not agents:
        raise UserError(f"policy {name}: there is no agent; train one and export its run again")
    threshold = settings.threshold if policy.threshold is None else policy.threshold
    return Learnt(name, policy.index_in(agents), threshold, patient)


class OnEngine(Backend):
    """One sentence at a time; each begins in the memory of the one before."""

    def __init__(self, engine: Engine, chosen: Rule) -> None:
        self.rule = chosen
        self.unit: int | None = None  # that would be written now, if that was asked since the last action
        self.session = engine.start()
        self.agent = engine.start_agent(self.session, chosen.interval) if isinstance(chosen, Learnt) else None

    def begin(self) -> None:
        self.unit = None
        self.session.restart()
        if self.agent is not None:
            self.agent.restart()

    def read(self, unit: int) -> None:
        self.unit = None
        self.session.read(unit)

    def decide(self) -> bool:
        return self._wants() and not (self.rule.patient and self._next() == EOS)

    def _wants(self) -> bool:
        if isinstance(self.rule, Paced):
            source, target = self.rule.pace
            return self.session.read_count >= self.session.written_count * source // target + self.rule.k
        assert self.agent is not None
        if self.agent.needs_lookahead:
            self._look()
        return chance(self.agent.log_odds()) >= self.rule.threshold

    def _look(self) -> None:
        if not self.session.has_lookahead:
            self.session.lookahead()

    def _next(self) -> int:
        if self.unit is None:
            self._look()
            # Pad and bos, which come before eos, mean nothing in a translation.
            self.unit = int(self.session.logits()[EOS:].argmax()) + EOS
        return self.unit

    def write(self) -> int:
        unit, self.unit = self._next(), None
        self.session.commit(unit)
        return unit


def chance(odds: float) -> float:
    """Of log-odds, as exact as PyTorch's: a threshold of 1 can be reached."""
    small = math.exp(-abs(odds))
    return float(np.float32((1.0 if odds >= 0 else small) / (1 + small)))
