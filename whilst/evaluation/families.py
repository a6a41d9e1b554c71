"""The kept evaluations as curves: what differs by its point (k, interval, weight) and seeds alone belongs together.

A record is known by what it says of itself, not by where it lies. Only what stands in a folder `tried` is told
apart: it was measured on the way, and is no result that anyone claims.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whilst.core.config import build, flat, to_table
from whilst.core.errors import UserError
from whilst.core.settings import Recipe
from whilst.evaluation.paper_numbers import Point, interpolate
from whilst.evaluation.record import Record, records_in
from whilst.evaluation.seeds import UNIMPORTANT, WATCHING, Result
from whilst.evaluation.tables import point_label

TRIED = "tried"
DIAGONAL = "multi-path (diagonal)"  # our control: the reads rise with the source at an even pace, from k on
# What makes a point of a system's curve, where each point is a model.
POINT = {"wait-k": ("objective.k", "train.validate_k"), "mma": ("objective.latency_average",)}
TRANSLATING = "translation-based"
BOUNDS = "search.intervals", "search.slope"  # of the search, all that it uses, and only where it has bounds
# What the paper varies, and its own choice.
DEFAULTS = {
    "length": "5",
    "reference": "translation",
    "condition": "concavity",
    "base": "multi-path",
    "agent": "lstm",
}


@dataclass(frozen=True)
class Filed:
    """A record and where it lies."""

    path: Path
    record: Record


@dataclass(frozen=True)
class Measured:
    """One point: a record for each seed."""

    label: str  # as the paper labels its points: 3, [3,7], 0.1, n/a; nothing for full-sentence
    filed: tuple[Filed, ...]

    @property
    def result(self) -> Result:
        return Result(tuple(item.record for item in self.filed))


@dataclass(frozen=True)
class Family:
    """One system as one recipe trains it, by rising AL."""

    pair: str
    system: str
    kind: str  # of its policies: wait, agent, oracle, full, …
    variant: str  # such as threshold-0.6
    agreement: str  # of the translation-based policy, such as within [3,11]
    settings: dict[str, Any]  # flat, without point and seeds
    points: tuple[Measured, ...]
    is_tried: bool = False

    @property
    def first(self) -> Record:
        return self.points[0].filed[0].record

    @property
    def curve(self) -> list[Point]:
        results = [(point.label, point.result) for point in self.points]
        return [Point(label, result.al, result.bleu) for label, result in results if result.bleu is not None]

    def at(self, al: float | None) -> float | None:
        """BLEU on the straight lines between the points."""
        return None if al is None else interpolate(self.curve, al)

    def point(self, label: str) -> Measured | None:
        return next((point for point in self.points if point.label == label), None)

    @property
    def changes(self) -> dict[str, str]:
        """What differs from the paper's choices, of those that its ablations vary."""
        base = self.system.partition("(from ")[2].partition(")")[0]
        return changes(self.settings, base or "multi-path", self.settings.get("search.intervals", [5])[0])


def changes(settings: dict[str, Any], base: str, length: int) -> dict[str, str]:
    """What flat settings change of the paper's choices."""
    condition = settings.get("search.condition", "concavity")
    own = {
        "length": str(length),
        "reference": settings.get("agent.reference", "translation"),
        # what the authors' code adds to the condition is no other one
        "condition": "concavity" if condition == "authors" else condition,
        "base": base,
        "agent": settings.get("agent.kind", "lstm"),
    }
    return {name: value for name, value in own.items() if value != DEFAULTS[name]}


def agreement_of(settings: dict[str, Any]) -> str:
    """What must agree for the translation-based policy, if not each token alone (the paper that it is from)."""
    if settings["agent.labels"] != "translation" or settings["agent.agreement"] == "token":
        return ""
    if settings["agent.agreement"] != "within":
        return str(settings["agent.agreement"])
    return f"within [{','.join(map(str, settings['search.intervals'][0]))}]"


def read_filed(root: Path) -> list[Filed]:
    """Every record under a folder that has a trace, in the order of their paths."""
    return [Filed(path, record) for path, record in records_in(root).items()]


def families(filed: Sequence[Filed]) -> tuple[list[Family], list[Filed]]:
    """The curves, and records that say nothing new: the same point of the same weights a second time.

    Other weights by the same recipe and seeds are no second seed. They may have begun with another translator, of
    which a record only knows where it lay: they make a curve of their own.
    """
    groups: dict[str, Group] = {}
    twice = []
    for item in filed:
        family, label, seeds = describe(item)
        first = groups.setdefault(repr(family), Group(family)).place(item, label, seeds)
        if first is item:
            continue
        if first.record.model_sha256 != item.record.model_sha256:
            family.settings["start"] = item.record.settings.get("start") or item.record.settings.get("run")
            if groups.setdefault(repr(family), Group(family)).place(item, label, seeds) is item:
                continue
        twice.append(item)
    return [group.with_points() for group in groups.values()], twice


@dataclass
class Group:
    """A family while its points are being collected: by label, then by seeds."""

    family: Family
    points: dict[str, dict[tuple[Any, ...], Filed]] = field(default_factory=dict)

    def place(self, item: Filed, label: str, seeds: tuple[Any, ...]) -> Filed:
        """Whoever has this place: the record itself, or one that came before it."""
        return self.points.setdefault(label, {}).setdefault(seeds, item)

    def with_points(self) -> Family:
        measured = [Measured(label, tuple(of_seed.values())) for label, of_seed in self.points.items()]
        return replace(self.family, points=tuple(sorted(measured, key=lambda point: point.result.al)))


def describe(item: Filed) -> tuple[Family, str, tuple[Any, ...]]:
    """The family of a record (without points), the label of its point, and its seeds."""
    record = item.record
    result = Result((record,))
    try:
        settings = flat(to_table(build(Recipe, record.settings)))
    except UserError as error:
        raise UserError(f"{item.path}: {error}") from None
    kind, label = result.kind, _label(result)
    if record.system == "wait-k" and str(settings["objective.k"]) != result.argument:
        kind = "wait, trained for another k"
    agreement = agreement_of(settings) if record.system == TRANSLATING else ""
    settings = relevant(settings, result.kind, record.system)
    seeds = tuple(settings.pop(name) for name in sorted(settings) if name.endswith("train.seed"))
    settings = {name: value for name, value in settings.items() if name not in POINT.get(record.system, ())}
    if record.system == TRANSLATING:
        del settings["evaluate.threshold"]  # the point, for want of intervals
    if agreement.startswith("within"):
        del settings["search.intervals"]  # it is part of what must agree
    elif "search.intervals" in settings:
        # Which they are is the point; how long, and whether one model serves several, is the recipe.
        intervals = settings["search.intervals"]
        settings["search.intervals"] = [intervals[0][1] - intervals[0][0] + 1, len(intervals) > 1]
    # Where they lie differs from seed to seed; whether there is one is the recipe.
    settings |= {name: "one" if record.settings.get(name) else "none" for name in ("start", "teacher")}
    settings["text"] = [record.source_sha256[:12], record.reference_sha256[:12], record.split]
    settings["signature"] = record.scores.signatures.get("bleu")
    settings |= {f"origin.{name}": value for name, value in record.origin.items()}
    is_tried = TRIED in item.path.parts
    family = Family(record.pair, record.system, kind, result.variant, agreement, settings, (), is_tried)
    return family, label, seeds


def _label(result: Result) -> str:
    if result.is_full:
        return ""
    return result.argument if result.kind in ("wait", "diagonal") else point_label(result).removeprefix("λ=")


def relevant(settings: dict[str, Any], kind: str, system: str) -> dict[str, Any]:
    """The settings that decide such a figure: none of stages that come later, nor copies that a stage makes."""
    dropped = []
    learnt = kind in ("agent", "oracle")
    if settings["objective.name"] == "search":
        dropped += ["train.", "objective."]  # copies of search.train and search.objective
    else:
        dropped += ["search.train.", "search.objective."]
        if system == TRANSLATING and settings["agent.agreement"] == "within":
            dropped += [name for name in settings if name.startswith("search.") and name not in BOUNDS]
        elif not learnt or system == TRANSLATING:
            dropped.append("search.")
    if kind != "agent":
        dropped.append("agent.")
    return {
        name: value
        for name, value in settings.items()
        if name not in UNIMPORTANT and not name.startswith(tuple(dropped)) and not name.endswith(WATCHING)
    }


def differing(group: Sequence[Family]) -> list[str]:
    """Names of the settings in which some of these families differ."""
    names = sorted({name for family in group for name in family.settings})
    return [name for name in names if len({repr(family.settings.get(name)) for family in group}) > 1]
