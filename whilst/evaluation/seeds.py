"""Evaluations that differ by their seeds alone become one result: mean and deviation of every figure.

Knows records, not what they are compared with.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from whilst.core.config import build, flat, to_table
from whilst.core.errors import UserError
from whilst.core.policy_spec import AGENT_TRANSLATION
from whilst.core.settings import Recipe
from whilst.evaluation.identity import THRESHOLD
from whilst.evaluation.record import Record

# Where things lie, how training is watched, and what only changes its speed.
UNIMPORTANT = {
    "run",
    "file",
    "start",
    "stages",
    "evaluate.policies",
    "evaluate.batch",
    "data.dataset",
    "data.folder",
}
UNIMPORTANT |= {"data.train", "data.valid", "data.test"}
WATCHING = ("save_every", "log_every", "tensorboard", "layout", "compile", "shortcuts")
_SEEDED = "train.seed", "search.train.seed", "agent.train.seed"


@dataclass(frozen=True)
class Result:
    """One system under one policy: an evaluation, or several that differ by their seeds alone."""

    records: tuple[Record, ...]
    change: str = ""  # what its recipe changes of the paper's choices, such as agent gru

    @property
    def system(self) -> str:
        return self.records[0].system

    @property
    def policy(self) -> str:
        return self.records[0].policy

    @property
    def kind(self) -> str:
        """Such as wait, agent, oracle or full."""
        return self.policy.partition(".")[0].partition("-")[0]

    @property
    def argument(self) -> str:
        """k, or the first read of the search interval; nothing for MMA, whose latency is its model's."""
        return self.policy.partition(".")[0].partition("-")[2]

    @property
    def variant(self) -> str:
        """Such as agent gru or threshold-0.4: what makes points of one policy belong to another curve.

        The translation-based policy has no interval: its thresholds are the points of its curve.
        """
        is_point = self.policy.startswith(AGENT_TRANSLATION.name)
        return joined(self.change, self.decoding if is_point else self.policy.partition(".")[2])

    @property
    def decoding(self) -> str:
        """How it was decoded, such as unknown-keep. An agent's threshold is part of its policy."""
        return THRESHOLD.sub("", self.policy.partition(".")[2])

    @property
    def name(self) -> str:
        """Of the curve that it is a point of."""
        return joined(self.system, self.variant)

    @property
    def cells(self) -> tuple[str, str]:
        """System and policy as tables show them: together they tell a row from all others."""
        point = f"{self.policy} λ={self.weight}" if self.kind == "mma" else self.policy
        return joined(self.system, self.change), point

    @property
    def weight(self) -> str:
        """MMA's lambda: each is a model, and a point of one curve."""
        return str(self.records[0].settings.get("objective", {}).get("latency_average", "?"))

    @property
    def is_full(self) -> bool:
        """Whether the whole source is read before the first word: a height, not a point of a curve."""
        return self.kind == "full"

    @property
    def scores(self) -> dict[str, float | None]:
        """Means over the seeds."""
        return {name: fmean(values) if values else None for name, values in self._values().items()}

    @property
    def deviations(self) -> dict[str, float | None]:
        """Standard deviations of a sample (n - 1); None for what has been measured once."""
        return {name: stdev(values) if len(values) > 1 else None for name, values in self._values().items()}

    @property
    def al(self) -> float:
        return fmean(record.scores.al for record in self.records)

    @property
    def bleu(self) -> float | None:
        return self.scores["bleu"]

    def _values(self) -> dict[str, list[float]]:
        """Every figure of every seed; none at all where one of them lacks it, since a mean would hide that."""
        tables = [record.scores.to_table() for record in self.records]
        known = {name: [table[name] for table in tables] for name in tables[0]}
        return {name: [v for v in values if v is not None and None not in values] for name, values in known.items()}


def joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def over_seeds(records: Sequence[Record]) -> list[Result]:
    """Put together what differs by its seeds alone, in the order of the first of each.

    The same seed twice is no second seed: that record stays on its own. Nor are the same weights, whose other seed
    is that of a stage that they do not come from.
    """
    groups: list[_Group] = []
    alike: defaultdict[tuple[Any, ...], list[_Group]] = defaultdict(list)  # the same groups
    for record in records:
        recipe, seeds = _recipe(record.settings)
        texts = record.pair, record.split, record.source_sha256, record.reference_sha256, repr(record.origin)
        known = alike[record.system, record.policy, texts, recipe, tuple(sorted(record.scores.signatures.items()))]
        own = {("seeds", *seeds), ("weights", record.model_sha256, record.agent_sha256)}
        group = next((group for group in known if group.taken.isdisjoint(own)), None)
        if group is None:
            groups.append(group := _Group())
            known.append(group)
        group.records.append(record)
        group.taken |= own
    return [Result(tuple(group.records)) for group in groups]


@dataclass
class _Group:
    """Records that are one result, and the seeds and weights that are among them."""

    records: list[Record] = field(default_factory=list)
    taken: set[tuple[Any, ...]] = field(default_factory=set)


def _recipe(settings: dict[str, Any]) -> tuple[str, tuple[int | None, ...]]:
    """What of a recipe decides, without its seeds, and the seeds."""
    table = flat(decisive(settings))
    table["teacher"] = bool(table.get("teacher"))  # a teacher of another seed lies elsewhere
    seeds = tuple(table.pop(name, None) for name in _SEEDED)
    begun = bool(settings.get("start"))  # likewise
    kept = {name: table[name] for name in table if name not in UNIMPORTANT and not name.endswith(WATCHING)}
    return json.dumps(kept | {"start": begun}, sort_keys=True), seeds


def decisive(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without where runs lie and which policies were measured with this one; as JSON has them."""
    evaluate = {name: value for name, value in settings.get("evaluate", {}).items() if name != "policies"}
    given = {name: value for name, value in settings.items() if name not in ("run", "start")}
    found: dict[str, Any] = json.loads(json.dumps(_complete(given | {"evaluate": evaluate})))
    return found


def _complete(settings: dict[str, Any]) -> dict[str, Any]:
    """With what every setting is that was not there yet when the record was made."""
    try:
        return to_table(build(Recipe, settings))
    except UserError:  # not one of our recipes: as it stands
        return settings
