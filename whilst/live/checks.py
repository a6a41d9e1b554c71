"""The command `whilst bench checks`: find mistakes that need no reference, in translations of our own sentences.

A line of sentences/LANGUAGE.txt has three columns: the kind of sentence, the text that its translation must contain
("!": any negation; empty: nothing), and the sentence.
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

SENTENCES = Path(__file__).with_name("sentences")
NEGATIONS = {
    "en": re.compile(r"n't\b|\b(no|not|cannot|never|none|nobody|nothing|nor|neither|without)\b", re.IGNORECASE),
    "vi": re.compile(r"\b(không|chưa|chẳng|đừng|chả|chớ|khỏi|thiếu)\b", re.IGNORECASE),
    "de": re.compile(r"\b(nicht|kein|keine[mnr]?|nie|niemals|nichts|niemand|weder|ohne|nein)\b", re.IGNORECASE),
}
PLAIN = "negation", "number", "name"  # kinds that are reported by their name; the others as "literal"


@dataclass(frozen=True)
class Check:
    kind: str
    needed: str  # text that the translation must contain; "!": any negation; empty: nothing
    source: str

    def mistakes(self, translation: str, language: str) -> Iterator[tuple[str, bool]]:
        """Each mistake that the translation is checked for, and whether it has it."""
        if self.needed == "!":
            yield "negation lost", not NEGATIONS[language].search(translation)
        elif self.needed:
            name = self.kind if self.kind in PLAIN else "literal"
            yield f"{name} lost or changed", self.needed not in translation
        yield "repeated phrase", most_in_row(translation.split()) > most_in_row(self.source.split())
        count = len(self.source.split())
        yield "too short or long", not count / 2 <= len(translation.split()) <= 2.5 * count


@dataclass(frozen=True)
class Finding:
    """The result of one check of the translation of one sentence."""

    latency: str
    mistake: str
    source: str
    translation: str
    is_wrong: bool


def read_checks(language: str = "en") -> list[Check]:
    return [Check(*line.split("\t")) for line in read_lines(SENTENCES / f"{language}.txt")]


def translation(model: Model, latency: str, source: str) -> str:
    session = model.session(latency)
    events = session.feed(source) + session.finish()
    return " ".join(event.text for event in events if isinstance(event, Word))


def require_checks(model: Model) -> None:
    """Raise a `UserError` if there are no checks for the model's languages."""
    source, target = model.languages
    known = [path.stem for path in sorted(SENTENCES.glob("??.txt"))]  # named by language; talk.txt is the demo's
    if source not in known or target not in NEGATIONS:
        there = f"there are checks from {', '.join(known)} into {', '.join(NEGATIONS)} only"
        raise UserError(f"{source} to {target}: {there}")


def find_mistakes(model: Model, latencies: Sequence[str]) -> list[Finding]:
    source, target = model.languages
    findings = []
    for latency in latencies:
        for check in progress_bar(read_checks(source), latency, "sentences"):
            written = translation(model, latency, check.source)
            for name, is_wrong in check.mistakes(written, target):
                findings.append(Finding(latency, name, check.source, written, is_wrong))
    return findings


def count_mistakes(findings: Sequence[Finding]) -> dict[str, dict[str, list[bool]]]:
    """By mistake and latency: for each sentence checked for the mistake, whether its translation has it."""
    counts: dict[str, dict[str, list[bool]]] = {}
    for finding in findings:
        counts.setdefault(finding.mistake, {}).setdefault(finding.latency, []).append(finding.is_wrong)
    return counts


def check_model(model: Model, latencies: Sequence[str], json: Path | None, show: bool) -> None:
    """Print at each latency how often each mistake was found; `of` is the number of sentences checked for it."""
    require_checks(model)
    findings = find_mistakes(model, latencies)
    for finding in findings:
        if show and finding.is_wrong:
            line = f"{finding.latency}, {finding.mistake}: {finding.source}\n    {finding.translation}"
            console.print(line, markup=False, highlight=False)
    mistakes = count_mistakes(findings)
    table = Table("mistake", "of", *latencies)
    for name, by_latency in mistakes.items():
        wrong = [sum(by_latency[latency]) for latency in latencies]
        table.add_row(name, str(len(by_latency[latencies[0]])), *map(str, wrong))
    console.print(table)
    if json:
        counts = {name: {latency: sum(wrong) for latency, wrong in row.items()} for name, row in mistakes.items()}
        write_json(json, counts)
