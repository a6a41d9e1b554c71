"""Simultaneous translation with a full-sentence model, which translates again after every source word.

A rule decides which units of the new translation are final. These units are written, and every later translation
begins with them, so nothing is taken back. Rules: wait-k, LocalAgreement (Liu et al., 2020), AlignAtt (Papi et al.,
2023).
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
LOGITS = 1 << 28  # maximum number that is computed at once


def attention_layer(layers: int) -> int:
    """The decoder layer whose attention tells which source unit a target unit translates: the fourth of six."""
    return max(0, 2 * layers // 3 - 1)


class OfflineModel(abc.ABC):
    """A full-sentence model. Sources are passed without end mark, and each is translated as a whole sentence."""

    max_positions: int  # maximum number of units in a source or a translation, end mark counted

    def limit(self, limit: Callable[[int], int]) -> Callable[[int], int]:
        """The same limit of target units, as a function of source units, but at most `max_positions`."""
        return lambda source: min(limit(source), self.max_positions)

    @abc.abstractmethod
    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """(rows, longest, width) encoder states, and (rows) the number of states of each source."""

    @abc.abstractmethod
    def predict(
        self, encoded: Tensor, lengths: Tensor, prefixes: Sequence[Sequence[int]], align: bool
    ) -> tuple[Tensor, Tensor | None]:
        """(rows, longest + 1) the most likely unit after 0, 1, … units of each prefix.

        With `align` also (rows, longest + 1) the source unit, from 0, that gets most attention for this prediction.
        """


class TranslatorModel(OfflineModel):
    """A `Translator` as an offline model. Its encoder may be causal or bidirectional."""

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
    """(rows, target, source) attention -> (rows, target) the column with most, among the first `counts` (rows)."""
    return weights.masked_fill(~visible(counts[:, None], weights.shape[-1])[:, 0], -1).argmax(-1)


@dataclass(frozen=True)
class Hypothesis:
    """A translation of the source so far, as if this were the whole source."""

    units: Sequence[int]  # the units written and a continuation, with the end mark unless it was cut
    aligned: Sequence[int] = ()  # for each unit the source unit, from 0, that got most attention

    @property
    def length(self) -> int:
        """Number of units without the end mark."""
        return len(self.units) - (self.units[-1:] == [EOS])


@dataclass(frozen=True)
class Rule:
    """Decides which units of a hypothesis are final when `read` source units (whole words) are read."""

    spec: PolicySpec

    def __post_init__(self) -> None:
        if self.spec.kind not in RULES:
            known = "full, wait-K, local-agreement-N and align-att-F"
            raise UserError(f"policy {self.spec}: a full-sentence model only supports {known}")

    @property
    def memory(self) -> int:
        """Number of hypotheses that the rule compares."""
        return self.spec.count if self.spec.kind == "local-agreement" else 1

    def max_units(self, read: int) -> int | None:
        """How many units may be written in all, once `read` source units are read; None: no maximum."""
        match self.spec.kind:
            case "full":
                return 0
            case "wait":
                return read - self.spec.count + 1
        return None

    def final(self, hypotheses: Sequence[Hypothesis], written: int, read: int) -> int:
        """Number of units of the last hypothesis that are final. `written`: number of units written."""
        last = hypotheses[-1]
        match self.spec.kind:
            case "local-agreement" if len(hypotheses) < self.memory:
                return written
            case "local-agreement":  # the common prefix of the hypotheses
                columns = zip(*(each.units[: each.length] for each in hypotheses), strict=False)
                return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
            case "align-att":  # up to the first unit whose attention is on one of the last source units
                late = (n for n in range(written, last.length) if last.aligned[n] >= read - self.spec.count)
                return next(late, last.length)
        return last.length


def needs_retranslation(settings: Model, policy: PolicySpec) -> bool:
    """Whether a `Translator` with these settings is used as an offline model under this policy."""
    needs_source = settings.encoder == "bidirectional" and policy.kind == "wait"
    return needs_source or policy.kind in ("local-agreement", "align-att")


@dataclass
class Retranslation:
    """The translation of one sentence. `retranslate` brings it up to date after READs."""

    rule: Rule
    limit: Callable[[int], int]  # of target units, as a function of source units with the end mark
    source: list[int] = field(default_factory=list)  # units read, without the end mark
    finished: bool = False  # whether the end mark is read
    written: list[int] = field(default_factory=list)
    final: int = 0  # number of units of the last hypothesis that may be written
    current: bool = False  # whether the last hypothesis is a translation of `source`, and long enough

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
    def max_units(self) -> int:
        """Maximum number of units in the next hypothesis."""
        maximum = None if self.finished else self.rule.max_units(len(self.source))
        return self._limit if maximum is None else min(maximum, self._limit)

    @property
    def draft(self) -> Sequence[int]:
        """A guess of the next hypothesis, without end mark: the last one."""
        last = self.hypotheses[-1] if self.hypotheses else Hypothesis([])
        return last.units[: min(last.length, self.max_units - 1)]

    def add(self, hypothesis: Hypothesis) -> None:
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
    """Translate again, in one batch, the sentences that have changed by READs and may WRITE.

    The result is that of greedy decoding. Each pass of the decoder predicts all units at once from the units of the
    previous pass, the first pass from the last hypothesis. A unit that is predicted from correct units is correct,
    so each pass finds at least one more, and few passes are needed where the hypothesis hardly changes (Jacobi
    decoding).
    """
    waiting = [each for each in sentences if not each.current and each.max_units > len(each.written)]
    if not waiting:
        return
    if (longest := max(len(sentence.source) + 1 for sentence in waiting)) > model.max_positions:
        limit = f"at most {model.max_positions} for this model"
        raise UserError(f"a source of {longest} units with its end mark is too long, {limit}; split the sentence")
    encoded, lengths = model.encode([sentence.source for sentence in waiting])
    guesses = [list(sentence.draft) for sentence in waiting]
    unfinished = list(range(len(waiting)))
    align = any(sentence.rule.spec.kind == "align-att" for sentence in waiting)
    while unfinished:
        rows = torch.tensor(unfinished, device=encoded.device)
        prefixes = [guesses[n] for n in unfinished]
        predicted, aligned = model.predict(encoded[rows], lengths[rows], prefixes, align)
        alignments = [[]] * len(unfinished) if aligned is None else aligned.tolist()
        improved = []
        for n, units, alignment in zip(unfinished, predicted.tolist(), alignments, strict=True):
            sentence, guess = waiting[n], guesses[n]
            written = len(sentence.written)
            predicted_units = [*sentence.written, *units[written : len(guess) + 1]]
            better, is_complete = improve(guess, predicted_units, written, sentence.max_units)
            if is_complete:
                sentence.add(Hypothesis(better, alignment[: len(better)]))
            else:
                guesses[n] = better[:-1] if better[-1] == EOS else better
                improved.append(n)
        unfinished = improved


def improve(guess: Sequence[int], predicted: Sequence[int], written: int, max_units: int) -> tuple[list[int], bool]:
    """The next guess, cut after its end mark or at `max_units`, and whether it is the result of greedy decoding.

    `predicted` has one unit more than `guess`, from which it was predicted; both begin with the `written` units.
    """
    correct = next((n for n, unit in enumerate(guess) if unit != predicted[n]), len(guess)) + 1
    end = predicted.index(EOS, written) + 1 if EOS in predicted[written:] else max_units
    better = list(predicted[: min(end, max_units)])
    return better, min(end, max_units) <= correct


def translate(
    model: OfflineModel, rule: Rule, sources: Sequence[KnownSource], limits: Limits, batch: int
) -> list[Output]:
    """Outputs in the order of the sources.

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
    words = {n: iter([*by_word(source), [EOS]]) for n, source in sources.items()}
    unfinished = {n: Retranslation(rule, model.limit(limits.of)) for n in sources}
    while unfinished:
        for n, sentence in unfinished.items():
            for unit in next(words[n]):
                sentence.read(unit)
        retranslate(model, unfinished.values())
        now = 1000 * (time.perf_counter() - began)
        for n, sentence in unfinished.items():
            while sentence.can_write:
                unit = sentence.write()
                outputs[n].units += [unit] * (unit != EOS)
                outputs[n].reads.append(sentence.read_count)
                outputs[n].times.append(now)
        unfinished = {n: sentence for n, sentence in unfinished.items() if not sentence.finished}


def by_word(source: KnownSource) -> list[list[int]]:
    """The units of each word."""
    grouped = itertools.groupby(zip(source.units, source.numbers, strict=True), key=lambda pair: pair[1])
    return [[unit for unit, _ in group] for _, group in grouped]
