"""Simultaneous translation with a model of whole sentences, which translates anew after every source word.

A rule says which units of the new translation are final. These are written, and every later translation begins with
them: nothing is taken back. The rules: wait-k, LocalAgreement (Liu et al., 2020), AlignAtt (Papi et al., 2023).
"""

import abc
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whilst.core.console import progress_bar
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import MAX_POSITIONS, Limits, Model
from whilst.data.vocabulary import BOS, EOS
from whilst.data.writer import KnownSource
from whilst.decoding.output import Output, pad
from whilst.model.layers import DecoderLayer
from whilst.model.transformer import Translator, additive, most_likely, visible

RULES = "full", "wait", "local-agreement", "align-att"
LOGITS = 1 << 28  # computed at once at most


def attention_layer(layers: int) -> int:
    """The decoder layer whose attention tells which source unit a target unit translates: the fourth of six."""
    return max(0, 2 * layers // 3 - 1)


class OfflineModel(abc.ABC):
    """A full-sentence model. Source units come without end mark: each source is taken for a whole sentence."""

    max_positions: int  # units of a source or of a translation, end mark counted

    def limit(self, limit: Callable[[int], int]) -> Callable[[int], int]:
        """A limit of target units by the source units that the model keeps to."""
        return lambda source: min(limit(source), self.max_positions)

    @abc.abstractmethod
    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """(rows, longest, width) encoder states and (rows) their numbers."""

    @abc.abstractmethod
    def predict(
        self, encoded: Tensor, lengths: Tensor, prefixes: Sequence[Sequence[int]], align: bool
    ) -> tuple[Tensor, Tensor | None]:
        """(rows, longest + 1) the most likely unit after 0, 1, … units of each prefix.

        With `align` the same of the source unit, from 0, that gets most attention when it is predicted.
        """


class OwnModel(OfflineModel):
    """One of our own, with any encoder."""

    max_positions = MAX_POSITIONS

    def __init__(self, model: Translator) -> None:
        self.model = model
        if model.settings.cross == "monotone":
            raise UserError("this model's heads decide by themselves when to READ; use the policy mma")

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        tokens, lengths = pad([[*source, EOS] for source in sources], self.model.device)
        return self.model.encode_whole(tokens, lengths), lengths

    def predict(
        self, encoded: Tensor, lengths: Tensor, prefixes: Sequence[Sequence[int]], align: bool
    ) -> tuple[Tensor, Tensor | None]:
        model, aligned = self.model, None
        tokens, _ = pad([[BOS, *prefix] for prefix in prefixes], encoded.device)
        positions = torch.arange(tokens.shape[1], device=encoded.device).expand_as(tokens)
        causal = additive(visible(positions + 1, tokens.shape[1]), encoded)
        cross = visible(lengths[:, None].expand_as(tokens), encoded.shape[1])
        states = model.embed(model.target_embedding, tokens, positions)
        for number, layer in enumerate(model.decoder):
            assert isinstance(layer, DecoderLayer)
            if align and number == attention_layer(len(model.decoder)):
                aligned = most_attended(layer.cross_weights(states, encoded, causal, cross), lengths - 1)
            states = layer(states, encoded, causal, additive(cross, states))
        states = model.decoder_norm(states)
        rows = max(1, LOGITS // (states.shape[1] * model.target_embedding.num_embeddings))
        return torch.cat([most_likely(model.logits(part)) for part in states.split(rows)]), aligned


def most_attended(weights: Tensor, counts: Tensor) -> Tensor:
    """(rows, target, source) attention, of which the first (rows) columns are units -> (rows, target) columns."""
    return weights.masked_fill(~visible(counts[:, None], weights.shape[-1])[:, 0], -1).argmax(-1)


@dataclass(frozen=True)
class Hypothesis:
    """A translation of the source so far, as if it were the whole one."""

    units: Sequence[int]  # what is written and a continuation, with the end mark unless it was cut
    aligned: Sequence[int] = ()  # for each of them the source unit, from 0, that got most attention

    @property
    def length(self) -> int:
        """Without the end mark."""
        return len(self.units) - (self.units[-1:] == [EOS])


@dataclass(frozen=True)
class Rule:
    """Which units of a hypothesis are final, once `read` source units (whole words) are read."""

    spec: PolicySpec

    def __post_init__(self) -> None:
        if self.spec.kind not in RULES:
            known = "full, wait-K, local-agreement-N and align-att-F"
            raise UserError(f"policy {self.spec}: a model that translates whole sentences knows {known}")

    @property
    def memory(self) -> int:
        """How many hypotheses it compares."""
        return self.spec.count if self.spec.kind == "local-agreement" else 1

    def most(self, read: int) -> int | None:
        """How many units may be written then, at most; None: as many as the model finds."""
        match self.spec.kind:
            case "full":
                return 0
            case "wait":
                return read - self.spec.count + 1
        return None

    def final(self, hypotheses: Sequence[Hypothesis], written: int, read: int) -> int:
        """Units of the last of these hypotheses that are final; so many are written already."""
        last = hypotheses[-1]
        match self.spec.kind:
            case "local-agreement" if len(hypotheses) < self.memory:
                return written
            case "local-agreement":  # what the hypotheses have in common
                columns = zip(*(one.units[: one.length] for one in hypotheses), strict=False)
                return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
            case "align-att":  # up to the first unit whose attention is on one of the last source units
                late = (n for n in range(written, last.length) if last.aligned[n] >= read - self.spec.count)
                return next(late, last.length)
        return last.length


def translates_anew(settings: Model, policy: PolicySpec) -> bool:
    """Whether one of our own models works under this policy as an offline model."""
    needs_source = settings.encoder == "bidirectional" and policy.kind == "wait"
    return needs_source or policy.kind in ("local-agreement", "align-att")


@dataclass
class Retranslation:
    """One sentence under way. `retranslate` brings it up to date after READs."""

    rule: Rule
    limit: Callable[[int], int]  # of target units, by the number of source units with the end mark
    source: list[int] = field(default_factory=list)  # units read, without the end mark
    finished: bool = False  # the end mark is read
    written: list[int] = field(default_factory=list)
    final: int = 0  # units of the last hypothesis that may be written
    current: bool = False  # whether the last hypothesis is of this source, and long enough

    def __post_init__(self) -> None:
        self.hypotheses: deque[Hypothesis] = deque(maxlen=self.rule.memory)

    @property
    def read_count(self) -> int:
        return len(self.source) + self.finished

    def read(self, unit: int) -> None:
        if unit != EOS:
            self.source.append(unit)
            self.current = False
            return
        self.finished = True
        last = self.hypotheses[-1] if self.current and self.hypotheses else Hypothesis([])
        self.current = last.length < len(last.units) or len(last.units) == self._limit
        self.final = len(last.units) if self.current else len(self.written)

    @property
    def _limit(self) -> int:
        return self.limit(len(self.source) + 1)

    @property
    def most(self) -> int:
        """Units of the next hypothesis at most."""
        wanted = None if self.finished else self.rule.most(len(self.source))
        return self._limit if wanted is None else min(wanted, self._limit)

    @property
    def draft(self) -> Sequence[int]:
        """What the next hypothesis probably is, without end mark."""
        last = self.hypotheses[-1] if self.hypotheses else Hypothesis([])
        return last.units[: min(last.length, self.most - 1)]

    def take(self, hypothesis: Hypothesis) -> None:
        self.hypotheses.append(hypothesis)
        self.current = True
        if self.finished:
            self.final = len(hypothesis.units)
        else:
            self.final = self.rule.final(self.hypotheses, len(self.written), len(self.source))

    @property
    def can_write(self) -> bool:
        return len(self.written) < self.final

    def write(self) -> int:
        self.written.append(self.hypotheses[-1].units[len(self.written)])
        return self.written[-1]


@torch.inference_mode()
def retranslate(model: OfflineModel, sentences: Iterable[Retranslation]) -> None:
    """Translate anew, in one batch, the sentences that have read since and may write.

    The result is that of greedy decoding. Each pass of the decoder predicts all units at once from those of the
    pass before, the first from the last hypothesis. What is predicted from right units is right, so each pass finds
    at least one more, and few passes are needed where the hypothesis hardly changes (Jacobi decoding).
    """
    waiting = [one for one in sentences if not one.current and one.most > len(one.written)]
    if not waiting:
        return
    if (longest := max(len(one.source) + 1 for one in waiting)) > model.max_positions:
        most = f"at most {model.max_positions} for this model"
        raise UserError(f"a source of {longest} units with its end mark is too long, {most}; split the sentence")
    encoded, lengths = model.encode([one.source for one in waiting])
    guesses = [list(one.draft) for one in waiting]
    left = list(range(len(waiting)))
    align = any(one.rule.spec.kind == "align-att" for one in waiting)
    while left:
        rows = torch.tensor(left, device=encoded.device)
        predicted, aligned = model.predict(encoded[rows], lengths[rows], [guesses[n] for n in left], align)
        heads = [[]] * len(left) if aligned is None else aligned.tolist()
        going = []
        for n, units, places in zip(left, predicted.tolist(), heads, strict=True):
            one, guess = waiting[n], guesses[n]
            written = len(one.written)
            predicted_units = [*one.written, *units[written : len(guess) + 1]]
            better, is_whole = improve(guess, predicted_units, written, one.most)
            if is_whole:
                one.take(Hypothesis(better, places[: len(better)]))
            else:
                guesses[n] = better[:-1] if better[-1] == EOS else better
                going.append(n)
        left = going


def improve(guess: Sequence[int], predicted: Sequence[int], written: int, most: int) -> tuple[list[int], bool]:
    """The next guess, cut after its end mark or at `most` units, and whether it is the whole translation.

    `predicted` (one more than the guess) was predicted from the guess; both begin with the `written` units.
    """
    right = next((n for n, unit in enumerate(guess) if unit != predicted[n]), len(guess)) + 1
    end = predicted.index(EOS, written) + 1 if EOS in predicted[written:] else most
    better = list(predicted[: min(end, most)])
    return better, min(end, most) <= right


def translate(
    model: OfflineModel, rule: Rule, sources: Sequence[KnownSource], limits: Limits, batch: int
) -> list[Output]:
    """In the order of the sources.

    The times of a sentence are those of its batch: with batches of 1 they are those of live translation.
    """
    order = sorted(range(len(sources)), key=lambda n: -len(sources[n].units))
    outputs = [Output() for _ in sources]
    with progress_bar(range(0), "translating", "sentences", len(sources)) as progress:
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            _translate_batch(model, rule, {n: sources[n] for n in chosen}, limits, outputs)
            progress.update(len(chosen))
    return outputs


def _translate_batch(
    model: OfflineModel, rule: Rule, sources: dict[int, KnownSource], limits: Limits, outputs: Sequence[Output]
) -> None:
    """READ a word in every sentence, then WRITE what is final, until the last has ended."""
    began = time.perf_counter()
    waiting = {n: iter([*by_word(source), [EOS]]) for n, source in sources.items()}
    under_way = {n: Retranslation(rule, model.limit(limits.of)) for n in sources}
    while under_way:
        for n, sentence in under_way.items():
            for unit in next(waiting[n]):
                sentence.read(unit)
        retranslate(model, under_way.values())
        now = 1000 * (time.perf_counter() - began)
        for n, sentence in under_way.items():
            while sentence.can_write:
                unit = sentence.write()
                outputs[n].units += [unit] * (unit != EOS)
                outputs[n].reads.append(sentence.read_count)
                outputs[n].times.append(now)
        under_way = {n: sentence for n, sentence in under_way.items() if not sentence.finished}


def by_word(source: KnownSource) -> list[list[int]]:
    """The units of each word."""
    grouped = itertools.groupby(zip(source.units, source.numbers, strict=True), key=lambda pair: pair[1])
    return [[unit for unit, _ in group] for _, group in grouped]
