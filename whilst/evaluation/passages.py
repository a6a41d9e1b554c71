"""Words with the times at which they were written, and the logs of other toolkits that hold such words.

A passage is a whole talk or a segment of one. Its times are milliseconds from its beginning, or source words. Logs
are those of SimulEval (speech), OmniSTEval, simulstream and `whilst live --json`.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from whilst.core.config import from_row
from whilst.core.errors import UserError
from whilst.core.files import parse_row, write_lines
from whilst.data.text import read_lines
from whilst.evaluation.metrics import WORD_MS, paced_times
from whilst.evaluation.trace import Sentence, read_trace, write_trace

PIECE = "▁"  # begins a word in SentencePiece's pieces
Row = dict[str, Any]


@dataclass(frozen=True)
class Passage:
    """What was written for a stretch of the source."""

    name: str  # of the recording
    words: tuple[str, ...]
    delays: tuple[float, ...]  # per word: the source heard when it was written
    elapsed: tuple[float, ...]  # per word: the time when it was written, with that of computing; empty if unknown
    source_length: float
    reference: str | None = None
    end: float = math.inf  # of the recording, from the beginning of the passage

    @property
    def prediction(self) -> str:
        return " ".join(self.words)

    @property
    def reference_length(self) -> int:
        """An empty reference counts as one word, as in SimulEval."""
        return max(1, len((self.reference or "").split()))


def find_problem(passage: Passage) -> str:
    """What cannot be true of a passage; empty if all is well."""
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
    """A dataclass from those fields of a row that it has."""
    names = kind.__annotations__
    return from_row(kind, {name: row.get(name) for name in names}, where)


def read_rows(path: Path) -> list[Row]:
    """The objects of a file of JSON lines; empty for empty lines."""
    return [parse_row(line.strip() or "{}", f"{path}:{number}") for number, line in enumerate(read_lines(path), 1)]


def is_timed(path: Path) -> bool:
    """Whether a log has times. A trace, and SimulEval's log of text, counts source words."""
    try:
        first = json.loads(next(filter(str.strip, read_lines(path))))
    except (ValueError, RecursionError):
        return False
    if not isinstance(first, dict):
        return False
    speech = "delays" in first and (isinstance(first.get("source"), list) or "source_length" not in first)
    return speech or bool(first.keys() & {"emission_cu", "segid", "metadata", "generated_tokens", "arrived", "end"})


def read_passages(path: Path, in_words: bool = False) -> list[Passage]:
    """The passages of a log of any format. `in_words`: times of `whilst live --json` are source words."""
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
    found: _SimulEval = _pick(_SimulEval, {"elapsed": []} | row, where)
    source = row.get("source")
    name = source[0] if isinstance(source, list) and source else source
    words, elapsed = tuple(found.prediction.split()), found.elapsed if any(found.elapsed) else ()
    return Passage(
        str(name or row.get("index")), words, found.delays, elapsed, found.source_length, found.reference
    )


def _omnisteval(row: Row, where: str) -> Passage:
    """A resegmented line. Without words it has no times."""
    absent: Row = {"emission_cu": [], "emission_ca": [], "time_to_recording_end": None}
    found: _OmniSTEval = _pick(_OmniSTEval, absent | row, where)
    name, words = str(row.get("docid", row.get("index"))), tuple(found.prediction.split())
    times = found.emission_cu, found.emission_ca
    end = math.inf if found.time_to_recording_end is None else found.time_to_recording_end
    return Passage(name, words, *times, found.source_length, found.reference, end)


def _live(rows: Sequence[Row], path: Path, in_words: bool) -> Passage:
    numbered = [(f"{path}:{number}", row) for number, row in enumerate(rows, start=1)]
    words: list[_Live] = [_pick(_Live, row, where) for where, row in numbered if "word" in row]
    text = tuple(one.word for one in words)
    if in_words:
        length = max((row["source"] for row in rows if isinstance(row.get("source"), int)), default=0)
        return Passage(path.name, text, tuple(one.source for one in words), (), length)
    delays, elapsed = tuple(1000 * one.arrived for one in words), tuple(1000 * one.time for one in words)
    return Passage(path.name, text, delays, elapsed, max(elapsed, default=0.0))


def _simulstream(rows: Sequence[Row], path: Path) -> list[Passage]:
    """A token that was deleted later does not count; a word has the time of its last piece."""
    names: dict[Any, str] = {}
    tokens: dict[str, list[tuple[str, float, float]]] = {}
    lengths: dict[str, float] = {}
    for number, row in enumerate(rows, start=1):
        where = f"{path}:{number}"
        if isinstance(about := row.get("metadata"), dict):
            names[row.get("id")] = Path(str(about.get("wav_name"))).stem
        elif "generated_tokens" in row:
            found: _Simulstream = _pick(_Simulstream, row, where)
            if found.id not in names:
                raise UserError(f"{where}: no metadata names the recording of id {found.id}")
            heard = 1000 * found.total_audio_processed
            now = heard, heard + 1000 * found.computation_time
            own = tokens.setdefault(names[found.id], [])
            if deleted := found.deleted_tokens:
                if tuple(token for token, _, _ in own[-len(deleted) :]) != deleted:
                    raise UserError(f"{where}: deletes tokens that are not the last ones")
                del own[-len(deleted) :]
                if not deleted[0].startswith(PIECE) and any(token.startswith(PIECE) for token, _, _ in own):
                    own[-1] = own[-1][0], *now  # the word that ends here has changed
            own += [(token, *now) for token in found.generated_tokens]
            lengths[names[found.id]] = max(heard, lengths.get(names[found.id], 0.0))
    return [_joined(name, own, lengths[name]) for name, own in tokens.items()]


def _joined(name: str, tokens: Iterable[tuple[str, float, float]], length: float) -> Passage:
    """Tokens are words, or SentencePiece's pieces if any of them begins like one."""
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
    """As SimulEval's instances.log of speech, which OmniSTEval reads too."""
    rows: list[Row] = []
    for passage in passages:
        row: Row = {"index": len(rows), "prediction": passage.prediction, "delays": passage.delays}
        row |= {"elapsed": passage.elapsed, "prediction_length": len(passage.words)}
        row |= {"reference": passage.reference, "source": [passage.name]}
        rows.append(row | {"source_length": passage.source_length})
    _write(path, rows)


def write_omnisteval(path: Path, segments: Iterable[Passage]) -> None:
    """As OmniSTEval's instances.resegmented.jsonl."""
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
    """As simulstream's log of metrics; its scorers need detokenizer_type simuleval and latency_unit word."""
    rows: list[Row] = []
    for number, passage in enumerate(passages):
        rows.append({"id": number, "metadata": {"wav_name": passage.name}})
        words = zip(passage.words, passage.delays, passage.elapsed or passage.delays, strict=True)
        for (heard, elapsed), group in groupby(words, key=lambda one: one[1:]):
            row: Row = {"id": number, "total_audio_processed": heard / 1000}
            row |= {"computation_time": (elapsed - heard) / 1000}
            rows.append(row | {"generated_tokens": [word for word, _, _ in group], "deleted_tokens": []})
    _write(path, rows)


def _write(path: Path, rows: Iterable[Row]) -> None:
    write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def with_references(passages: Sequence[Passage], path: Path) -> list[Passage]:
    """The passages with the lines of a file as references, in their order."""
    lines = read_lines(path)
    if len(lines) != len(passages):
        raise UserError(f"{path}: has {len(lines)} lines, the log has {len(passages)} passages")
    return [replace(one, reference=" ".join(text.split())) for one, text in zip(passages, lines, strict=True)]


def paced(sentence: Sentence) -> Passage:
    """A sentence in milliseconds, as if its words were spoken one every WORD_MS."""
    delays, elapsed = (WORD_MS * read for read in sentence.delays), paced_times(sentence)
    length = WORD_MS * sentence.source_length
    name, words = str(sentence.index), tuple(sentence.words)
    return Passage(name, words, tuple(delays), tuple(elapsed), length, sentence.reference)


def convert(trace: Path, out: Path, to: Literal["simuleval", "simulstream"]) -> int:
    """Write a trace or log as another toolkit's; returns the number of its passages."""
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
