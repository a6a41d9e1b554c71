"""Group evaluations: one result if they differ only by seed, one curve if they have the same system and recipe.

For example, agent-3 of three seeds is one `Result`; agent-1, agent-3, … of a recipe are one curve.
"""

import itertools
import json
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from whilst.core.policy_spec import AGENT_TRANSLATION
from whilst.core.settings import Role, names_with
from whilst.evaluation.identity import System, point_label, shown_label
from whilst.evaluation.record import Record
from whilst.evaluation.tables import NONE, figure

SEEDS, POINTS = names_with(Role.SEED), names_with(Role.POINT)
# The settings of the search that translation-based labels within an interval use.
BOUNDS = "search.intervals", "search.slope"
DATASET = "dataset_sha256"  # in the origin of a record
# The paper's default of each setting that its ablations vary, and how another value is shown.
DEFAULTS = {
    "length": "5",
    "reference": "translation",
    "condition": "concavity",
    "base": "multi-path",
    "agent": "lstm",
}
SHOWN = {"length": "intervals of {}", "k": "trained for k={}"}


@dataclass(frozen=True)
class Point:
    """A point of a quality/latency curve."""

    label: str  # k, lambda or search interval, as the paper writes it
    al: float | None  # None: the paper does not give it for every full-sentence model
    bleu: float
    deviation: float = 0.0  # of the BLEU of several seeds


def interpolate(points: Sequence[Point], al: float | None) -> float | None:
    """BLEU at this AL on straight lines between the points, which are sorted by AL; None outside of them."""
    known = [(point.al, point.bleu) for point in points if point.al is not None]
    for (left, low), (right, high) in itertools.pairwise(known):
        if al is not None and left <= al <= right:
            return low + (high - low) * (al - left) / (right - left) if right > left else low
    return None


def minus(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else high - low


def above(point: Point | None, curve: Sequence[Point]) -> float | None:
    """BLEU of a point minus that of a curve at the same AL."""
    return minus(point.bleu, interpolate(curve, point.al)) if point else None


def joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Result:
    """One system under one policy: an evaluation, or several that differ only by seed."""

    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def pair(self) -> str:
        return self.first.pair

    @property
    def system(self) -> System:
        return self.first.system

    @property
    def kind(self) -> str:
        """The kind of the policy, such as wait, agent, oracle or full."""
        return self.first.decoding.policy.kind

    @property
    def label(self) -> str:
        """The label of the point on its curve, as the paper writes it; empty for full-sentence."""
        return point_label(self.first.decoding.policy, self.first.recipe)

    @property
    def shown_label(self) -> str:
        return shown_label(self.first.decoding.policy, self.first.recipe)

    @property
    def is_full(self) -> bool:
        """Whether the whole source is read before the first word; such a result is not a point of a curve."""
        return self.kind == "full"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that decide this result, by dotted name, without those that tell seeds or points apart."""
        # In wait-k and MMA each point is a model; translation-based agents have no intervals.
        of_points = {"wait-k": POINTS, "mma": POINTS, "translation-based": {"evaluate.threshold"}}
        dropped = SEEDS | of_points.get(self.system.name, set())
        used = used_by(self.first, self.first.deciding)
        settings = {name: value for name, value in used.items() if name not in dropped}
        if self.agreement:
            settings.pop("search.intervals", None)  # named in the agreement
        elif intervals := settings.get("search.intervals"):
            # The length of the intervals, and whether one model serves several.
            settings["search.intervals"] = [intervals[0][1] - intervals[0][0] + 1, len(intervals) > 1]
        settings["text"] = [self.first.source_sha256[:12], self.first.reference_sha256[:12], self.first.split]
        settings["signatures"] = dict(self.first.scores.signatures)
        return settings | {f"origin.{name}": value for name, value in self.first.origin.items()}

    @cached_property
    def changes(self) -> dict[str, str]:
        """The settings varied by the paper's ablations that differ from the paper's default."""
        recipe, settings = self.first.recipe, self.settings
        if recipe is None:
            return {}
        condition = settings.get("search.condition", "concavity")
        values = {
            "length": str(settings.get("search.intervals", [DEFAULTS["length"]])[0]),
            "reference": settings.get("agent.reference", "translation"),
            # the condition in the authors' code is concavity with an addition
            "condition": "concavity" if condition == "authors" else condition,
            "base": self.system.base if self.system.fine_tuned else DEFAULTS["base"],
            "agent": settings.get("agent.kind", "lstm"),
        }
        if self.system.name == "wait-k" and self.kind == "wait" and str(recipe.objective.k) != self.label:
            values["k"] = str(recipe.objective.k)
        return {name: value for name, value in values.items() if value != DEFAULTS.get(name)}

    @property
    def agreement(self) -> str:
        """Which labels a translation-based policy learnt, such as "within [3,11]"; empty for the usual labels."""
        recipe = self.first.recipe
        if recipe is None or self.system.name != "translation-based":
            return ""
        if recipe.agent.bounded:
            return f"within [{','.join(map(str, recipe.search.intervals[0]))}]"
        return "full-sentence labels" if recipe.agent.labeller else ""

    @property
    def change(self) -> str:
        """How this differs from the usual curve of the system, for display. The base is in the system's title."""
        shown = {name: value for name, value in self.changes.items() if name != "base"}
        named = [SHOWN.get(name, f"{name} {{}}").format(value) for name, value in shown.items()]
        return joined(*named, self.agreement)

    @property
    def options(self) -> str:
        """The decoding options, such as unknown-keep, which is left out for systems with a rung, as usual there."""
        usual = ("unknown-keep",) if self.system.rung else ()
        return ".".join(option for option in self.first.decoding.options if option not in usual)

    @property
    def decoding(self) -> str:
        """The options with the threshold, unless the threshold is what tells the points of the curve apart."""
        threshold = self.first.decoding.policy.threshold
        if threshold is None or self.first.decoding.policy.name == AGENT_TRANSLATION.name:
            return self.options
        return ".".join(filter(None, (f"threshold-{threshold}", self.options)))

    @property
    def title(self) -> str:
        """The system and its change, without the decoding."""
        return joined(str(self.system), self.change)

    @property
    def variant(self) -> str:
        """Change and decoding, such as "agent gru" or "threshold-0.4"; each variant has a curve of its own."""
        return joined(self.change, self.decoding)

    @property
    def name(self) -> str:
        """The name of the curve that has this point."""
        return joined(self.title, self.decoding)

    @property
    def point(self) -> str:
        """The policy as tables show it, with lambda if each point is a model."""
        return f"{self.first.policy} {self.shown_label}" if self.kind == "mma" else self.first.policy

    @cached_property
    def curve_key(self) -> str:
        return f"{self.pair} {self.kind} {self.name} {json.dumps(self.settings, sort_keys=True)}"

    @property
    def al(self) -> float:
        return fmean(record.scores.al for record in self.records)

    @property
    def bleu(self) -> float | None:
        return self.mean("bleu")

    def mean(self, score: str) -> float | None:
        """The mean over the seeds; None if one of them lacks the score."""
        values = self._values(score)
        return fmean(values) if values else None

    def deviation(self, score: str) -> float | None:
        """Standard deviation of a sample (n - 1) over the seeds; None for a single seed."""
        values = self._values(score)
        return stdev(values) if len(values) > 1 else None

    def shown(self, score: str, digits: int = 2) -> str:
        """A score, or its mean ± deviation over the seeds."""
        deviation = self.deviation(score)
        return figure(self.mean(score), digits) + ("" if deviation is None else f" ± {deviation:.{digits}f}")

    def _values(self, score: str) -> list[float]:
        """The score of every seed; empty if one of them lacks the score."""
        values = [record.scores.to_table().get(score) for record in self.records]
        return [value for value in values if value is not None and None not in values]


def seeds_of(record: Record) -> tuple[Any, ...]:
    settings = used_by(record, record.deciding)
    return tuple(settings[name] for name in sorted(settings.keys() & SEEDS))


def used_by(record: Record, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that the record's system uses: none of later stages, and no tables that a stage copies."""
    if record.recipe is None:
        return settings
    kind, translation_based, dropped = record.decoding.policy.kind, record.system.name == "translation-based", []
    if record.recipe.objective.name == "search":
        dropped += ["train.", "objective."]  # copies of search.train and search.objective
    elif translation_based and record.recipe.agent.bounded:
        dropped += [name for name in settings if name.startswith("search.") and name not in BOUNDS]
    elif translation_based or kind not in ("agent", "oracle"):
        dropped += ["search."]
    else:
        dropped += ["search.train.", "search.objective.", "search.multi_path"]
    dropped += ["agent."] * (kind != "agent")
    return {name: value for name, value in settings.items() if not name.startswith(tuple(dropped))}


def group_seeds(records: Iterable[Record]) -> list[Result]:
    """Group records that differ only by seed; groups are in the order of their first records.

    A record with the same seed or the same weights as a record of the group starts another group.
    """
    groups: list[list[Record]] = []
    alike: defaultdict[tuple[str, str, str], list[list[Record]]] = defaultdict(list)
    for record in _with_dataset(list(records)):
        result = Result((record,))
        known = alike[result.curve_key, result.label, record.policy]
        group = next((group for group in known if all(_seeds_differ(record, other) for other in group)), None)
        if group is None:
            groups.append(group := [])
            known.append(group)
        group.append(record)
    return [Result(tuple(group)) for group in groups]


def _with_dataset(records: Sequence[Record]) -> list[Record]:
    """Add the dataset's checksum to older records, if the other records of the pair have only one."""
    known: defaultdict[str, set[str]] = defaultdict(set)
    for record in records:
        known[record.pair] |= {record.origin[name] for name in record.origin.keys() & {DATASET}}
    return [
        replace(record, origin={DATASET: next(iter(known[record.pair]))} | record.origin)
        if len(known[record.pair]) == 1
        else record
        for record in records
    ]


def _seeds_differ(one: Record, other: Record) -> bool:
    same_weights = (one.model_sha256, one.agent_sha256) == (other.model_sha256, other.agent_sha256)
    return seeds_of(one) != seeds_of(other) and not same_weights


@dataclass(frozen=True)
class Curve:
    """The results of one system trained by one recipe, by rising AL."""

    results: tuple[Result, ...]
    letter: str = ""  # A, B, … if several recipes made curves of one name

    @property
    def first(self) -> Result:
        return self.results[0]

    @property
    def name(self) -> str:
        return f"{self.first.name} {self.letter}".rstrip()

    @property
    def title(self) -> str:
        """The name without the decoding, for rows that name the policy as well."""
        return f"{self.first.title} {self.letter}".rstrip()

    @property
    def is_variant(self) -> bool:
        """Whether this differs from the usual curve of the system, or is a second curve of the same name."""
        return bool(self.first.variant) or self.letter > "A"

    @property
    def system(self) -> System:
        return self.first.system

    @property
    def kind(self) -> str:
        return self.first.kind

    @property
    def settings(self) -> dict[str, Any]:
        return self.first.settings

    @property
    def pair(self) -> str:
        return self.first.pair

    @property
    def points(self) -> list[Point]:
        return [Point(result.label, result.al, result.bleu) for result in self.results if result.bleu is not None]

    def along(self, latency: str) -> list[Point]:
        """The points with a latency of `Scores` as AL; [] if it needs computing time and sentences were batched."""
        records = self.first.records
        one_by_one = all(record.recipe is not None and record.recipe.evaluate.batch == 1 for record in records)
        if latency.endswith("_ca") and not one_by_one:
            return []
        points = [
            Point(result.shown_label, result.mean(latency), result.bleu)
            for result in self.results
            if result.bleu is not None
        ]
        return sorted((point for point in points if point.al is not None), key=lambda point: point.al or 0)

    def at(self, al: float | None) -> float | None:
        return interpolate(self.points, al)

    def closest(self, curves: Iterable["Curve"]) -> "Curve | None":
        """The curve of the same pair whose settings differ least from these; None if there is none."""
        group = [curve for curve in curves if curve.pair == self.pair]
        return min(group, key=lambda curve: len(differing([curve.settings, self.settings])), default=None)


def to_curves(results: Iterable[Result]) -> list[Curve]:
    """Group results of one system and recipe. A point that was measured twice begins a second curve."""
    groups: dict[tuple[str, int], dict[str, Result]] = {}
    for result in results:
        keys = ((result.curve_key, number) for number in itertools.count())
        points = next(points for key in keys if result.label not in (points := groups.setdefault(key, {})))
        points[result.label] = result
    grouped = [tuple(sorted(points.values(), key=lambda result: result.al)) for points in groups.values()]
    names = [(first.pair, first.first.split, first.kind, first.name) for first, *_ in grouped]
    letters = {name: iter(string.ascii_uppercase) for name, count in Counter(names).items() if count > 1}
    named = zip(grouped, names, strict=True)
    return [Curve(group, next(letters.get(name, iter("")), "")) for group, name in named]


def differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """The names of the settings in which these tables differ."""
    names = sorted({name for table in settings for name in table})
    return [name for name in names if len({repr(table.get(name)) for table in settings}) > 1]


def differences(curves: Sequence[Curve]) -> list[str]:
    """The settings in which curves differ, as lines of text. A table that some do not use is named as a whole."""
    settings = differing([curve.settings for curve in curves])
    users = {setting: [curve.name for curve in curves if setting in curve.settings] for setting in settings}
    unused = [setting.rpartition(".")[0] for setting in settings if len(users[setting]) < len(curves)]
    lines = {}
    for setting in settings:
        section = setting.rpartition(".")[0]
        if unused.count(section) > 1 and len(users[setting]) < len(curves):
            lines[section] = f"`{section}`: {'; '.join(users[setting])} only"
        else:
            values = [f"{curve.name}: {curve.settings.get(setting, NONE)}" for curve in curves]
            lines[setting] = f"`{setting}`: {'; '.join(values)}"
    return list(lines.values())
