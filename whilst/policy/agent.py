"""The learnt policy: the agent steps on every action, and WRITEs when it is sure enough."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.model.agent import Agent, Observation
from whilst.model.transformer import Translator
from whilst.policy.base import Decider, Policy, Prospects, View


@dataclass(frozen=True)
class Learnt(Policy):
    identity: PolicySpec
    agent: Agent
    model: Translator
    interval: int = 0  # which of the intervals that the agent learnt, by number
    threshold: float = 0.5  # WRITE at this probability or above

    @property
    def spec(self) -> PolicySpec:
        return self.identity

    @property
    def looks_ahead(self) -> bool:
        return self.agent.settings.inputs == "ahead"

    @property
    def kin(self) -> Hashable:
        return self.agent, self.threshold  # which interval it is may differ from row to row

    def start(self, sentences: Tensor) -> Decider:
        return Stepping(self, len(sentences), sentences.device)


class Stepping(Decider):
    """Asked once after every action: a row that has not moved since keeps its answer and its memory."""

    def __init__(self, policy: Learnt, rows: int, device: torch.device) -> None:
        self.policy = policy
        self.state = policy.agent.start(rows)
        self.interval = torch.full((rows,), policy.interval, device=device)
        self.read = torch.zeros(rows, dtype=torch.long, device=device)
        self.written = torch.zeros_like(self.read)
        self.answer = torch.zeros_like(self.read, dtype=torch.bool)
        self.memories: tuple[Tensor, ...] = ()  # (prospects, rows, …) after each prospect, until one is settled on

    def write(self, view: View) -> Tensor:
        wrote = view.written > self.written
        moved = wrote | (view.read > self.read)
        source, source_state = view.heard()
        seen = Observation(
            source=source[:, None],
            target=view.last[:, None],
            action=wrote.long()[:, None],
            source_state=source_state[:, None],
            target_state=view.decoded[:, None],
            ahead=None if view.ahead is None else view.ahead[:, None],
        )
        odds, state = self.policy.agent(self.policy.model, seen, self.interval, self.state)
        self.answer = torch.where(moved, odds[:, 0].sigmoid() >= self.policy.threshold, self.answer)
        self.state = tuple(
            torch.where(moved[:, None], new, old) for new, old in zip(state, self.state, strict=True)
        )
        self.read, self.written = view.read, view.written
        return self.answer

    def wants(self, prospects: Prospects) -> Tensor:
        """As if it had been asked after every READ: what it remembers does not depend on its answers in between."""
        now, count = prospects.now, prospects.read.shape[1]
        wrote = (now.written > self.written).long()
        source, source_state = prospects.heard()
        seen = Observation(
            source=source,
            target=now.last[:, None].expand(-1, count),
            action=F.pad(wrote[:, None], (0, count - 1)),
            source_state=source_state,
            target_state=now.decoded[:, None].expand(-1, count, -1),
            ahead=prospects.ahead,
        )
        odds, self.memories = self.policy.agent.each(self.policy.model, seen, self.interval, self.state)
        self.written = now.written
        return odds.sigmoid() >= self.policy.threshold

    def settle(self, asked: Tensor) -> None:
        rows = torch.arange(len(asked), device=asked.device)
        self.state = tuple(part[asked, rows][None] for part in self.memories)
        self.memories = ()

    def remembered(self) -> list[Tensor]:
        return [self.answer, self.read, self.written, *self.state]

    def remember(self, tensors: list[Tensor]) -> None:
        self.answer, self.read, self.written, *state = tensors
        self.state = tuple(state)

    def part(self, rows: Tensor) -> Decider:
        part = Stepping(self.policy, len(rows), rows.device)
        part.state = tuple(memory[:, rows] for memory in self.state)
        part.interval, part.answer = self.interval[rows], self.answer[rows]
        part.read, part.written = self.read[rows], self.written[rows]
        return part

    def put(self, rows: Tensor, part: Decider) -> None:
        assert isinstance(part, Stepping)
        for mine, new in zip(self.state, part.state, strict=True):
            mine[:, rows] = new
        self.interval[rows], self.answer[rows] = part.interval, part.answer
        self.read[rows], self.written[rows] = part.read, part.written
