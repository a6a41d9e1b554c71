"""Scores of words with times; whole talks are first divided among the sentences of the reference.

Divided by "soft", they are OmniSTEval's LongYAAL, LongAL, LongLAAL, …; by "mwer", LAAL is simulstream's StreamLAAL.
"""

import json
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whilst.core.config import from_row
from whilst.core.errors import UserError, naming_extras
from whilst.data.text import read_lines
from whilst.evaluation.metrics import (
    WORD_MS,
    average_lagging,
    average_proportion,
    average_token_delay,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
    quality,
    yet_another_average_lagging,
)
from whilst.evaluation.passages import Passage, read_passages

Method = Literal["soft", "mwer"]
TIMES = ".yaml", ".yml", ".json"  # of a segmentation in seconds
PUNCTUATION = frozenset(".!?,;:-()\u2014\u3002\u30fc\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f")
MATCH, DELETE, INSERT = range(3)


@dataclass(frozen=True)
class Segment:
    """A sentence of a recording: where it begins and how long it is, in milliseconds or source words."""

    wav: str
    offset: float
    duration: float


def latency(passages: Sequence[Passage], aware: bool, is_long: bool) -> dict[str, float | None]:
    """Mean lagging over the passages with words. `aware`: with the time of computing."""
    sums: dict[str, list[float | None]] = {}
    for one in passages:
        times = one.elapsed if aware else one.delays
        if not times:
            continue
        source, reference = one.source_length, one.reference_length
        figures = {
            "YAAL": yet_another_average_lagging(times, source, reference, one.end if is_long else None),
            "AL": average_lagging(times, source, reference),
            "LAAL": length_adaptive_average_lagging(times, source, reference),
            "AP": average_proportion(times, source, reference),
            "DAL": differentiable_average_lagging(times, source),
        }
        if not is_long:
            computed = [time - delay for time, delay in zip(times, one.delays, strict=True)]
            computing = [after - before for before, after in zip([0.0, *computed], computed, strict=False)]
            figures["ATD"] = average_token_delay(one.delays, computing, WORD_MS, 0)
        for name, figure in figures.items():
            sums.setdefault(name, []).append(figure)
    known = {name: [figure for figure in found if figure is not None] for name, found in sums.items()}
    return {name: fmean(found) if found else None for name, found in known.items()}


def passage_quality(passages: Sequence[Passage]) -> dict[str, tuple[float, str]]:
    """sacreBLEU and chrF with their signatures; nothing without references."""
    references = [one.reference for one in passages if one.reference is not None]
    if len(references) < len(passages) or not any(references):
        return {}
    found = quality([one.prediction for one in passages], references)
    return {name: found[name] for name in ("sacrebleu", "chrf")}


def read_talks(trace: Path, segments: Path, reference: Path, method: Method) -> list[Passage]:
    """The words of a log of talks, divided among the sentences of the reference.

    `segments`: times of the sentences, or the source with a sentence in each line.
    """
    in_words = segments.suffix not in TIMES
    passages, references = read_passages(trace, in_words), read_lines(reference)
    found = _in_words(segments, passages) if in_words else _in_seconds(segments)
    if len(found) != len(references):
        raise UserError(f"{segments}: has {len(found)} sentences, {reference} has {len(references)} lines")
    by_talk: dict[str, list[tuple[Segment, str]]] = {}
    for segment, text in zip(found, references, strict=True):
        by_talk.setdefault(segment.wav, []).append((segment, " ".join(text.split())))
    talks = {Path(one.name).stem: one for one in passages}
    if len(by_talk) == len(talks) == 1:  # whatever their names
        talks = dict.fromkeys(by_talk, next(iter(talks.values())))
    if unknown := sorted(by_talk.keys() ^ talks.keys()):
        raise UserError(f"{trace} and {segments} do not have the same talks: {', '.join(unknown)}")
    return [one for name, own in by_talk.items() for one in resegment(talks[name], own, method)]


def _in_seconds(path: Path) -> list[Segment]:
    """The segments of a YAML or JSON list of {wav, offset, duration}."""
    with naming_extras():
        import yaml
    try:
        text = path.read_text(encoding="utf-8")
        rows: Any = json.loads(text) if path.suffix == ".json" else yaml.load(text, yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: must be a list of segments with wav, offset and duration")
    segments = []
    for number, row in enumerate(rows, start=1):
        known = {name: row.get(name) for name in ("wav", "offset", "duration")}
        segment = from_row(Segment, known, f"{path}: segment {number}")
        if not (math.isfinite(segment.offset) and 0 < segment.duration < math.inf):
            raise UserError(f"{path}: segment {number}: offset and duration must be seconds, the latter above 0")
        stem, offset, duration = Path(segment.wav).stem, 1000 * segment.offset, 1000 * segment.duration
        segments.append(Segment(stem, offset, duration))
    return segments


def _in_words(path: Path, passages: Sequence[Passage]) -> list[Segment]:
    """The lines of the source text belong to the talks in order, as many as each one's words."""
    talks = iter(passages)
    talk, offset, segments = next(talks), 0, list[Segment]()
    for number, line in enumerate(read_lines(path), start=1):
        words = len(line.split())
        if not words:
            raise UserError(f"{path}:{number}: an empty line; each line must be a sentence of the source")
        if offset >= talk.source_length and len(passages) > 1:
            talk, offset = next(talks, talk), 0
        segments.append(Segment(Path(talk.name).stem, offset, words))
        offset += words
        if offset > talk.source_length:
            raise UserError(
                f"{path}:{number}: ends after word {offset} of {talk.name}, which has "
                f"{talk.source_length:g}; give the source that was translated"
            )
    if offset < talk.source_length or next(talks, None) is not None:
        raise UserError(f"{path}: ends before {talk.name} does; give the source that was translated")
    return segments


def resegment(talk: Passage, sentences: Sequence[tuple[Segment, str]], method: Method) -> list[Passage]:
    """The words of a talk, divided among sentences with references; times count from the beginning of each."""
    divide = _divide_mwer if method == "mwer" else _divide_soft
    ends = np.cumsum(divide(talk.words, [text for _, text in sentences])).tolist()
    recording_end = max(segment.offset + segment.duration for segment, _ in sentences)
    found = []
    for begin, end, (segment, text) in zip([0, *ends], ends, sentences, strict=False):
        delays, elapsed = (
            tuple(time - segment.offset for time in times[begin:end]) for times in (talk.delays, talk.elapsed)
        )
        end_of_talk = recording_end - segment.offset
        words, length = talk.words[begin:end], segment.duration
        found.append(Passage(talk.name, words, delays, elapsed, length, text, end_of_talk))
    return found


def _divide_mwer(words: Sequence[str], references: Sequence[str]) -> list[int]:
    """How many words each sentence gets: those of the smallest number of edits."""
    with naming_extras():
        from mweralign import mweralign
    lines = mweralign.align_texts("\n".join(references), " ".join(words)).split("\n")
    return [len(line.split()) for line in lines]


def _divide_soft(words: Sequence[str], references: Sequence[str]) -> list[int]:
    """How many words each sentence gets, by SoftSegmenter (Polák et al., 2025, arXiv 2509.17349).

    The alignment with the largest sum of similarities, those of the sets of letters. Words between two aligned ones
    of different sentences go to the first of these until one is more similar to the second.
    """
    counts = [0] * len(references)
    owners = [number for number, text in enumerate(references) for _ in text.split()]
    if not owners:
        raise UserError("the reference has no words: there is nothing to divide a talk by")
    similar, mine, theirs = _similarity(" ".join(references).split(), words)
    last, waiting = -1, list[int]()  # the last reference word, and the words since
    for one, word in [*_align(similar, mine, theirs), (len(owners), None)]:
        if one is None:
            waiting += [] if word is None else [word]
            continue
        cut = len(waiting) if one == len(owners) else 0
        if last >= 0 and one < len(owners):
            scores = ((similar[mine[one], theirs[w]], similar[mine[last], theirs[w]]) for w in waiting)
            cut = next((place for place, (after, before) in enumerate(scores) if after > before), len(waiting))
        counts[owners[max(last, 0)]] += cut
        if one < len(owners):
            counts[owners[one]] += len(waiting) - cut + (word is not None)
        last, waiting = one, []
    return counts


def _similarity(
    references: Sequence[str], words: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.intp]]:
    """Similarities of different words, the row of each reference word and the column of each word."""
    (rows, mine), (columns, theirs) = _numbered(references), _numbered(words)
    letters = {letter: number for number, letter in enumerate(sorted({*"".join([*rows, *columns])}))}

    def sets(text: Sequence[str]) -> NDArray[np.float64]:
        table = np.zeros((len(text), len(letters)))
        for number, word in enumerate(text):
            table[number, [letters[letter] for letter in {*word}]] = 1
        return table

    left, right = sets(rows), sets(columns)
    common = left @ right.T
    similar = common / (left.sum(1)[:, None] + right.sum(1) - common)
    marks = [np.array([word in PUNCTUATION for word in text], dtype=bool) for text in (rows, columns)]
    similar[marks[0][:, None] != marks[1]] = -np.inf
    return similar, mine, theirs


def _numbered(text: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """The different words of a text, normalised, and the number of each word among them."""
    words = [unicodedata.normalize("NFKC", word).lower() for word in text]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return list(numbers), np.array([numbers[word] for word in words], dtype=np.intp)


def _align(
    similar: NDArray[np.float64], mine: NDArray[np.intp], theirs: NDArray[np.intp]
) -> list[tuple[int | None, int | None]]:
    """Pairs of numbers of reference word and word, None where one has no partner. Gaps cost nothing."""
    best = np.zeros(len(theirs) + 1)
    moves = np.full((len(mine) + 1, len(theirs) + 1), DELETE, dtype=np.uint8)
    moves[0] = INSERT
    for number, row in enumerate(mine, start=1):
        match, delete = best[:-1] + similar[row, theirs], best[1:]
        best = np.concatenate(([0.0], np.maximum.accumulate(np.maximum(np.maximum(match, delete), 0.0))))
        insert = best[:-1]
        moves[number, 1:] = np.where(delete >= insert, DELETE, INSERT)
        moves[number, 1:][(match >= delete) & (match >= insert)] = MATCH
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(mine), len(theirs)
    while i or j:
        move = moves[i, j]
        i, j = i - (move != INSERT), j - (move != DELETE)
        pairs.append((None if move == INSERT else i, None if move == DELETE else j))
    return pairs[::-1]
