"""What there is to show of the paper's systems, under which name, and what has been shown.

A system of the paper is found among our families by what they say; the cells of a point are written here once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.families import DIAGONAL, Family, Measured, differing
from whilst.evaluation.paper_numbers import FULL, Point, interpolate
from whilst.evaluation.seeds import joined
from whilst.evaluation.tables import NONE, figure
from whilst.research.paper.document import Block
from whilst.research.paper.provenance import Known, made

NOT_RUN = "not run"
TAUGHT = "+ teacher"
UNTUNED = " (multi-path)"  # of BS-SiMT: an agent on the multi-path model as it is
OURS = {FULL: "full-sentence"}  # what we call the paper's systems, where it is not the same
# Of their policies; else agents.
KINDS = paper.KINDS | {DIAGONAL: "diagonal"}


@dataclass(frozen=True)
class Shelf:
    """All families and recipes, and where the document will lie; remembers what was shown."""

    families: Sequence[Family]
    known: Sequence[Known]
    folder: Path
    shown: list[Family] = field(default_factory=list)

    def show(self, family: Family, name: str) -> Block:
        """How it was made; from now on it counts as shown."""
        self.shown.append(family)
        return made(name, family, self.known, self.folder)

    def of_system(self, system: str, changed: dict[str, str] | None = None) -> list[Family]:
        """Families of one of the paper's systems, on any text, with exactly these changes."""
        wanted = OURS.get(system, system), KINDS.get(system, "agent"), changed or {}
        return [
            family
            for family in self.families
            if not family.is_tried
            and family.first.split == "test"
            and not family.variant
            and (_plain(family.system), family.kind, family.changes) == wanted
        ]

    def of_task(self, task: str, system: str) -> list[Family]:
        """The same, tested on one of the paper's texts and without changes."""
        return [family for family in self.of_system(system) if paper.task(family.pair) == task]

    def control(self, family: Family) -> Family | None:
        """The diagonal on the same text, most alike where there are several."""
        return most_alike(family, self.of_system(DIAGONAL))

    @property
    def left(self) -> list[Family]:
        return [family for family in self.families if not any(family is one for one in self.shown)]


def most_alike(family: Family, others: Sequence[Family]) -> Family | None:
    """Of those on the same text, the one whose settings differ least."""
    group = [other for other in others if other.pair == family.pair]
    return min(group, key=lambda other: len(differing([other, family])), default=None)


def _plain(system: str) -> str:
    """Without what it was fine-tuned from, which is one of the changes, and whether it was at all."""
    before, found, after = system.replace(UNTUNED, "").partition(" (from ")
    return before + after.partition(")")[2] if found else before


def call(group: Sequence[Family], system: str) -> list[str]:
    """A name for each family: A, B, … where a system was measured with several recipes."""
    names = [_told(family, system) for family in group]
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return [name if names.count(name) == 1 else f"{name} {next(letters)}" for name in names]


def _told(family: Family, system: str) -> str:
    """What is said of a family before its letter."""
    if UNTUNED in family.system:
        return f"{system}, not fine-tuned"
    return joined(system, family.agreement)


def text_of(family: Family) -> str:
    """On what it was trained, in a word."""
    own = family.pair == paper.task(family.pair)
    text = "the paper's" if own else f"**other**: {family.pair.rpartition('.')[0]}"
    return f"{text} {TAUGHT}" if family.settings["teacher"] == "one" else text


def apart(group: Sequence[Family], called: Sequence[str]) -> list[str]:
    """In what families of one system differ. A table of settings that some have not is named as a whole."""
    both = list(zip(called, group, strict=True))
    names = differing(group)
    owners = {name: [one for one, family in both if name in family.settings] for name in names}
    partial = [name.rpartition(".")[0] for name in names if len(owners[name]) < len(group)]
    lines = {}
    for name in names:
        table = name.rpartition(".")[0]
        if partial.count(table) > 1 and len(owners[name]) < len(group):
            lines[table] = f"`{table}`: {'; '.join(owners[name])} only"
        else:
            values = [f"{one}: {family.settings.get(name, NONE)}" for one, family in both]
            lines[name] = f"`{name}`: {'; '.join(values)}"
    return list(lines.values())


def cells(point: Measured | None) -> list[str]:
    """Our AL, BLEU and number of seeds."""
    if point is None:
        return [NOT_RUN, NOT_RUN, NONE]
    result = point.result
    deviations = result.deviations
    shown = [figure(result.scores[name], 2, deviations[name]) for name in ("al", "bleu")]
    return [*shown, str(len(point.filed))]


def printed(point: Point | None) -> list[str]:
    """The paper's AL and BLEU."""
    return [figure(point.al), figure(point.bleu)] if point else [NONE, NONE]


def beside(theirs: Sequence[Point], family: Family | None) -> list[tuple[str, Point | None]]:
    """The labels of the paper's points, then of those of ours that it has not."""
    known = {point.label for point in theirs}
    more = [point.label for point in family.points if point.label not in known] if family else []
    return [*((point.label, point) for point in theirs), *((label, None) for label in more)]


def difference(family: Family | None, point: Point | None, system: str) -> tuple[float | None, float | None]:
    """Our BLEU at the AL of the paper's point, and how far it is above; of full-sentence models, as they stand."""
    if family is None or point is None:
        return None, None
    ours = family.points[0].result.bleu if system == FULL else family.at(point.al)
    return ours, None if ours is None else ours - point.bleu


def over(point: Point | None, curve: Sequence[Point]) -> float | None:
    """How far a point is above a curve at its AL."""
    level = None if point is None or point.al is None else interpolate(curve, point.al)
    return None if level is None or point is None else point.bleu - level


def over_control(family: Family, shelf: Shelf) -> dict[str, float]:
    """By label, how far our points are above the diagonal at equal AL, where it has one."""
    control = shelf.control(family)
    if control is None or family.kind in ("full", "diagonal"):
        return {}
    found = {point.label: over(point, control.curve) for point in family.curve}
    return {label: above for label, above in found.items() if above is not None}
