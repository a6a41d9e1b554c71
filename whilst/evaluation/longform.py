"""Score passages; the words of a whole talk are first divided among the sentences of the reference.

With method "soft" the scores are OmniSTEval's LongYAAL, LongAL, LongLAAL, …; with "mwer", LAAL is simulstream's
StreamLAAL.
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

from whilst.core.config import from_json
from whilst.core.errors import UserError, name_missing_extra
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
TIMES = ".yaml", ".yml", ".json"  # suffixes of files that give the segments of a talk in seconds
PUNCTUATION = frozenset(".!?,;:-()\u2014\u3002\u30fc\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f")
MATCH, DELETE, INSERT = range(3)


@dataclass(frozen=True)
class Segment:
    """A sentence of a recording: where it begins and how long it is, in milliseconds or source words."""

    wav: str
    offset: float
    duration: float


def latency(passages: Sequence[Passage], aware: bool, is_long: bool) -> dict[str, float | None]:
    """Mean latency over the passages with words. `aware`: with computing time. `is_long`: of segments of talks."""
    by_name: dict[str, list[float | None]] = {}
    for passage in passages:
        times = passage.elapsed if aware else passage.delays
        if not times:
            continue
        source, reference = passage.source_length, passage.reference_length
        figures = {
            "YAAL": yet_another_average_lagging(times, source, reference, passage.end if is_long else None),
            "AL": average_lagging(times, source, reference),
            "LAAL": length_adaptive_average_lagging(times, source, reference),
            "AP": average_proportion(times, source, reference),
            "DAL": differentiable_average_lagging(times, source),
        }
        if not is_long:
            computed = [time - delay for time, delay in zip(times, passage.delays, strict=True)]
            computing = [after - before for before, after in zip([0.0, *computed], computed, strict=False)]
            figures["ATD"] = average_token_delay(passage.delays, computing, WORD_MS, 0)
        for name, figure in figures.items():
            by_name.setdefault(name, []).append(figure)
    known = {name: [figure for figure in values if figure is not None] for name, values in by_name.items()}
    return {name: fmean(values) if values else None for name, values in known.items()}


def passage_quality(passages: Sequence[Passage]) -> dict[str, tuple[float, str]]:
    """sacreBLEU and chrF with their signatures; nothing without references."""
    references = [passage.reference for passage in passages if passage.reference is not None]
    if len(references) < len(passages) or not any(references):
        return {}
    scores = quality([passage.prediction for passage in passages], references)
    return {name: scores[name] for name in ("sacrebleu", "chrf")}


def read_talks(trace: Path, segments: Path, reference: Path, method: Method) -> list[Passage]:
    """The words of a log of talks, divided among the sentences of the reference.

    `segments`: a file with the times of the sentences, or the source text with one sentence per line.
    """
    in_words = segments.suffix not in TIMES
    passages, references = read_passages(trace, in_words), read_lines(reference)
    if not passages:
        raise UserError(f"{trace}: has no translations")
    sentences = _in_words(segments, passages) if in_words else _in_seconds(segments)
    if len(sentences) != len(references):
        raise UserError(f"{segments}: has {len(sentences)} sentences, {reference} has {len(references)} lines")
    by_talk: dict[str, list[tuple[Segment, str]]] = {}
    for segment, text in zip(sentences, references, strict=True):
        by_talk.setdefault(segment.wav, []).append((segment, " ".join(text.split())))
    talks = {Path(passage.name).stem: passage for passage in passages}
    if len(talks) < len(passages):
        raise UserError(f"{trace}: two talks have the same file name; give each a name of its own")
    if len(by_talk) == len(talks) == 1:  # a single talk may have two names
        talks = dict.fromkeys(by_talk, next(iter(talks.values())))
    if unknown := sorted(by_talk.keys() ^ talks.keys()):
        raise UserError(f"{trace} and {segments} do not have the same talks: {', '.join(unknown)}")
    return [passage for name, pairs in by_talk.items() for passage in resegment(talks[name], pairs, method)]


def _in_seconds(path: Path) -> list[Segment]:
    """The segments of a YAML or JSON list of {wav, offset, duration}."""
    with name_missing_extra():
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
        segment = from_json(Segment, known, f"{path}: segment {number}")
        if not (math.isfinite(segment.offset) and 0 < segment.duration < math.inf):
            raise UserError(f"{path}: segment {number}: offset and duration must be seconds, the latter above 0")
        stem, offset, duration = Path(segment.wav).stem, 1000 * segment.offset, 1000 * segment.duration
        segments.append(Segment(stem, offset, duration))
    return segments


def _in_words(path: Path, passages: Sequence[Passage]) -> list[Segment]:
    """A segment for each line of the source text. Each talk in turn has the lines that make up its source words."""
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
    """The words of a talk, divided among sentences with references; times count from each sentence's beginning."""
    divide = _divide_mwer if method == "mwer" else _divide_soft
    ends = np.cumsum(divide(talk.words, [text for _, text in sentences])).tolist()
    recording_end = max(segment.offset + segment.duration for segment, _ in sentences)
    passages = []
    for begin, end, (segment, text) in zip([0, *ends], ends, sentences, strict=False):
        delays, elapsed = (
            tuple(time - segment.offset for time in times[begin:end]) for times in (talk.delays, talk.elapsed)
        )
        end_of_talk = recording_end - segment.offset
        words, length = talk.words[begin:end], segment.duration
        passages.append(Passage(talk.name, words, delays, elapsed, length, text, end_of_talk))
    return passages


def _divide_mwer(words: Sequence[str], references: Sequence[str]) -> list[int]:
    """How many words each sentence gets, by mweralign: the division with the lowest word error rate."""
    with name_missing_extra():
        from mweralign import mweralign
    lines = mweralign.align_texts("\n".join(references), " ".join(words)).split("\n")
    return [len(line.split()) for line in lines]


def _divide_soft(words: Sequence[str], references: Sequence[str]) -> list[int]:
    """How many words each sentence gets, by SoftSegmenter (Polák et al., 2025, arXiv 2509.17349).

    Words are aligned with reference words for the largest sum of similarities. Unaligned words between two aligned
    reference words are counted with the first of the two, up to a word that is more similar to the second.
    """
    counts = [0] * len(references)
    owners = [number for number, text in enumerate(references) for _ in text.split()]
    if not owners:
        raise UserError("the reference has no words: there is nothing to divide a talk by")
    similar, rows, columns = _similarity(" ".join(references).split(), words)
    last, waiting = -1, list[int]()  # the last reference word, and the unaligned words since
    for reference, word in [*_align(similar, rows, columns), (len(owners), None)]:
        if reference is None:
            waiting += [] if word is None else [word]
            continue
        cut = len(waiting) if reference == len(owners) else 0
        if last >= 0 and reference < len(owners):
            scores = ((similar[rows[reference], columns[w]], similar[rows[last], columns[w]]) for w in waiting)
            cut = next((number for number, (after, before) in enumerate(scores) if after > before), len(waiting))
        counts[owners[max(last, 0)]] += cut
        if reference < len(owners):
            counts[owners[reference]] += len(waiting) - cut + (word is not None)
        last, waiting = reference, []
    return counts


def _similarity(
    references: Sequence[str], words: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.intp]]:
    """Jaccard similarities of words as sets of letters, the row of each reference word, the column of each word."""
    (left_words, rows), (right_words, columns) = _numbered(references), _numbered(words)
    letters = {letter: number for number, letter in enumerate(sorted({*"".join([*left_words, *right_words])}))}

    def sets(text: Sequence[str]) -> NDArray[np.float64]:
        table = np.zeros((len(text), len(letters)))
        for number, word in enumerate(text):
            table[number, [letters[letter] for letter in {*word}]] = 1
        return table

    left, right = sets(left_words), sets(right_words)
    common = left @ right.T
    similar = common / (left.sum(1)[:, None] + right.sum(1) - common)
    marks = [np.array([word in PUNCTUATION for word in text], dtype=bool) for text in (left_words, right_words)]
    similar[marks[0][:, None] != marks[1]] = -np.inf  # never align punctuation with a word
    return similar, rows, columns


def _numbered(text: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """The distinct words of a text, normalised, and the number of each word of the text among them."""
    words = [unicodedata.normalize("NFKC", word).lower() for word in text]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return list(numbers), np.array([numbers[word] for word in words], dtype=np.intp)


def _align(
    similar: NDArray[np.float64], rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> list[tuple[int | None, int | None]]:
    """Pairs of the number of a reference word and that of a word; None in place of a partner. Gaps cost nothing."""
    best = np.zeros(len(columns) + 1)
    moves = np.full((len(rows) + 1, len(columns) + 1), DELETE, dtype=np.uint8)
    moves[0] = INSERT
    for number, row in enumerate(rows, start=1):
        match, delete = best[:-1] + similar[row, columns], best[1:]
        best = np.concatenate(([0.0], np.maximum.accumulate(np.maximum(np.maximum(match, delete), 0.0))))
        insert = best[:-1]
        moves[number, 1:] = np.where(delete >= insert, DELETE, INSERT)
        moves[number, 1:][(match >= delete) & (match >= insert)] = MATCH
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(rows), len(columns)
    while i or j:
        move = moves[i, j]
        i, j = i - (move != INSERT), j - (move != DELETE)
        pairs.append((None if move == INSERT else i, None if move == DELETE else j))
    return pairs[::-1]
