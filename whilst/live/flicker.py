"""Normalised erasure (flicker) of a live policy, and of translating every prefix anew for comparison.

Each prefix of a sentence is translated by itself and compared with the next, so the figures do not depend on how
words are displayed.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from whilst.core.console import console, log, progress_bar
from whilst.core.errors import UserError
from whilst.core.files import write_json
from whilst.data.text import read_lines
from whilst.live.input import common_prefix
from whilst.live.loading import LiveModel, ModelOptions, open_model
from whilst.live.session import Session, Word

RETRANSLATION = "retranslation"


@dataclass(frozen=True)
class Erasure:
    name: str  # of the policy
    words: int  # of the final translations
    erased: int

    @property
    def rate(self) -> float:
        """Normalised erasure: erased words for each final word."""
        return self.erased / self.words if self.words else 0.0


def count_erased(outputs: Sequence[Sequence[str]]) -> int:
    """Words of successive outputs that the next output does not keep."""
    return sum(len(before) - common_prefix((before, after)) for before, after in itertools.pairwise(outputs))


def prefix_outputs(model: LiveModel, line: str, anew: bool) -> Iterator[list[str]]:
    """What has been written after each prefix of a line; `anew`: each prefix as a full sentence."""
    words, backend = line.split(), model.backend()
    for count in range(1, len(words) + 1):
        session = Session(backend, model.text)
        events = [event for word in words[:count] for event in session.feed(word)]
        if anew or count == len(words):
            events += session.finish()
        yield [event.text for event in events if isinstance(event, Word)]


def measure(model: LiveModel, lines: Sequence[str], name: str, anew: bool) -> Erasure:
    words = erased = 0
    for line in progress_bar(lines, name, "sentences"):
        outputs = list(prefix_outputs(model, line, anew))
        words += len(outputs[-1])
        erased += count_erased(outputs)
    return Erasure(name, words, erased)


def flicker(wanted: ModelOptions, file: Path, out: Path | None) -> None:
    """Print and write the figures of the policy and of retranslation."""
    lines = [line for line in read_lines(file) if line.split()]
    if not lines:
        raise UserError(f"{file}: is empty; give sentences, one a line")
    policy = open_model(wanted, log)
    full = open_model(ModelOptions(wanted.model, "full", wanted.engine, wanted.precision, by_lines=True), log)
    results = [
        measure(policy, lines, str(policy.policy), anew=False),
        measure(full, lines, RETRANSLATION, anew=True),
    ]
    table = Table("", "words", "erased", "for each word", title=f"{len(lines)} sentences")
    for one in results:
        table.add_row(one.name, f"{one.words:,}", f"{one.erased:,}", f"{one.rate:.2f}")
    console.print(table)
    if out:
        rows = {one.name: {"words": one.words, "erased": one.erased, "rate": round(one.rate, 4)} for one in results}
        write_json(out, {"model": wanted.model, "sentences": len(lines)} | rows)
