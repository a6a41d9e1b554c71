"""How much of what was shown is taken back: by a live policy, and by translating anew whenever a word comes.

Each beginning of a sentence is translated by itself, as if nothing more had come, and what it shows is compared
with what the next one shows: the measure does not rest on how words are displayed.
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
from whilst.live.incoming import agreement
from whilst.live.loading import Opened, Wanted, open_model
from whilst.live.session import Session, Word

ANEW = "every beginning anew"


@dataclass(frozen=True)
class Flicker:
    """Normalised erasure: words taken back for each word of the final translations."""

    way: str
    words: int  # in the end
    erased: int

    @property
    def rate(self) -> float:
        return self.erased / self.words if self.words else 0.0


def taken_back(shown: Sequence[Sequence[str]]) -> int:
    """The words that did not stay, of all that was shown one after the other."""
    return sum(len(before) - agreement((before, after)) for before, after in itertools.pairwise(shown))


def shown(model: Opened, line: str, anew: bool) -> Iterator[list[str]]:
    """What can be seen after each word of a line, if nothing has come after it; `anew`: and nothing will."""
    words, steps = line.split(), model.steps()
    for count in range(1, len(words) + 1):
        session = Session(steps, model.text)
        events = [event for word in words[:count] for event in session.feed(word)]
        if anew or count == len(words):
            events += session.finish()
        yield [event.text for event in events if isinstance(event, Word)]


def measure(model: Opened, lines: Sequence[str], way: str, anew: bool) -> Flicker:
    words = erased = 0
    for line in progress_bar(lines, way, "sentences"):
        seen = list(shown(model, line, anew))
        words += len(seen[-1])
        erased += taken_back(seen)
    return Flicker(way, words, erased)


def flicker(wanted: Wanted, file: Path, out: Path | None) -> None:
    """Print and write both."""
    lines = [line for line in read_lines(file) if line.split()]
    if not lines:
        raise UserError(f"{file}: is empty; give sentences, one a line")
    policy = open_model(wanted, log)
    full = open_model(Wanted(wanted.model, "full", wanted.engine, wanted.precision, by_lines=True), log)
    found = [measure(policy, lines, str(policy.policy), anew=False), measure(full, lines, ANEW, anew=True)]
    table = Table("", "words", "taken back", "for each word", title=f"{len(lines)} sentences")
    for one in found:
        table.add_row(one.way, f"{one.words:,}", f"{one.erased:,}", f"{one.rate:.2f}")
    console.print(table)
    if out:
        figures = {one.way: {"words": one.words, "erased": one.erased, "rate": round(one.rate, 4)} for one in found}
        write_json(out, {"model": wanted.model, "sentences": len(lines)} | figures)
