"""Sufficiency: the share of aligned words that a policy writes after it has read the source words aligned to them.

A link of an alignment joins a source word and a word of the reference, both counted from 1. A word is covered if
the last source word linked to it has been read to its last unit when the word's first unit is written. Decoding is
forced along the reference, so the policy only decides when to WRITE. AL is that of the same reads.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from whilst.core.console import console, notes, progress_bar
from whilst.core.distributed import device_name, pick_device
from whilst.core.errors import UserError
from whilst.core.files import sha256, sha256_lines, write_json
from whilst.core.provenance import provenance
from whilst.core.settings import Evaluate
from whilst.data.dataset import Split, TokenSequences
from whilst.data.text import cleaner, read_lines, read_pairs
from whilst.data.vocabulary import EOS, Language
from whilst.decoding.batched import forced_reads
from whilst.decoding.policies import policy_for
from whilst.evaluation.curves import Point as CurvePoint
from whilst.evaluation.curves import joined
from whilst.evaluation.evaluate import Job, find_jobs, loader, with_precision
from whilst.evaluation.figure import Line, draw
from whilst.evaluation.identity import Decoding, System, pair_name, shown_label
from whilst.evaluation.metrics import average_lagging
from whilst.evaluation.tables import Grid
from whilst.model.checkpoint import LoadedRun
from whilst.model.run_folder import base_objective

NAMES = "average lagging along the reference (source units)", "aligned words whose source was read (%)"
WORDS = r"[1-9][0-9]*(?:,[1-9][0-9]*)*"
LINK = re.compile(rf"({WORDS})([-p])({WORDS})")


def last_sources(line: str, words: tuple[int, int], possible: bool, reverse: bool, where: str) -> dict[int, int]:
    """For each aligned target word of a sentence, the last source word linked to it.

    `9-8` is a sure link, `25p22` a possible one, which counts if `possible`; `9-8,10` stands for two links. Spaces
    or semicolons separate links. `reverse`: the target comes first in a link. `words`: the numbers of source and
    target words. `where`: for messages.
    """
    last: dict[int, int] = {}
    for item in line.replace(";", " ").split():
        match = LINK.fullmatch(item)
        if match is None:
            raise UserError(f"{where}: {item!r} is not a link; write 9-8 (sure) or 25p22 (possible)")
        left, right = (list(map(int, match[number].split(","))) for number in ((3, 1) if reverse else (1, 3)))
        source, target = max(left), max(right)
        if source > words[0] or target > words[1]:
            raise UserError(
                f"{where}: a link from source word {source} to target word {target}, but the sentences have"
                f" {words[0]} and {words[1]} words; --reverse if the target comes first"
            )
        if possible or match[2] == "-":
            last |= {word: max(source, last.get(word, 0)) for word in right}
    return last


@dataclass(frozen=True)
class Aligned:
    """A text with its gold alignment. Words are those of the files."""

    source: list[str]
    target: list[str]
    needs: list[dict[int, int]]  # of each sentence: the last source word linked to each aligned target word

    @classmethod
    def read(
        cls,
        source: Path,
        target: Path,
        alignment: Path,
        possible: bool,
        reverse: bool,
        sentences: int | None = None,
    ) -> "Aligned":
        """`sentences`: how many to use, chosen by source checksum; sentences with faulty links are then skipped."""
        sources, targets = read_pairs((source, target))
        lines = read_lines(alignment)
        if len(lines) != len(sources):
            raise UserError(f"{alignment}: has {len(lines)} lines, but {source} has {len(sources)}")
        chosen: dict[int, dict[int, int]] = {}
        for number in sorted(range(len(lines)), key=lambda n: sha256_lines([sources[n]]) if sentences else n):
            words, where = (len(sources[number].split()), len(targets[number].split())), f"{alignment}:{number + 1}"
            try:
                chosen[number] = last_sources(lines[number], words, possible, reverse, where)
            except UserError as error:
                if sentences is None:
                    raise
                notes.print(f"skipped: {error}")
            if len(chosen) == sentences:
                break
        order = sorted(chosen)
        return cls([sources[n] for n in order], [targets[n] for n in order], [chosen[n] for n in order])


def encode(line: str, clean: Callable[[str], str], language: Language) -> list[list[int]]:
    """The units of each word. Words are cleaned one by one, so that units can be assigned; some have no units."""
    return [language.encode(clean(word).split()) for word in line.split()]


def needs(source: list[list[int]], target: list[list[int]], aligned: Mapping[int, int]) -> list[tuple[int, int]]:
    """For each aligned word with units: its first unit (from 0), and the reads that it needs."""
    reads, written = ([0, *itertools.accumulate(map(len, words))] for words in (source, target))
    return [(written[word - 1], reads[last]) for word, last in sorted(aligned.items()) if target[word - 1]]


def sufficient(reads: Sequence[int], needed: Sequence[tuple[int, int]]) -> int:
    """How many of these words have the reads that they need."""
    return sum(reads[unit] >= minimum for unit, minimum in needed)


@dataclass(frozen=True)
class Encoded:
    """An aligned text in the units of a run, end marks included."""

    split: Split
    needs: list[list[tuple[int, int]]]  # of each sentence: first unit of an aligned word, and the reads it needs

    @classmethod
    def of(cls, text: Aligned, trained: LoadedRun) -> "Encoded":
        data = trained.recipe.data
        clean = cleaner(data, data.source), cleaner(data, data.target)
        sources, targets, needed = [], [], []
        for source, target, links in zip(text.source, text.target, text.needs, strict=True):
            left, right = encode(source, clean[0], trained.source), encode(target, clean[1], trained.target)
            if any(left) and any(right):  # cleaning may remove all words of a side
                sources.append([*itertools.chain(*left), EOS])
                targets.append([*itertools.chain(*right), EOS])
                needed.append(needs(left, right, links))
        if not any(needed):
            raise UserError("no word is aligned, so there is nothing to measure")
        return cls(Split(TokenSequences.from_lists(sources), TokenSequences.from_lists(targets)), needed)


@dataclass(frozen=True)
class Point:
    """The sufficiency and AL of one policy of one run."""

    system: str
    policy: str
    label: str  # of the point on its curve: k, the search interval, or MMA's weight of latency
    run: str
    pair: str
    sufficiency: float  # share of all aligned words
    sentence_mean: float  # mean over sentences with aligned words
    al: float  # units, along the reference
    words: int
    sentences: int
    model_sha256: str

    @property
    def variant(self) -> str:
        """Options such as threshold-0.9; each variant of a policy has a curve of its own."""
        return self.policy.partition(".")[2]


def reads_along(job: Job[LoadedRun], split: Split, sentences: Sequence[int]) -> list[list[int]]:
    """The policy's reads along the references of these sentences, in batches of similar length."""
    # The translation ends with the reference, whatever the model would write.
    policy = policy_for(job.trained, job.policy, replace(job.settings, ending="free"), split)
    order = sorted(sentences, key=lambda number: int(split.target.lengths[number]))
    reads: dict[int, list[int]] = {}
    for start in progress_bar(range(0, len(order), job.settings.batch), str(job.policy), "batches"):
        numbers = order[start : start + job.settings.batch]
        sources, targets = ([side[n].tolist() for n in numbers] for side in (split.source, split.target))
        reads |= zip(numbers, forced_reads(job.trained.model, sources, targets, policy, numbers), strict=True)
    return [reads[number] for number in sentences]


def measure(run: Path, job: Job[LoadedRun], text: Encoded) -> Point:
    recipe, lags, covered = job.trained.recipe, [], []
    reads = reads_along(job, text.split, range(len(text.needs)))
    for units, needed, row in zip(text.split.source.lengths.tolist(), text.needs, reads, strict=True):
        covered.append(sufficient(row, needed))
        length = units - 1  # without end marks
        lags.append(average_lagging([min(g, length) for g in row[:-1]], length, len(row) - 1))
    aligned = list(map(len, text.needs))
    shares = [part / whole for part, whole in zip(covered, aligned, strict=True) if whole]
    # The other settings concern the choice of words, which the reference gives here.
    deciding = Evaluate(threshold=job.settings.threshold, precision=job.settings.precision)
    decoding = Decoding.of(job.policy, deciding)
    return Point(
        system=str(System.of(recipe, job.policy, base_objective(recipe, job.trained.path))),
        policy=str(decoding),
        label=shown_label(decoding.policy, recipe),
        run=str(run),
        pair=pair_name(recipe.data),
        sufficiency=round(sum(covered) / sum(aligned), 4),
        sentence_mean=round(fmean(shares), 4),
        al=round(fmean(lags), 4),
        words=sum(aligned),
        sentences=len(shares),
        model_sha256=job.trained.checksum,
    )


def jobs_of(
    runs: Sequence[Path], policies: Sequence[str], overrides: list[str], device: str
) -> list[tuple[Path, Job[LoadedRun]]]:
    """A job for every policy of every run."""
    load = loader(overrides, device)
    jobs = [(run, job) for run in runs for job in find_jobs(run, policies, load)[1]]
    languages = {f"{job.trained.source.name} to {job.trained.target.name}": run for run, job in jobs}
    if len(languages) > 1:
        each = ", ".join(f"{run} translates {pair}" for pair, run in languages.items())
        raise UserError(f"these runs cannot be compared: {each}")
    for _, job in jobs:
        with_precision(job.trained)
    return jobs


def measure_points(jobs: Sequence[tuple[Path, Job[LoadedRun]]], text: Aligned) -> list[Point]:
    """Measure all jobs. Each first runs on one sentence, so that errors show before hours of work."""
    models = {job.trained.path: job.trained for _, job in jobs}
    encoded = {path: Encoded.of(text, trained) for path, trained in models.items()}
    for _, job in jobs:
        reads_along(job, encoded[job.trained.path].split, [0])
    return [measure(run, job, encoded[job.trained.path]) for run, job in jobs]


def sufficiency(
    runs: Sequence[Path],
    files: tuple[Path, Path, Path],  # source, reference, alignment
    policies: Sequence[str],
    possible: bool,
    reverse: bool,
    out: Path,
    overrides: list[str],
    device: str,
    sentences: int | None = None,
) -> list[Point]:
    """Measure each policy of each run; write `out`/sufficiency.json, .png and .svg."""
    text = Aligned.read(*files, possible, reverse, sentences)
    jobs = jobs_of(runs, policies, overrides, device)
    if all(job.policy.kind == "full" for _, job in jobs):
        raise UserError("policy full: reads everything first and is always sufficient; name another with --policy")
    points = measure_points(jobs, text)
    links = "sure and possible" if possible else "sure"
    table = {
        "links": links,
        "files": {str(path): sha256(path) for path in files},
        "points": [asdict(point) for point in points],
        **provenance(device_name(pick_device(device))),
    }
    write_json(out / "sufficiency.json", table)
    title = f"Sufficiency by {links} links, {points[0].sentences} sentences"
    draw(curves(points), title, out / "sufficiency", NAMES)
    print_points(points)
    notes.print(f"{out}: sufficiency.json, sufficiency.png, sufficiency.svg")
    return points


def systems(points: Sequence[Point]) -> list[str]:
    """The name of each point's curve: its system, and its run if several runs have more than one point."""
    names = []
    for point in points:
        alike = [p for p in points if (p.system, p.variant) == (point.system, point.variant)]
        runs, labels = {p.run for p in alike}, {p.label for p in alike}
        is_one_curve = len(runs) == 1 or len(runs) == len(labels) == len(alike)
        names.append(point.system if is_one_curve else f"{point.system}, {point.run}")
    return names


def curves(points: Sequence[Point]) -> list[Line]:
    """The curves of all policies but `full`, whose AL is the source's length and whose share is 1.

    Policies that do not depend on the model give the same points for several runs, which are drawn once.
    """
    distinct: dict[object, Point] = {}
    for point in points:
        is_fixed = point.policy.startswith(("wait-", "diagonal-"))
        if not point.policy.startswith("full"):
            distinct.setdefault((point.policy, point.al, point.sufficiency) if is_fixed else point, point)
    groups: dict[str, list[CurvePoint]] = {}
    for name, point in zip(systems(list(distinct.values())), distinct.values(), strict=True):
        curve = CurvePoint(point.label, point.al, 100 * point.sufficiency)
        groups.setdefault(joined(name, point.variant), []).append(curve)
    return [Line(name, curve) for name, curve in groups.items()]


def print_points(points: Sequence[Point]) -> None:
    headings = "system", "policy", "point", "sufficiency", "AL", "words", "sentences"
    rows = []
    for name, point in zip(systems(points), points, strict=True):
        figures = f"{point.sufficiency:.3f}", f"{point.al:.2f}", f"{point.words:,}", f"{point.sentences:,}"
        rows.append([name, point.policy, point.label, *figures])
    console.print(Grid(headings, rows, texts=3).to_terminal())
