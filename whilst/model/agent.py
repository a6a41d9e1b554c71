"""The agent: a small network that predicts READ or WRITE from states of the translation model.

At each step the agent observes the last source token read, the last token written and the last action. The first
READ is given. Training targets come from searched reads: WRITE i is step g_i + i (both counted from 0), and all
other steps are READs.

`observe` computes all states along given reads at once. The lookahead state is the decoder state that would write
the next token now. At a WRITE it is the decoder state of that token. For READs there is an extra query after each
source token. These queries go through the decoder together with the target tokens, and attend to the tokens that
were written before.
"""

from dataclasses import dataclass
from enum import IntEnum

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whilst.core.settings import Agent as Settings
from whilst.data.batches import Batch, Tokens
from whilst.data.vocabulary import BOS, PAD
from whilst.model.attention import Mask, attention_mask, causal_mask, cross_mask, span_mask
from whilst.model.transformer import Translator, encode_batch


class Action(IntEnum):
    READ = 0
    WRITE = 1


State = tuple[Tensor, ...]  # (1, rows, hidden) each: two for an LSTM, one for a GRU, none for Linear


@dataclass(frozen=True)
class Observation:
    """What the agent observes at each step: tensors (rows, steps, …)."""

    source: Tensor  # last source token read
    target: Tensor  # last token written, bos before the first
    action: Tensor  # last action
    source_state: Tensor  # (rows, steps, width) encoder state of the last source token
    target_state: Tensor  # (rows, steps, width) decoder state that wrote the last token, zeros before the first
    lookahead: Tensor | None = None  # (rows, steps, width) decoder state that would write the next token now


class Agent(nn.Module):
    def __init__(self, settings: Settings, width: int, intervals: int) -> None:
        super().__init__()
        self.settings = settings
        hidden = settings.hidden
        self.tokens = nn.Linear({"embeddings": 2, "states": 4, "lookahead": 5}[settings.inputs] * width, hidden)
        self.action_embedding = nn.Embedding(len(Action), hidden)
        self.action = nn.Linear(hidden, hidden)
        # One embedding for each search interval that the agent serves.
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
        """The state before the first step."""
        count = {"lstm": 2, "gru": 1, "linear": 0}[self.settings.kind]
        return tuple(self.out.weight.new_zeros(1, rows, self.settings.hidden) for _ in range(count))

    def core_inputs(self, model: Translator, seen: Observation, interval: Tensor) -> Tensor:
        """(rows, steps, 2 * hidden) inputs of the core."""
        parts = [model.source_embedding(seen.source), model.target_embedding(seen.target)]
        # Scaled as the model scales them, in the dtype of the states.
        parts = [(part * model.settings.width**0.5).to(seen.source_state.dtype) for part in parts]
        if self.settings.inputs != "embeddings":
            parts += [seen.source_state, seen.target_state]
        if self.settings.inputs == "lookahead":
            assert seen.lookahead is not None
            parts.append(seen.lookahead)
        tokens = self.tokens(self.dropout(torch.cat(parts, -1)))
        action = self.action(self.action_embedding(seen.action)) + self.latency(interval)[:, None]
        return torch.cat([tokens, action], -1)

    def forward(self, model: Translator, seen: Observation, interval: Tensor, state: State) -> tuple[Tensor, State]:
        """(rows, steps) log-odds of WRITE, and the state after them; `interval` (rows) is an index, not reads."""
        inputs = self.core_inputs(model, seen, interval)
        single = inputs.shape[1] == 1 and inputs.device.type == "cpu"
        if single and self.settings.kind == "lstm":  # nn.LSTM packs its weights: ten times the time for one step
            states, state = self._step_by_step(inputs, state)
        elif self.settings.kind == "lstm":
            states, state = self.core(inputs, state)
        elif self.settings.kind == "gru":
            states, hidden = self.core(inputs, *state)
            state = (hidden,)
        else:
            states = self.core(inputs)
        log_odds: Tensor = self.out(self.dropout(states))[..., 0]
        return log_odds, state

    def forward_each_step(
        self, model: Translator, seen: Observation, interval: Tensor, state: State
    ) -> tuple[Tensor, State]:
        """Like `forward`, but with the state after every step: (steps, rows, hidden) each."""
        states, all_states = self._step_by_step(self.core_inputs(model, seen, interval), state)
        log_odds: Tensor = self.out(self.dropout(states))[..., 0]
        return log_odds, all_states

    def _step_by_step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """(rows, steps, hidden) outputs of the core, and (steps, rows, hidden) its state after every step."""
        if not state:
            return self.core(inputs), ()
        current, history = tuple(part[0] for part in state), []
        for step in inputs.unbind(1):
            current = recurrent_step(self.core, step, current)
            history.append(current)
        states = tuple(torch.stack(parts) for parts in zip(*history, strict=True))
        return states[0].transpose(0, 1), states


def recurrent_step(core: nn.Module, inputs: Tensor, state: State) -> State:
    """One step of a recurrent core: (rows, size) inputs and (rows, hidden) states."""
    if isinstance(core, nn.LSTM):
        return torch.lstm_cell(inputs, state, *core.parameters())
    if isinstance(core, nn.GRU):
        return (torch.gru_cell(inputs, state[0], *core.parameters()),)
    stepped: State = core(inputs, state)  # model.prepacked.PrepackedLSTM
    return stepped


@dataclass(frozen=True)
class PathStates:
    """States and tokens along given reads, from which observations are gathered."""

    encoded: Tensor  # (rows, source, width) encoder states
    states: Tensor  # (rows, target, width) decoder states of the tokens
    words: Tensor  # (rows, target) tokens that they write: the model's own choice, or the reference
    lookahead: Tensor | None = None  # (rows, source, width) lookahead state after each source token

    def bfloat16(self) -> "PathStates":
        """The states in bf16, to which an agent under autocast would convert them."""
        lookahead = None if self.lookahead is None else self.lookahead.bfloat16()
        return PathStates(self.encoded.bfloat16(), self.states.bfloat16(), self.words, lookahead)


def next_targets(batch: Batch, path: Tensor) -> tuple[Tensor, Tensor]:
    """The target token that is written next after each source token: two (rows, source) tensors of target columns.

    The first has the column where the sentence begins, the second that of the token, which is meaningless if no
    token is left. The next token is the first whose reads exceed the number of source tokens read. Binary search
    finds it, since reads ascend along a sentence.
    """
    target, source = batch.target_at, batch.source_at
    stride = batch.source.shape[1] + 1  # keeps the sentences of a packed row in order
    first = torch.searchsorted(target.segment, source.segment)
    end = torch.searchsorted(target.segment, source.segment, right=True)
    needed, read = path + target.segment * stride, source.position + 1 + source.segment * stride
    written = torch.searchsorted(needed, read, right=True)
    return first, written.minimum(end - 1).clamp(min=0)


def lookahead_query_mask(batch: Batch, upcoming_first: Tensor, upcoming: Tensor) -> Mask:
    """Self-attention mask of target tokens, followed by lookahead queries: each sees earlier tokens and itself.

    Lookahead queries at padding only see themselves: in a packed row each would see all padding, which is slow.
    """
    column = torch.arange(batch.target.shape[1], device=batch.target.device)
    first = torch.cat([column - batch.target_at.position, upcoming_first], 1)
    query_end = torch.where(batch.source == PAD, upcoming_first, upcoming)
    end = torch.cat([column.expand_as(batch.target), query_end], 1)
    if batch.packed:
        return span_mask(first[0], end[0], first.shape[1], itself=True)
    key = torch.arange(first.shape[1], device=first.device)
    return (((key >= first[..., None]) & (key < end[..., None])) | (key == key[:, None]))[:, None]


def decode_with_lookahead(model: Translator, batch: Batch, path: Tensor, source: Tensor) -> Tensor:
    """(rows, target + source, width) decoder states of the target, then lookahead states, one per source token."""
    first, upcoming = next_targets(batch, path)
    target, read = batch.target_at, batch.source_at
    positions = torch.cat([target.position, target.position.gather(1, upcoming)], 1)
    queries = Tokens(torch.cat([target.segment, read.segment], 1), positions)
    cross = attention_mask(batch, queries, torch.cat([path, read.position + 1], 1), read)
    tokens = torch.cat([batch.target, batch.target.gather(1, upcoming)], 1)
    return model.decode(tokens, positions, source, lookahead_query_mask(batch, first, upcoming), cross)


@torch.no_grad()
def observe(model: Translator, batch: Batch, path: Tensor, own_words: bool, lookahead: bool) -> PathStates:
    """The states along the reads `path`, in the layout of the batch.

    `own_words`: the words are what the model would write after each prefix of the reference, else the reference.
    """
    source, count = encode_batch(model, batch), batch.target.shape[1]
    if lookahead:
        both = decode_with_lookahead(model, batch, path, source)
        states, lookaheads = both[:, :count], both[:, count:]
    else:
        causal, cross = causal_mask(batch), cross_mask(batch, path)
        states, lookaheads = model.decode(batch.target, batch.target_at.position, source, causal, cross), None
    words = model.many_logits(states).argmax(-1) if own_words else batch.labels
    return PathStates(source, states, words, lookaheads)


@dataclass(frozen=True)
class Targets:
    """Training targets of steps 1, 2, … of the sentences of a batch; step 0 is the given READ."""

    seen: Observation
    action: Tensor  # (rows, steps)
    counts: Tensor  # (rows, steps) whether the step counts in the loss


@torch.no_grad()
def targets(batch: Batch, path: Tensor, observed: PathStates) -> Targets:
    """Observations along the reads `path` of a padded batch, and the actions that follow them.

    Steps whose WRITE is forced by the end of the source, and steps after the last WRITE, do not count in the loss.
    """
    real = batch.labels != PAD
    step = path + batch.target_at.position
    if path.device.type == "cuda":
        steps = batch.source.shape[1] + batch.target.shape[1]  # an upper bound, which needs no synchronisation
    else:
        steps = int(step[real].max()) + 1
    step = torch.where(real, step, steps)  # step of each WRITE; padding goes to an extra last column
    writes = torch.zeros(len(path), steps + 1, dtype=torch.long, device=path.device)
    writes.scatter_(1, step, 1)
    writes = writes[:, :steps]
    before = writes.cumsum(1) - writes  # WRITEs before each step
    read = torch.arange(steps, device=path.device) - before
    last_source = (read - 1).clamp(0, batch.source.shape[1] - 1)
    last_target = (before - 1).clamp(min=0)
    has_written = before > 0

    def gather(values: Tensor, index: Tensor) -> Tensor:
        return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))

    lookahead = None
    if observed.lookahead is not None:
        count = path.shape[1]
        upcoming = torch.where(writes > 0, before.clamp(max=count - 1), count + last_source)
        lookahead = gather(torch.cat([observed.states, observed.lookahead], 1), upcoming)[:, 1:]
    seen = Observation(
        source=batch.source.gather(1, last_source)[:, 1:],
        target=torch.where(has_written, observed.words.gather(1, last_target), BOS)[:, 1:],
        action=writes[:, :-1],
        source_state=gather(observed.encoded, last_source)[:, 1:],
        target_state=(gather(observed.states, last_target) * has_written[..., None])[:, 1:],
        lookahead=lookahead,
    )
    needed = path.gather(1, before.clamp(max=path.shape[1] - 1))
    last = step.masked_fill(~real, 0).max(1, keepdim=True).values
    inside = torch.arange(steps, device=path.device) <= last
    counts = inside & (read < batch.source_lengths[:, :1])
    return Targets(seen, (read >= needed).long()[:, 1:], counts[:, 1:])


def loss(log_odds: Tensor, targets: Targets, smoothing: float) -> Tensor:
    """Summed cross-entropy of the steps that count."""
    smoothed = targets.action * (1 - smoothing) + smoothing / 2
    losses = F.binary_cross_entropy_with_logits(log_odds, smoothed.to(log_odds.dtype), reduction="none")
    return (losses * targets.counts).sum()
