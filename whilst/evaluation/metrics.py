"""Latency and quality of translated sentences. Conventions: docs/metrics.md. Knows no model.

The latency formulas take the reads g of each target position and two lengths. There are two conventions:
- the paper's: over model units, with the hypothesis's length (`al`, `cw`; BLEU tokenised and lower-cased);
- SimulEval's and sacreBLEU's: over words, with the reference's length (`al_word`, `laal`, `ap`, `dal`).

For speech, the formulas take milliseconds instead of counts.
"""

import dataclasses
import itertools
import math
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from whilst.core.errors import UserError
from whilst.core.files import write_lines
from whilst.data.text import unescape
from whilst.evaluation.trace import Sentence

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

WORD_MS = 300.0  # milliseconds of speech per source word, as in SimulEval's ATD


def average_lagging(reads: Sequence[float], source_length: float, target_length: int) -> float:
    """AL: how many source tokens the translation lags behind one at a constant rate.

    Averaged up to the first target token that is written with the whole source.
    """
    rate = source_length / target_length
    total = 0.0
    for i, g in enumerate(reads):
        total += g - i * rate
        if g >= source_length:
            return total / (i + 1)
    return total / len(reads)


def length_adaptive_average_lagging(reads: Sequence[float], source_length: float, reference_length: int) -> float:
    """LAAL: AL with the longer of hypothesis and reference, so that a longer hypothesis has no advantage."""
    return average_lagging(reads, source_length, max(len(reads), reference_length))


def yet_another_average_lagging(
    reads: Sequence[float], source_length: float, reference_length: int, end: float | None = None
) -> float | None:
    """YAAL: LAAL over the words written before `end`, by default the end of the source; None if there are none."""
    end = source_length if end is None else end
    rate = source_length / max(len(reads), reference_length)
    early = itertools.takewhile(lambda g: g < end, reads)
    lags = [g - i * rate for i, g in enumerate(early)]
    return fmean(lags) if lags else None


def average_token_delay(
    reads: Sequence[float], computing: Sequence[float] = (), source_token: float = 1, target_token: float = 1
) -> float:
    """ATD: the mean time from the end of a source token to the end of the target token at the same position.

    Tokens have a duration; a target token begins when the previous one has ended. After a burst of more target
    tokens than source tokens, later ones are compared with earlier source tokens. `computing`: per target token.
    """
    ends, done = [0.0], 0.0  # when each source token that was read, and the last target token, ended
    lags: list[float] = []
    for delay, burst in itertools.groupby(
        zip(reads, computing or [0.0] * len(reads), strict=True), lambda pair: pair[0]
    ):
        excess = max(0, len(lags) - (len(ends) - 1))
        whole, rest = divmod(delay - ends[-1], source_token)
        ends += [ends[-1] + source_token * count for count in range(1, int(whole) + 1)] + [delay] * (rest > 0)
        for _, time in burst:
            done = max(delay, done) + target_token + time
            lags.append(done - ends[min(len(lags) + 1 - excess, len(ends) - 1)])
    return fmean(lags)


def average_proportion(reads: Sequence[float], source_length: float, reference_length: int) -> float:
    """AP: the share of the source that is read, averaged over the reference length."""
    return sum(reads) / (source_length * reference_length)


def differentiable_average_lagging(reads: Sequence[float], source_length: float) -> float:
    """DAL: AL over all target tokens, each of which costs at least `rate` tokens. Uses the hypothesis length."""
    rate = source_length / len(reads)
    total, earliest = 0.0, -math.inf  # the earliest time of the next token
    for i, g in enumerate(reads):
        start = max(float(g), earliest)
        total += start - i * rate
        earliest = start + rate
    return total / len(reads)


def consecutive_wait(reads: Sequence[int]) -> float:
    """CW: mean number of consecutive READs before a WRITE; READs after the last WRITE do not count."""
    runs = [after - before for before, after in itertools.pairwise((0, *reads)) if after > before]
    return fmean(runs) if runs else 0.0


@dataclass(frozen=True)
class Scores:
    """Scores of a corpus. Latency: mean over sentences with an output; quality: None without references."""

    sentences: int
    empty: int  # sentences without an output or a source, which count for quality only
    al: float  # paper convention: units, hypothesis length
    cw: float  # units
    al_word: float  # SimulEval's convention: words, reference length
    laal: float
    ap: float
    dal: float
    bleu: float | None = None  # paper convention: tokenised, lower-cased
    sacrebleu: float | None = None  # 13a, cased, entities unescaped
    chrf: float | None = None
    signatures: dict[str, str] = field(default_factory=dict)
    # Older records lack the scores below.
    length: float | None = None  # words written for each word of the references
    atd: float | None = None
    yaal: float | None = None  # None if all words are written after their source's end
    # With computing time, one source word every WORD_MS; None without elapsed times. They differ with every run.
    al_ca: float | None = field(default=None, compare=False)
    laal_ca: float | None = field(default=None, compare=False)

    def to_table(self) -> dict[str, float | None]:
        """The scores without the signatures, rounded to four digits so that files are comparable."""
        table = dataclasses.asdict(self)
        del table["signatures"]
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in table.items()}


def score(sentences: Sequence[Sentence], references: Sequence[str] | None = None) -> Scores:
    """All scores. `references[i]` belongs to the sentence of index i; default: the references in the sentences.

    If a reference is missing or all are empty, only latency is measured.
    """
    measured = [item for item in sentences if is_measured(item)]
    if not measured:
        raise UserError("no sentence has an output: there is no latency to measure")

    reference_words = sum(item.reference_length for item in sentences)

    def mean(figure: Callable[[Sentence], float]) -> float:
        return fmean(map(figure, measured))

    yaal = [yet_another_average_lagging(s.delays, s.source_length, counted_reference(s)) for s in measured]
    early = [lag for lag in yaal if lag is not None]
    paced = [(s, [ms / WORD_MS for ms in paced_times(s)]) for s in measured if s.elapsed]
    scores = Scores(
        sentences=len(sentences),
        empty=len(sentences) - len(measured),
        al=mean(lambda s: average_lagging(s.reads, s.source_units, len(s.reads))),
        cw=mean(lambda s: consecutive_wait(s.reads)),
        al_word=mean(lambda s: average_lagging(s.delays, s.source_length, counted_reference(s))),
        laal=mean(lambda s: length_adaptive_average_lagging(s.delays, s.source_length, counted_reference(s))),
        ap=mean(lambda s: average_proportion(s.delays, s.source_length, counted_reference(s))),
        dal=mean(lambda s: differentiable_average_lagging(s.delays, s.source_length)),
        length=sum(len(item.delays) for item in sentences) / reference_words if reference_words else None,
        atd=mean(lambda s: average_token_delay(s.delays)),
        yaal=fmean(early) if early else None,
    )
    if len(paced) == len(measured):
        al = fmean(average_lagging(times, s.source_length, counted_reference(s)) for s, times in paced)
        laal = fmean(length_adaptive_average_lagging(t, s.source_length, counted_reference(s)) for s, t in paced)
        scores = dataclasses.replace(scores, al_ca=al, laal_ca=laal)
    ordered = sorted(sentences, key=lambda item: item.index)
    if references is None:
        references = [item.reference for item in ordered if item.reference is not None]
        if len(references) < len(ordered) or not any(references):
            return scores
    present, expected = Counter(item.index for item in sentences), Counter(range(len(references)))
    if wrong := (present - expected) + (expected - present):
        first = min(wrong)
        problem = f"sentence {first} (from 0) is {'missing' if first not in present else 'one too many'}"
        raise UserError(f"{len(sentences)} sentences do not match {len(references)} references by index: {problem}")
    by_name = quality([item.prediction for item in ordered], references)
    bleu, sacrebleu, chrf = (figure for figure, _ in by_name.values())
    signatures = {name: signature for name, (_, signature) in by_name.items()}
    return dataclasses.replace(scores, bleu=bleu, sacrebleu=sacrebleu, chrf=chrf, signatures=signatures)


def paced_times(sentence: Sentence) -> list[float]:
    """When each word is written, in ms, if a source word arrives every WORD_MS. Computing times are from the trace.

    The computing for a word begins when its last source word has arrived and the previous word is written.
    """
    times: list[float] = []
    for read, begun, ended in zip(sentence.delays, (0.0, *sentence.elapsed), sentence.elapsed, strict=False):
        times.append(max(read * WORD_MS, times[-1] if times else 0.0) + (ended - begun))
    return times


def is_measured(sentence: Sentence) -> bool:
    """Whether latency is defined: there is an output and a source."""
    return bool(sentence.delays and sentence.reads and sentence.source_length and sentence.source_units)


def counted_reference(sentence: Sentence) -> int:
    """The reference length in words; an empty reference counts as one word, as in SimulEval."""
    return max(sentence.reference_length, 1)


def paper_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU on the tokens as they are, lower-cased: the paper's convention. Returns the score and its signature."""
    from sacrebleu.metrics.bleu import BLEU

    return _quality(BLEU(lowercase=True, tokenize="none", force=True), hypotheses, references)


def quality(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, tuple[float, str]]:
    """Every quality score by its name in `Scores`, with its signature."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    raw = list(map(unescape, hypotheses)), list(map(unescape, references))
    return {
        "bleu": paper_bleu(hypotheses, references),
        "sacrebleu": _quality(BLEU(force=True), *raw),  # 13a and cased; force: no warning of tokenised text
        "chrf": _quality(CHRF(), *raw),  # chrF2
    }


def comet(model: str, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The score of a text by the command comet-score, whose package needs an environment of its own."""
    texts = {"-s": sources, "-t": hypotheses, "-r": references}
    command = ["comet-score", "--model", model, "--only_system", "--quiet"]
    command += ["--gpus", "1" if shutil.which("nvidia-smi") else "0"]
    with tempfile.TemporaryDirectory() as folder:
        for option, lines in texts.items():
            path = Path(folder, f"text{option}")
            write_lines(path, lines)
            command += [option, str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            advice = "install unbabel-comet into an environment of its own (it needs NumPy below 2)"
            raise UserError(f"comet-score is not on the PATH: {advice} and add its bin folder") from None
    found = re.search(r"score: (-?\d+\.\d+)", done.stdout)
    if done.returncode or found is None:
        raise UserError(f"comet-score failed: {done.stderr.strip().splitlines()[-1:] or done.stdout[-200:]}")
    return float(found[1])


def _quality(metric: "BLEU | CHRF", hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    return (metric.corpus_score(hypotheses, [references]).score, str(metric.get_signature()))
