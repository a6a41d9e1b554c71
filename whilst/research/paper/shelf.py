"""What there is to show of the paper's systems, under which name, and what has been shown.

A system of the paper is found among our families by what they say; the cells of a point are written here once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.compare import MULTI_PATH
from whilst.evaluation.curves import Curve, Point, Result, above, differing, joined
from whilst.evaluation.identity import System
from whilst.evaluation.paper_numbers import FULL
from whilst.evaluation.tables import NONE, figure
from whilst.research.paper.document import Block
from whilst.research.paper.provenance import Known, made

NOT_RUN = "not run"
TAUGHT = "+ teacher"
TRIED = "tried"  # folder of records that are in no table of the paper
DIAGONAL = str(replace(MULTI_PATH, policy="diagonal"))  # our control: reads that rise at a constant rate, from k on
OURS = {FULL: "full-sentence"}  # what we call the paper's systems, where it is not the same
# Of their policies; else agents.
KINDS = paper.KINDS | {DIAGONAL: "diagonal"}


@dataclass(frozen=True)
class Shelf:
    """All families and recipes, and where the document will lie; remembers what was shown."""

    families: Sequence[Curve]
    known: Sequence[Known]
    folder: Path
    shown: list[Curve] = field(default_factory=list)

    def show(self, family: Curve, name: str) -> Block:
        """How it was made; from now on it counts as shown."""
        self.shown.append(family)
        return made(name, family, self.known, self.folder)

    def of_system(self, system: str, changed: dict[str, str] | None = None) -> list[Curve]:
        """Families of one of the paper's systems, on any text, with exactly these changes."""
        wanted = OURS.get(system, system), KINDS.get(system, "agent"), changed or {}
        return [
            family
            for family in self.families
            if not is_tried(family)
            and family.first.first.split == "test"
            and not family.first.decoding
            and (_plain(family.first.system), family.first.kind, family.first.changes) == wanted
        ]

    def of_task(self, task: str, system: str) -> list[Curve]:
        """The same, tested on one of the paper's texts and without changes."""
        return [family for family in self.of_system(system) if paper.task(family.pair) == task]

    def control(self, family: Curve) -> Curve | None:
        """The diagonal on the same text, most alike where there are several."""
        return most_alike(family, self.of_system(DIAGONAL))

    @property
    def left(self) -> list[Curve]:
        return [family for family in self.families if not any(family is one for one in self.shown)]


def most_alike(family: Curve, others: Sequence[Curve]) -> Curve | None:
    """Of those on the same text, the one whose settings differ least."""
    group = [other for other in others if other.pair == family.pair]
    return min(group, key=lambda other: len(differing([other.settings, family.settings])), default=None)


def is_tried(curve: Curve) -> bool:
    path = curve.first.first.path
    return path is not None and TRIED in path.parts


def _plain(system: System) -> str:
    """Without what it was fine-tuned from, which is one of the changes, and whether it was at all."""
    return str(System(system.name, policy=system.policy))


def call(group: Sequence[Curve], system: str) -> list[str]:
    """A name for each family: A, B, … where a system was measured with several recipes."""
    names = [_told(family, system) for family in group]
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return [name if names.count(name) == 1 else f"{name} {next(letters)}" for name in names]


def _told(family: Curve, system: str) -> str:
    """What is said of a family before its letter."""
    if family.first.system.base and not family.first.system.fine_tuned:
        return f"{system}, not fine-tuned"
    return joined(system, family.first.agreement)


def text_of(family: Curve) -> str:
    """On what it was trained, in a word."""
    own = family.pair == paper.task(family.pair)
    text = "the paper's" if own else f"**other**: {family.pair.rpartition('.')[0]}"
    return f"{text} {TAUGHT}" if family.settings["teacher"] else text


def apart(group: Sequence[Curve], called: Sequence[str]) -> list[str]:
    """In what families of one system differ. A table of settings that some have not is named as a whole."""
    both = list(zip(called, group, strict=True))
    names = differing([family.settings for family in group])
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


def cells(point: Result | None) -> list[str]:
    """Our AL, BLEU and number of seeds."""
    if point is None:
        return [NOT_RUN, NOT_RUN, NONE]
    deviations = point.deviations
    shown = [figure(point.scores[name], 2, deviations[name]) for name in ("al", "bleu")]
    return [*shown, str(len(point.records))]


def printed(point: Point | None) -> list[str]:
    """The paper's AL and BLEU."""
    return [figure(point.al), figure(point.bleu)] if point else [NONE, NONE]


def beside(theirs: Sequence[Point], family: Curve | None) -> list[tuple[str, Point | None]]:
    """The labels of the paper's points, then of those of ours that it has not."""
    known = {point.label for point in theirs}
    more = [point.label for point in family.results if point.label not in known] if family else []
    return [*((point.label, point) for point in theirs), *((label, None) for label in more)]


def difference(family: Curve | None, point: Point | None, system: str) -> tuple[float | None, float | None]:
    """Our BLEU at the AL of the paper's point, and how far it is above; of full-sentence models, as they stand."""
    if family is None or point is None:
        return None, None
    ours = family.first.bleu if system == FULL else family.at(point.al)
    return ours, None if ours is None else ours - point.bleu


def over_control(family: Curve, shelf: Shelf) -> dict[str, float]:
    """By label, how far our points are above the diagonal at equal AL, where it has one."""
    control = shelf.control(family)
    if control is None or family.first.kind in ("full", "diagonal"):
        return {}
    found = {point.label: above(point, control.points) for point in family.points}
    return {label: gain for label, gain in found.items() if gain is not None}
