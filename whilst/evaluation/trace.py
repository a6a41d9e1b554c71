"""Write, read and check traces: the output of an evaluation, one JSON object per sentence, with SimulEval's keys.

A trace is enough to measure latency again without the model; quality also needs the reference text, which a trace
may contain or not. In an archive a line has neither source, reference nor times. Instead of "delays" and "reads" it
has the steps between them: how many words or units are read before each target word or unit.

The file's key for `reference_length` is `reference_words`, since SimulEval's LogInstance has an attribute
`reference_length` and refuses lines that set it.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from whilst.core.config import from_json
from whilst.core.errors import UserError
from whilst.core.files import parse_row, write_lines
from whilst.data.text import read_lines


@dataclass(frozen=True)
class Sentence:
    """One translated sentence."""

    index: int  # line in the corpus, from 0
    prediction: str  # whole words joined by one space
    delays: tuple[int, ...]  # per word: source words read when the word was complete
    elapsed: tuple[float, ...]  # per word: ms since the decoding of its batch began; empty in archives
    reads: tuple[int, ...]  # per target unit (no eos): source units read, eos not counted
    source_length: int  # words
    source_units: int  # model units, eos not counted
    reference_length: int  # words
    source: str | None = None
    reference: str | None = None

    @classmethod
    def of(
        cls,
        index: int,
        text: tuple[str, str],
        words: Sequence[tuple[str, int, float]],
        reads: Sequence[int],
        source_units: int,
    ) -> "Sentence":
        """`text`: source and reference. `words`: each with its delay and time. `reads` may count the end mark."""
        source, reference = text
        return cls(
            index=index,
            prediction=" ".join(word for word, _, _ in words),
            delays=tuple(delay for _, delay, _ in words),
            elapsed=tuple(round(ms, 1) for _, _, ms in words),  # rounded as in the file
            reads=tuple(min(count, source_units) for count in reads),
            source_length=len(source.split()),
            source_units=source_units,
            reference_length=len(reference.split()),
            source=source,
            reference=reference,
        )

    @property
    def words(self) -> list[str]:
        return self.prediction.split()


def write_trace(path: Path, sentences: Iterable[Sentence], with_text: bool) -> None:
    """Write a .jsonl, .jsonl.gz or .jsonl.xz file; without text, it has no source and no reference."""
    lines = []
    for sentence in sentences:
        if problem := find_problem(sentence):
            raise ValueError(f"sentence {sentence.index}: {problem}")
        lines.append(to_line(sentence, with_text))
    write_lines(path, lines)


def to_line(sentence: Sentence, with_text: bool) -> str:
    row = {
        "index": sentence.index,
        "prediction": sentence.prediction,
        "delays": sentence.delays,
        "elapsed": [round(ms, 1) for ms in sentence.elapsed],
        "prediction_length": len(sentence.delays),
        # null, not absent: SimulEval takes an absent reference for an empty one, which it counts as one word
        "reference": sentence.reference if with_text else None,
        "source": sentence.source if with_text else None,
        "source_length": sentence.source_length,
        "reads": sentence.reads,
        "source_units": sentence.source_units,
        "reference_words": sentence.reference_length,
    }
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def to_archived_line(sentence: Sentence) -> str:
    row = {
        "index": sentence.index,
        "prediction": sentence.prediction,
        "delay_steps": [late - early for early, late in pairwise((0, *sentence.delays))],
        "source_length": sentence.source_length,
        "read_steps": [late - early for early, late in pairwise((0, *sentence.reads))],
        "source_units": sentence.source_units,
        "reference_words": sentence.reference_length,
    }
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def _from_archived(row: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        delays, reads = (list(accumulate(row.pop(name), initial=0))[1:] for name in ("delay_steps", "read_steps"))
    except (KeyError, TypeError):
        raise UserError(f"{where}: 'delay_steps' and 'read_steps' must be lists of numbers") from None
    return row | {"delays": delays, "reads": reads, "elapsed": [], "prediction_length": len(delays)}


def read_trace(path: Path) -> list[Sentence]:
    """Read and check a trace; an error names the file and the line."""
    return parse_trace(read_lines(path), str(path))


def parse_trace(lines: Iterable[str], path: str) -> list[Sentence]:
    """The sentences of a trace's lines; errors name `path`."""
    sentences: list[Sentence] = []
    first_seen: dict[int, int] = {}
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        sentence = _from_line(line, where)
        if problem := find_problem(sentence):
            raise UserError(f"{where}: {problem}")
        earlier = first_seen.setdefault(sentence.index, number)
        if earlier != number:
            raise UserError(f"{where}: index {sentence.index} is already in line {earlier}")
        sentences.append(sentence)
    return sentences


def _from_line(line: str, where: str) -> Sentence:
    row = parse_row(line, where)
    if "read_steps" in row:
        row = _from_archived(row, where)
    if not row.keys() & {"reads", "source_units", "reference_words"}:
        row = _from_simuleval(row)
    words, row["reference_length"] = row.pop("prediction_length", None), row.pop("reference_words", None)
    sentence = from_json(Sentence, {"source": None, "reference": None} | row, where)
    if words != len(sentence.delays):
        raise UserError(f"{where}: 'prediction_length' differs from the number of delays")
    return sentence


def _from_simuleval(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a line of SimulEval's log of text: units are words; elapsed times that are all zero are dropped."""
    names = "index", "prediction", "prediction_length", "delays", "source", "reference", "source_length"
    reference, elapsed = row.get("reference"), row.get("elapsed")
    return {name: row.get(name) for name in names} | {
        "elapsed": elapsed if isinstance(elapsed, list) and any(elapsed) else [],
        "reads": row.get("delays"),
        "source_units": row.get("source_length"),
        "reference_words": len(reference.split()) if isinstance(reference, str) else 0,
    }


def find_problem(sentence: Sentence) -> str:
    """What is inconsistent in a translated sentence; empty if nothing is."""
    words = sentence.words
    counts = (sentence.index, sentence.source_length, sentence.source_units, sentence.reference_length)
    if min(counts) < 0:
        return "index and lengths must not be negative"
    if sentence.prediction != " ".join(words):
        return "prediction must be words joined by one space"
    if len(sentence.delays) != len(words):
        return f"{len(words)} words in the prediction but {len(sentence.delays)} delays"
    if sentence.elapsed and len(sentence.elapsed) != len(words):
        return f"{len(words)} words in the prediction but {len(sentence.elapsed)} elapsed times"
    if not _is_rising(sentence.delays, sentence.source_length):
        return f"delays must rise from 0 to at most the source's {sentence.source_length} words"
    if not _is_rising(sentence.reads, sentence.source_units):
        return f"reads must rise from 0 to at most the source's {sentence.source_units} units"
    if not all(map(math.isfinite, sentence.elapsed)) or not _is_rising(sentence.elapsed, math.inf):
        return "elapsed times must be finite and must not fall"
    for name, text, length in (
        ("source", sentence.source, sentence.source_length),
        ("reference", sentence.reference, sentence.reference_length),
    ):
        if text is not None and len(text.split()) != length:
            return f"the {name} has {len(text.split())} words, its stated length is {length}"
    return ""


def _is_rising(values: Sequence[float], limit: float) -> bool:
    bounded = [0, *values, limit]
    return bounded == sorted(bounded)
