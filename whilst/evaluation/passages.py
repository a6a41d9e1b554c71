"""Read, write and convert logs that say when each word was written, those of other toolkits included.

A passage is a whole talk or a segment of one. Its times are milliseconds from its beginning, or source words. The
formats are those of SimulEval (speech), OmniSTEval, simulstream and `whilst live --json`.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from whilst.core.config import from_json
from whilst.core.errors import UserError
from whilst.core.files import parse_row, write_lines
from whilst.data.text import read_lines
from whilst.evaluation.metrics import WORD_MS, paced_times
from whilst.evaluation.trace import Sentence, read_trace, write_trace

PIECE = "▁"  # marks a SentencePiece piece that begins a word
Row = dict[str, Any]


@dataclass(frozen=True)
class Passage:
    """The translation of a talk or of a segment of one."""

    name: str  # of the recording
    words: tuple[str, ...]
    delays: tuple[float, ...]  # per word: how much of the source had been heard when it was written
    elapsed: tuple[float, ...]  # per word: when it was written, computing time included; empty if unknown
    source_length: float
    reference: str | None = None
    end: float = math.inf  # when the recording ends, counted from the beginning of the passage

    @property
    def prediction(self) -> str:
        return " ".join(self.words)

    @property
    def reference_length(self) -> int:
        """An empty reference counts as one word, as in SimulEval."""
        return max(1, len((self.reference or "").split()))


def find_problem(passage: Passage) -> str:
    """What is inconsistent in a passage; empty if nothing is."""
    for name, times in (("delays", passage.delays), ("elapsed", passage.elapsed)):
        if len(times) != len(passage.words) and (name == "delays" or times):
            return f"{len(passage.words)} words in the prediction but {len(times)} {name}"
        if not all(map(math.isfinite, times)) or list(times) != sorted(times):
            return f"{name} must be finite and must not fall"
    return "" if passage.source_length > 0 else "source_length must be positive"


@dataclass(frozen=True)
class _SimulEval:
    prediction: str
    delays: tuple[float, ...]
    elapsed: tuple[float, ...]
    source_length: float
    reference: str | None


@dataclass(frozen=True)
class _OmniSTEval:
    prediction: str
    emission_cu: tuple[float, ...]
    emission_ca: tuple[float, ...]
    source_length: float
    reference: str
    time_to_recording_end: float | None


@dataclass(frozen=True)
class _Simulstream:
    id: int | None
    total_audio_processed: float
    computation_time: float
    generated_tokens: tuple[str, ...]
    deleted_tokens: tuple[str, ...]


@dataclass(frozen=True)
class _Live:
    word: str
    source: int
    arrived: float
    time: float


def _pick(kind: Callable[..., Any], row: Row, where: str) -> Any:
    """The dataclass `kind`, filled from the row; fields that the row lacks are None, other entries are ignored."""
    names = kind.__annotations__
    return from_json(kind, {name: row.get(name) for name in names}, where)


def read_rows(path: Path) -> list[Row]:
    """The object on each line of a JSON lines file; an empty one for an empty line."""
    return [parse_row(line.strip() or "{}", f"{path}:{number}") for number, line in enumerate(read_lines(path), 1)]


def is_timed(path: Path) -> bool:
    """Whether the delays of a log are times; in a trace and in SimulEval's log of text they count source words."""
    try:
        first = json.loads(next(filter(str.strip, read_lines(path))))
    except (ValueError, RecursionError):
        return False
    if not isinstance(first, dict):
        return False
    speech = "delays" in first and (isinstance(first.get("source"), list) or "source_length" not in first)
    return speech or bool(first.keys() & {"emission_cu", "segid", "metadata", "generated_tokens", "arrived", "end"})


def read_passages(path: Path, in_words: bool = False) -> list[Passage]:
    """The passages of a log in any format. `in_words`: count source words in a log of `whilst live --json`."""
    rows = read_rows(path)
    first: Row = next(filter(None, rows), {})
    if "metadata" in first or "generated_tokens" in first:
        passages = _simulstream(rows, path)
    elif "arrived" in first or "end" in first:
        passages = [_live(rows, path, in_words)]
    elif "delays" in first or "emission_cu" in first:
        make = _omnisteval if "emission_cu" in first else _simuleval
        passages = [make(row, f"{path}:{number}") for number, row in enumerate(rows, start=1) if row]
    else:
        raise UserError(f"{path}: not a log of SimulEval, OmniSTEval, simulstream or `whilst live --json`")
    for passage in passages:
        if problem := find_problem(passage):
            raise UserError(f"{path}: {passage.name}: {problem}")
    return passages


def _simuleval(row: Row, where: str) -> Passage:
    parsed: _SimulEval = _pick(_SimulEval, {"elapsed": []} | row, where)
    source = row.get("source")
    name = source[0] if isinstance(source, list) and source else source
    words, elapsed = tuple(parsed.prediction.split()), parsed.elapsed if any(parsed.elapsed) else ()
    return Passage(
        str(name or row.get("index")), words, parsed.delays, elapsed, parsed.source_length, parsed.reference
    )


def _omnisteval(row: Row, where: str) -> Passage:
    """A line of a resegmented log, which has no times if the segment has no words."""
    absent: Row = {"emission_cu": [], "emission_ca": [], "time_to_recording_end": None}
    parsed: _OmniSTEval = _pick(_OmniSTEval, absent | row, where)
    name, words = str(row.get("docid", row.get("index"))), tuple(parsed.prediction.split())
    times = parsed.emission_cu, parsed.emission_ca
    end = math.inf if parsed.time_to_recording_end is None else parsed.time_to_recording_end
    return Passage(name, words, *times, parsed.source_length, parsed.reference, end)


def _live(rows: Sequence[Row], path: Path, in_words: bool) -> Passage:
    numbered = [(f"{path}:{number}", row) for number, row in enumerate(rows, start=1)]
    events: list[_Live] = [_pick(_Live, row, where) for where, row in numbered if "word" in row]
    words = tuple(event.word for event in events)
    if in_words:
        length = max((row["source"] for row in rows if isinstance(row.get("source"), int)), default=0)
        return Passage(path.name, words, tuple(event.source for event in events), (), length)
    delays, elapsed = tuple(1000 * event.arrived for event in events), tuple(1000 * event.time for event in events)
    return Passage(path.name, words, delays, elapsed, max(elapsed, default=0.0))


def _simulstream(rows: Sequence[Row], path: Path) -> list[Passage]:
    """A passage for each recording. Deleted tokens do not count; a word has the times of its last piece."""
    names: dict[Any, str] = {}
    tokens: dict[str, list[tuple[str, float, float]]] = {}
    lengths: dict[str, float] = {}
    for number, row in enumerate(rows, start=1):
        where = f"{path}:{number}"
        if isinstance(metadata := row.get("metadata"), dict):
            names[row.get("id")] = Path(str(metadata.get("wav_name"))).stem
        elif "generated_tokens" in row:
            update: _Simulstream = _pick(_Simulstream, row, where)
            if update.id not in names:
                raise UserError(f"{where}: no metadata names the recording of id {update.id}")
            heard = 1000 * update.total_audio_processed
            times = heard, heard + 1000 * update.computation_time
            written = tokens.setdefault(names[update.id], [])
            if deleted := update.deleted_tokens:
                if tuple(token for token, _, _ in written[-len(deleted) :]) != deleted:
                    raise UserError(f"{where}: deletes tokens that are not the last ones")
                del written[-len(deleted) :]
                if not deleted[0].startswith(PIECE) and any(token.startswith(PIECE) for token, _, _ in written):
                    written[-1] = written[-1][0], *times  # the word lost its last pieces: it was completed now
            written += [(token, *times) for token in update.generated_tokens]
            lengths[names[update.id]] = max(heard, lengths.get(names[update.id], 0.0))
    return [_joined(name, written, lengths[name]) for name, written in tokens.items()]


def _joined(name: str, tokens: Iterable[tuple[str, float, float]], length: float) -> Passage:
    """The passage of these tokens: words, or SentencePiece pieces if any of them begins with PIECE."""
    tokens = list(tokens)
    in_pieces = any(token.startswith(PIECE) for token, _, _ in tokens)
    words: list[tuple[str, float, float]] = []
    for token, *times in tokens:
        parts = token.replace(PIECE, " ").split() if in_pieces else token.split()
        if parts and words and in_pieces and not token.startswith(PIECE):
            words[-1] = (words[-1][0] + parts.pop(0), times[0], times[1])
        words += [(part, times[0], times[1]) for part in parts]
    text, delays, elapsed = zip(*words, strict=True) if words else ((), (), ())
    return Passage(name, text, delays, elapsed, length)


def write_simuleval(path: Path, passages: Iterable[Passage]) -> None:
    """Write the format of SimulEval's instances.log for speech, which OmniSTEval reads too."""
    rows: list[Row] = []
    for passage in passages:
        row: Row = {"index": len(rows), "prediction": passage.prediction, "delays": passage.delays}
        row |= {"elapsed": passage.elapsed, "prediction_length": len(passage.words)}
        row |= {"reference": passage.reference, "source": [passage.name]}
        rows.append(row | {"source_length": passage.source_length})
    _write(path, rows)


def write_omnisteval(path: Path, segments: Iterable[Passage]) -> None:
    """Write the format of OmniSTEval's instances.resegmented.jsonl."""
    rows: list[Row] = []
    docs: dict[str, int] = {}
    for segment in segments:
        row: Row = {"index": len(rows), "docid": docs.setdefault(segment.name, len(docs)), "segid": 0}
        row["segid"] = sum(other["docid"] == row["docid"] for other in rows)
        row |= {"prediction": segment.prediction, "reference": segment.reference or ""}
        row |= {"source_length": segment.source_length}
        if segment.words:
            row |= {"emission_cu": segment.delays, "time_to_recording_end": segment.end}
            row |= {"emission_ca": segment.elapsed} if segment.elapsed else {}
        rows.append(row)
    _write(path, rows)


def write_simulstream(path: Path, passages: Iterable[Passage]) -> None:
    """Write simulstream's log of metrics; its scorers need detokenizer_type simuleval and latency_unit word."""
    rows: list[Row] = []
    for number, passage in enumerate(passages):
        rows.append({"id": number, "metadata": {"wav_name": passage.name}})
        words = zip(passage.words, passage.delays, passage.elapsed or passage.delays, strict=True)
        for (heard, elapsed), group in groupby(words, key=lambda word: word[1:]):
            row: Row = {"id": number, "total_audio_processed": heard / 1000}
            row |= {"computation_time": (elapsed - heard) / 1000}
            rows.append(row | {"generated_tokens": [word for word, _, _ in group], "deleted_tokens": []})
    _write(path, rows)


def _write(path: Path, rows: Iterable[Row]) -> None:
    write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def with_references(passages: Sequence[Passage], path: Path) -> list[Passage]:
    """The passages with the lines of a file, which has the same order, as references."""
    lines = read_lines(path)
    if len(lines) != len(passages):
        raise UserError(f"{path}: has {len(lines)} lines, the log has {len(passages)} passages")
    pairs = zip(passages, lines, strict=True)
    return [replace(passage, reference=" ".join(text.split())) for passage, text in pairs]


def paced(sentence: Sentence) -> Passage:
    """A sentence as a passage in milliseconds, as if one source word were spoken every WORD_MS."""
    delays, elapsed = (WORD_MS * read for read in sentence.delays), paced_times(sentence)
    length = WORD_MS * sentence.source_length
    name, words = str(sentence.index), tuple(sentence.words)
    return Passage(name, words, tuple(delays), tuple(elapsed), length, sentence.reference)


def convert(trace: Path, out: Path, to: Literal["simuleval", "simulstream"]) -> int:
    """Write a trace or log in the format of another toolkit; returns the number of passages."""
    write = write_simuleval if to == "simuleval" else write_simulstream
    if is_timed(trace):
        passages = read_passages(trace)
        write(out, passages)
        return len(passages)
    sentences = read_trace(trace)
    if to == "simuleval":
        write_trace(out, sentences, with_text=True)
    else:
        write(out, map(paced, sentences))
    return len(sentences)
