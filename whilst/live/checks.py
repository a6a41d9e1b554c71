"""Mistakes that can be seen without a reference, on 200 English sentences: `whilst bench checks`.

checks.txt has the kind of each sentence, what must be in its translation as it is ("!": a negation), and itself.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from whilst.core.console import console, progress_bar
from whilst.core.errors import UserError
from whilst.core.files import write_json
from whilst.data.repeats import most_in_row
from whilst.data.text import read_lines
from whilst.live.loading import Model
from whilst.live.session import Word

FILE = Path(__file__).with_name("checks.txt")
NEGATIONS = {
    "vi": re.compile(r"\b(không|chưa|chẳng|đừng|chả|chớ|khỏi|thiếu)\b", re.IGNORECASE),
    "de": re.compile(r"\b(nicht|kein|keine[mnr]?|nie|niemals|nichts|niemand|weder|ohne|nein)\b", re.IGNORECASE),
}
PLAIN = "negation", "number", "name"  # kinds whose sentences have one thing to check; others: "literal"


@dataclass(frozen=True)
class Check:
    kind: str
    needed: str  # to be written as it is; "!": a negation; or nothing
    source: str

    def mistakes(self, translation: str, language: str) -> Iterator[tuple[str, bool]]:
        """What is checked in a translation, and whether it is wrong."""
        if self.needed == "!":
            yield "negation lost", not NEGATIONS[language].search(translation)
        elif self.needed:
            name = self.kind if self.kind in PLAIN else "literal"
            yield f"{name} lost or changed", self.needed not in translation
        yield "repeated phrase", most_in_row(translation.split()) > most_in_row(self.source.split())
        count = len(self.source.split())
        yield "too short or long", not count / 2 <= len(translation.split()) <= 2.5 * count


def read_checks() -> list[Check]:
    return [Check(*line.split("\t")) for line in read_lines(FILE)]


def translation(model: Model, latency: str, source: str) -> str:
    session = model.session(latency)
    events = session.feed(source) + session.finish()
    return " ".join(event.text for event in events if isinstance(event, Word))


def check_model(model: Model, latencies: Sequence[str], json: Path | None, show: bool) -> None:
    """Print the mistakes at each latency as shares of the sentences that have what is checked."""
    source, target = model.languages
    if source != "en" or target not in NEGATIONS:
        raise UserError(f"{source} to {target}: checks are from English into {' or '.join(NEGATIONS)}")
    found: dict[str, dict[str, list[bool]]] = {}
    for latency in latencies:
        for check in progress_bar(read_checks(), latency, "sentences"):
            written = translation(model, latency, check.source)
            for name, is_wrong in check.mistakes(written, target):
                found.setdefault(name, {}).setdefault(latency, []).append(is_wrong)
                if show and is_wrong:
                    console.print(
                        f"{latency}, {name}: {check.source}\n    {written}", markup=False, highlight=False
                    )
    table = Table("mistake", "of", *latencies)
    for name, by_latency in found.items():
        wrong = [sum(by_latency[latency]) for latency in latencies]
        table.add_row(name, str(len(by_latency[latencies[0]])), *map(str, wrong))
    console.print(table)
    if json:
        counts = {name: {latency: sum(wrong) for latency, wrong in row.items()} for name, row in found.items()}
        write_json(json, counts)
