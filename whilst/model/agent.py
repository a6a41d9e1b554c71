"""The agent that learns the searched reads: READ or WRITE? Of the model it knows only what it observes.

At each step it observes the last source token read, the last token written and the last action; the first READ is
given. Its lessons come from reads: WRITE i (from 0) is step g_i + i, everything else is READ. It may be led along
other reads than those that it is taught: then it sees what to do after a mistake.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whilst.core.settings import Agent as Settings
from whilst.data.batches import Batch
from whilst.data.vocabulary import BOS, PAD
from whilst.model.observations import PathStates
from whilst.model.reads import Action
from whilst.model.transformer import Translator

State = tuple[Tensor, ...]  # (1, rows, hidden) each: two for an LSTM, one for a GRU, none for Linear


@dataclass(frozen=True)
class Observation:
    """What the agent sees at some steps of some rows: all (rows, steps, …)."""

    source: Tensor  # last source token read
    target: Tensor  # last token written, bos before the first
    action: Tensor  # last action
    source_state: Tensor  # (rows, steps, width) encoder state of the last source token
    target_state: Tensor  # (rows, steps, width) decoder state that wrote the last token, zeros before the first
    ahead: Tensor | None = None  # (rows, steps, width) decoder state that would write the next one now


class Agent(nn.Module):
    def __init__(self, settings: Settings, width: int, intervals: int) -> None:
        super().__init__()
        self.settings = settings
        hidden = settings.hidden
        self.tokens = nn.Linear({"embeddings": 2, "states": 4, "ahead": 5}[settings.inputs] * width, hidden)
        self.action_embedding = nn.Embedding(len(Action), hidden)
        self.action = nn.Linear(hidden, hidden)
        # Which interval's latency is wanted, where one agent serves several.
        self.latency = nn.Embedding(intervals, hidden)
        self.core: nn.Module
        if settings.kind == "lstm":
            self.core = nn.LSTM(2 * hidden, hidden, batch_first=True)
        elif settings.kind == "gru":
            self.core = nn.GRU(2 * hidden, hidden, batch_first=True)
        else:
            self.core = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU())
        self.dropout = nn.Dropout(settings.dropout)
        self.out = nn.Linear(hidden, 1)

    def start(self, rows: int) -> State:
        """What is remembered before the first step."""
        count = {"lstm": 2, "gru": 1, "linear": 0}[self.settings.kind]
        return tuple(self.out.weight.new_zeros(1, rows, self.settings.hidden) for _ in range(count))

    def perceive(self, model: Translator, seen: Observation, interval: Tensor) -> Tensor:
        """(rows, steps, 2 * hidden) what goes into the core."""
        parts = [model.source_embedding(seen.source), model.target_embedding(seen.target)]
        # As the model itself uses them, and of the states' type.
        parts = [(part * model.settings.width**0.5).to(seen.source_state.dtype) for part in parts]
        if self.settings.inputs != "embeddings":
            parts += [seen.source_state, seen.target_state]
        if self.settings.inputs == "ahead":
            assert seen.ahead is not None
            parts.append(seen.ahead)
        tokens = self.tokens(self.dropout(torch.cat(parts, -1)))
        action = self.action(self.action_embedding(seen.action)) + self.latency(interval)[:, None]
        return torch.cat([tokens, action], -1)

    def forward(self, model: Translator, seen: Observation, interval: Tensor, state: State) -> tuple[Tensor, State]:
        """(rows, steps) log-odds of WRITE, and what is remembered; `interval` (rows) is a number, not reads."""
        inputs = self.perceive(model, seen, interval)
        if isinstance(self.core, nn.LSTM) and inputs.shape[1] == 1 and inputs.device.type == "cpu":
            # Of a single step nn.LSTM makes ten times the work on a CPU: it packs its weights.
            states, state = self._in_turn(inputs, state)
        elif self.settings.kind == "lstm":
            states, (hidden, cell) = self.core(inputs, state)
            state = hidden, cell
        elif self.settings.kind == "gru":
            states, hidden = self.core(inputs, *state)
            state = (hidden,)
        else:
            states = self.core(inputs)
        odds: Tensor = self.out(self.dropout(states))[..., 0]
        return odds, state

    def each(self, model: Translator, seen: Observation, interval: Tensor, state: State) -> tuple[Tensor, State]:
        """The same for a few steps, and what is remembered after every one of them: (steps, rows, hidden) each."""
        states, memory = self._in_turn(self.perceive(model, seen, interval), state)
        odds: Tensor = self.out(self.dropout(states))[..., 0]
        return odds, memory

    def _in_turn(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """(rows, steps, hidden) what the core says, and (steps, rows, hidden) what it remembers."""
        if not state:
            return self.core(inputs), ()
        weights = list(self.core.parameters())
        now, memory = [part[0] for part in state], []
        for step in inputs.unbind(1):
            if self.settings.kind == "lstm":
                now = list(torch.lstm_cell(step, now, *weights))
            else:
                now = [torch.gru_cell(step, now[0], *weights)]
            memory.append(now)
        kept = tuple(torch.stack(parts) for parts in zip(*memory, strict=True))
        return kept[0].transpose(0, 1), kept


@dataclass(frozen=True)
class Lesson:
    """Steps 1, 2, … of the sentences of a batch (step 0 is the given READ)."""

    seen: Observation
    action: Tensor  # (rows, steps) what to do
    counts: Tensor  # (rows, steps) whether the step is the agent's to decide


@torch.no_grad()
def lesson(batch: Batch, path: Tensor, shown: PathStates) -> Lesson:
    """What the agent should do at each step of the way through a padded batch: the reads `path`.

    `shown`: what the translator shows on the way. WRITEs forced by the end of the source are not its doing, and
    nothing comes after the last WRITE.
    """
    real = batch.labels != PAD
    step, steps = path + batch.target_at.position, step_count(batch, path)
    step = torch.where(real, step, steps)  # of each WRITE; those of padding go past the end
    writes = torch.zeros(len(path), steps + 1, dtype=torch.long, device=path.device)
    writes.scatter_(1, step, 1)
    writes = writes[:, :steps]
    before = writes.cumsum(1) - writes  # WRITEs before each step
    read = torch.arange(steps, device=path.device) - before
    last_source = (read - 1).clamp(0, batch.source.shape[1] - 1)
    last_target = (before - 1).clamp(min=0)
    begun = before > 0

    def at(values: Tensor, index: Tensor) -> Tensor:
        return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))

    ahead = None
    if shown.lookahead is not None:
        count = path.shape[1]
        upcoming = torch.where(writes > 0, before.clamp(max=count - 1), count + last_source)
        ahead = at(torch.cat([shown.states, shown.lookahead], 1), upcoming)[:, 1:]
    seen = Observation(
        source=batch.source.gather(1, last_source)[:, 1:],
        target=torch.where(begun, shown.words.gather(1, last_target), BOS)[:, 1:],
        action=writes[:, :-1],
        source_state=at(shown.encoded, last_source)[:, 1:],
        target_state=(at(shown.states, last_target) * begun[..., None])[:, 1:],
        ahead=ahead,
    )
    needed = path.gather(1, before.clamp(max=path.shape[1] - 1))
    last = step.masked_fill(~real, 0).max(1, keepdim=True).values
    inside = torch.arange(steps, device=path.device) <= last
    counts = inside & (read < batch.source_lengths[:, :1])
    return Lesson(seen, (read >= needed).long()[:, 1:], counts[:, 1:])


def step_count(batch: Batch, path: Tensor) -> int:
    """The steps of the longest way; on a GPU as many as there could be, since it would have to be waited for."""
    if path.device.type == "cuda":
        return batch.source.shape[1] + batch.target.shape[1]
    return int((path + batch.target_at.position)[batch.labels != PAD].max()) + 1


def loss(odds: Tensor, given: Lesson, smoothing: float) -> Tensor:
    """Summed cross-entropy of the decisions that count."""
    wanted = given.action * (1 - smoothing) + smoothing / 2
    each = F.binary_cross_entropy_with_logits(odds, wanted.to(odds.dtype), reduction="none")
    return (each * given.counts).sum()
