"""Latency and quality of translated sentences, each figure by a stated convention (docs/metrics.md).

The formulas work on g, the reads of each target position, and two lengths. They know no model and no files.
Two conventions stand side by side:
- the paper's: over model units, with the hypothesis's length (`al`, `cw`; BLEU tokenised and lower-cased);
- SimulEval's and sacreBLEU's: over words, with the reference's length (`al_word`, `laal`, `ap`, `dal`).
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from whilst.core.errors import UserError
from whilst.data.text import unescape
from whilst.evaluation.trace import Sentence


def average_lagging(reads: Sequence[int], source_length: int, target_length: int) -> float:
    """AL: how far, in source tokens, the translation runs behind a translator who keeps an even pace.

    Stops at the first target token that saw the whole source: what follows has nothing left to wait for.
    """
    pace = source_length / target_length
    total = 0.0
    for i, g in enumerate(reads):
        total += g - i * pace
        if g >= source_length:
            return total / (i + 1)
    return total / len(reads)


def length_adaptive_average_lagging(reads: Sequence[int], source_length: int, reference_length: int) -> float:
    """LAAL: AL with the longer of hypothesis and reference, so that saying too much does not pay."""
    return average_lagging(reads, source_length, max(len(reads), reference_length))


def average_proportion(reads: Sequence[int], source_length: int, reference_length: int) -> float:
    """AP: the share of the source that had been read, averaged over the reference's length."""
    return sum(reads) / (source_length * reference_length)


def differentiable_average_lagging(reads: Sequence[int], source_length: int) -> float:
    """DAL: AL over all target tokens, where each takes at least its even share of the source's time.

    Uses the hypothesis's length, also in SimulEval.
    """
    pace = source_length / len(reads)
    total = 0.0
    free_from = 0.0  # when the even-paced translator can say the next token
    for i, g in enumerate(reads):
        start = max(float(g), free_from)
        total += start - i * pace
        free_from = start + pace
    return total / len(reads)


def consecutive_wait(reads: Sequence[int]) -> float:
    """CW: mean length of the runs of READs before a WRITE; what is read after the last WRITE is no wait."""
    runs = [after - before for before, after in itertools.pairwise((0, *reads)) if after > before]
    return fmean(runs) if runs else 0.0


@dataclass(frozen=True)
class Scores:
    """Corpus figures. Latency: mean over sentences that have an output; quality: None without references."""

    sentences: int
    empty: int  # without an output (or without a source): no latency, but they count for quality
    al: float  # paper convention: units, hypothesis length
    cw: float  # units
    al_word: float  # SimulEval's convention: words, reference length
    laal: float
    ap: float
    dal: float
    bleu: float | None = None  # paper convention: tokenised, lower-cased
    sacrebleu: float | None = None  # 13a, cased, entities unescaped
    chrf: float | None = None
    signatures: Mapping[str, str] = field(default_factory=dict)

    def to_table(self) -> dict[str, float | None]:
        """The figures as plain data; the signatures are apart. Four digits, so that files compare well."""
        names = [item.name for item in dataclasses.fields(self) if item.name != "signatures"]
        values = ((name, getattr(self, name)) for name in names)
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in values}

    @classmethod
    def from_table(cls, table: Mapping[str, Any], signatures: Mapping[str, str]) -> "Scores":
        """What `to_table` wrote; a missing or unknown figure is an error."""
        names = {item.name for item in dataclasses.fields(cls)} - {"signatures"}
        if set(table) != names:
            raise UserError(f"scores: missing or unknown figures {sorted(names ^ set(table))}")
        for name, value in table.items():
            is_absent = value is None and name in ("bleu", "sacrebleu", "chrf")
            if not (is_absent or isinstance(value, int | float)):
                raise UserError(f"scores: {name!r} is of the wrong kind, {value!r}")
        return cls(**table, signatures=dict(signatures))


def score(sentences: Sequence[Sentence], references: Sequence[str] | None) -> Scores:
    """All figures. `references[i]` belongs to the sentence of index i; None: latency only."""
    measured = [item for item in sentences if is_measured(item)]
    if not measured:
        raise UserError("not one sentence has an output: there is no latency to measure")

    def mean(figure: Callable[[Sentence], float]) -> float:
        return fmean(map(figure, measured))

    scores = Scores(
        sentences=len(sentences),
        empty=len(sentences) - len(measured),
        al=mean(lambda s: average_lagging(s.reads, s.source_units, len(s.reads))),
        cw=mean(lambda s: consecutive_wait(s.reads)),
        al_word=mean(lambda s: average_lagging(s.delays, s.source_length, counted_reference(s))),
        laal=mean(lambda s: length_adaptive_average_lagging(s.delays, s.source_length, counted_reference(s))),
        ap=mean(lambda s: average_proportion(s.delays, s.source_length, counted_reference(s))),
        dal=mean(lambda s: differentiable_average_lagging(s.delays, s.source_length)),
    )
    if references is None:
        return scores
    found, wanted = Counter(item.index for item in sentences), Counter(range(len(references)))
    if wrong := (found - wanted) + (wanted - found):
        first = min(wrong)
        how = f"sentence {first} (from 0) is {'missing' if first not in found else 'one too many'}"
        raise UserError(f"{len(sentences)} sentences do not match {len(references)} references by index: {how}")
    hypotheses = [item.prediction for item in sorted(sentences, key=lambda item: item.index)]
    qualities = {name: measure(hypotheses, references) for name, measure in QUALITIES.items()}
    return dataclasses.replace(
        scores,
        bleu=qualities["bleu"].score,
        sacrebleu=qualities["sacrebleu"].score,
        chrf=qualities["chrf"].score,
        signatures={name: quality.signature for name, quality in qualities.items()},
    )


def is_measured(sentence: Sentence) -> bool:
    """Whether latency is defined: something was written and there was something to read."""
    return bool(sentence.delays and sentence.reads and sentence.source_length and sentence.source_units)


def counted_reference(sentence: Sentence) -> int:
    """SimulEval counts an empty reference as one word; so does this, and nothing divides by zero."""
    return max(sentence.reference_length, 1)


@dataclass(frozen=True)
class Quality:
    """A corpus score and the signature that says how it was made."""

    score: float
    signature: str


def paper_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Quality:
    """BLEU on the tokens as they stand, lower-cased: the paper's convention."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(lowercase=True, tokenize="none", force=True)  # force: tokenised text is meant here
    return Quality(metric.corpus_score(hypotheses, [references]).score, str(metric.get_signature()))


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Quality:
    """sacreBLEU's default (13a, cased) after &apos; and its like have become characters."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(force=True)
    result = metric.corpus_score(_plain(hypotheses), [_plain(references)])
    return Quality(result.score, str(metric.get_signature()))


def chr_f(hypotheses: Sequence[str], references: Sequence[str]) -> Quality:
    """chrF2 on the same unescaped text."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    result = metric.corpus_score(_plain(hypotheses), [_plain(references)])
    return Quality(result.score, str(metric.get_signature()))


def _plain(lines: Sequence[str]) -> list[str]:
    return [unescape(line) for line in lines]


QUALITIES = {"bleu": paper_bleu, "sacrebleu": sacre_bleu, "chrf": chr_f}
