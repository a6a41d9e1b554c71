"""Learnt policies: an agent, which is trained separately from the model, and MMA, which is part of the model."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from whilst.core.policy_spec import PolicySpec, to_log_odds
from whilst.model.agent import Agent, Observation
from whilst.model.cache import row_numbers
from whilst.model.transformer import Translator
from whilst.policy.base import Decider, Futures, Policy, StatelessPolicy, View


@dataclass(frozen=True)
class Monotonic(StatelessPolicy):
    """MMA: WRITE when every monotone head of every decoder layer has stopped. The cache has their positions."""

    spec = PolicySpec("mma")
    needs_lookahead = True  # whether a head stops depends on the decoder state of the next token

    def write(self, view: View) -> Tensor:
        assert view.stopped is not None
        return view.stopped


@dataclass(frozen=True)
class AgentPolicy(Policy):
    """The agent takes a step after every action, and WRITEs if its probability of WRITE reaches a threshold."""

    identity: PolicySpec
    agent: Agent
    model: Translator
    interval: int = 0  # index of the search interval, which is an input of the agent
    threshold: float = 0.5  # WRITE at this probability or above

    @property
    def spec(self) -> PolicySpec:
        return self.identity

    @property
    def needs_lookahead(self) -> bool:
        return self.agent.settings.inputs == "lookahead"

    @property
    def batch_key(self) -> Hashable:
        return self.agent, self.threshold  # rows may differ in the interval

    @cached_property
    def bound(self) -> float:
        """The threshold as log-odds."""
        return to_log_odds(self.threshold)

    def start(self, sentences: Tensor) -> Decider:
        return AgentDecider(self, len(sentences), sentences.device)


class AgentDecider(Decider):
    """Rows without an action since their last decision keep the decision and the state."""

    def __init__(self, policy: AgentPolicy, rows: int, device: torch.device) -> None:
        self.policy = policy
        self.state = tuple(part[0] for part in policy.agent.start(rows))  # (rows, hidden) each
        self.interval = torch.full((rows,), policy.interval, device=device)
        self.read = torch.zeros(rows, dtype=torch.long, device=device)
        self.written = torch.zeros_like(self.read)
        self.decision = torch.zeros_like(self.read, dtype=torch.bool)
        self.future_states: tuple[Tensor, ...] = ()  # (futures, rows, …) between `write_each` and `commit`

    def _observe(self, futures: Futures) -> Observation:
        now, count = futures.now, futures.read.shape[1]
        rows, position = row_numbers(now.rows, now.read)[:, None], futures.read - 1
        wrote = (now.written > self.written).long()
        return Observation(
            source=now.source[rows, position],
            target=now.last[:, None].expand(-1, count),
            action=F.pad(wrote[:, None], (0, count - 1)),
            source_state=now.encoded[rows, position],
            target_state=now.decoded[:, None].expand(-1, count, -1),
            lookahead=futures.lookahead,
        )

    def write(self, view: View) -> Tensor:
        acted = (view.written > self.written) | (view.read > self.read)
        lookahead = None if view.lookahead is None else view.lookahead[:, None]
        observed = self._observe(Futures(view, view.read[:, None], lookahead))
        log_odds, state = self.policy.agent(self.policy.model, observed, self.interval, self._agent_state())
        self.decision = torch.where(acted, log_odds[:, 0] >= self.policy.bound, self.decision)
        self.state = tuple(
            torch.where(acted[:, None], new[0], old) for new, old in zip(state, self.state, strict=True)
        )
        self.read, self.written = view.read, view.written
        return self.decision

    def write_each(self, futures: Futures) -> Tensor:
        """The agent's state depends on its observations only, not on its earlier decisions."""
        observed = self._observe(futures)
        log_odds, self.future_states = self.policy.agent.forward_each_step(
            self.policy.model, observed, self.interval, self._agent_state()
        )
        self.written = futures.now.written
        return log_odds >= self.policy.bound

    def commit(self, reached: Tensor) -> None:
        rows = torch.arange(len(reached), device=reached.device)
        self.state = tuple(part[reached, rows] for part in self.future_states)
        self.future_states = ()

    def _agent_state(self) -> tuple[Tensor, ...]:
        """(1, rows, hidden) each, as the agent takes it."""
        return tuple(part[None] for part in self.state)

    def tensors(self) -> list[Tensor]:
        return [self.interval, self.decision, self.read, self.written, *self.state]

    def set_tensors(self, tensors: list[Tensor]) -> None:
        self.interval, self.decision, self.read, self.written, *state = tensors
        self.state = tuple(state)
