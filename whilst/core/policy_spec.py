"""Identity of a READ/WRITE policy, such as wait-3 or agent-1.threshold-0.6. Knows no model and no PyTorch."""

import functools
import importlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from whilst.core.errors import UserError, explaining

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from torch import Tensor

Count = TypeVar("Count", int, "Tensor")
LATENCIES = "low", "medium", "high"
NUMBER = r"[0-9]{1,3}(\.[0-9]{1,3})?"
MAX_DIGITS = 9  # of K, which clients choose: larger numbers overflow 64-bit arithmetic


@dataclass(frozen=True)
class PolicyKind:
    """What holds for all policies of one kind."""

    # What follows "kind-": nothing, K from 1, a name, or a number from 0 that may have decimals.
    argument: Literal["none", "count", "label", "number"] = "none"
    has_threshold: bool = False
    needs_reference: bool = False  # works on a test set only, not live
    can_end_early: bool = True  # may write the end mark while more source could still change it
    usage: str = ""  # how its names are written, for messages


KINDS: dict[str, PolicyKind] = {
    "full": PolicyKind(can_end_early=False, usage="full"),
    "wait": PolicyKind("count", usage="wait-K (wait-3)"),
    "diagonal": PolicyKind("count", usage="diagonal-K"),
    "mma": PolicyKind(can_end_early=False, usage="mma"),
    "agent": PolicyKind("label", has_threshold=True, usage="agent-L"),
    "lag": PolicyKind("number", usage="lag-WORDS (lag-3)"),
    "oracle": PolicyKind("label", needs_reference=True, usage="oracle-L"),
    "local-agreement": PolicyKind("count", can_end_early=False, usage="local-agreement-N"),
    "align-att": PolicyKind("count", can_end_early=False, usage="align-att-F"),
}


def split_name(name: str) -> tuple[str, str, str]:
    """Kind, dash and argument of a policy's name; a kind that is known may have dashes itself."""
    known = [kind for kind in KINDS if f"{name}-".startswith(f"{kind}-")]
    kind = max(known, key=len, default=name.partition("-")[0])
    return kind, *name[len(kind) :].partition("-")[1:]


@functools.cache
def installed() -> "dict[str, EntryPoint]":
    """Modules of installed packages by the kind of policy that they register."""
    from importlib.metadata import entry_points  # here, as few need it and its import takes long

    return {point.name: point for point in entry_points(group="whilst.policies")}


def find_kind(kind: str) -> PolicyKind | None:
    """Imports the package that offers it, if it is not known yet."""
    if kind not in KINDS and kind in installed():
        with explaining(f"policy {kind}, of {installed()[kind].value}"):
            importlib.import_module(installed()[kind].module)
    return KINDS.get(kind)


@dataclass(frozen=True)
class PolicySpec:
    """One policy. `str()` gives its canonical name, `parse` accepts every spelling of it."""

    kind: str
    argument: str = ""  # K, the first read of a search interval, or "translation"
    threshold: float | None = None  # WRITE at this probability or above; None: as evaluate.threshold says

    @classmethod
    def parse(cls, text: str) -> "PolicySpec":
        name, mark, threshold = text.partition(".threshold-")
        kind, dash, argument = split_name(name)
        if find_kind(kind) is None:
            known = [one.usage or name for name, one in KINDS.items()] + sorted(installed().keys() - KINDS.keys())
            raise UserError(f"policy {text[:40]!r}: unknown; write {', '.join(known[:-1])} or {known[-1]}")
        about, shown = KINDS[kind], f"policy {kind}-{argument[:40]}"
        is_count = argument.isdecimal() and len(argument) <= MAX_DIGITS
        if about.argument == "none" and dash:
            raise UserError(f"{shown}: {kind} takes no argument")
        if about.argument == "count" and not (is_count and int(argument)):
            raise UserError(f"{shown}: K must be a whole number from 1, as in {kind}-3")
        if about.argument == "number":
            if not re.fullmatch(NUMBER, argument):
                raise UserError(f"{shown}: must end in a number of words, as in {kind}-3 or {kind}-2.5")
            argument = f"{float(argument):g}"
        spec = cls(kind, str(int(argument)) if is_count else argument)
        return replace(spec, threshold=_threshold(spec, text, threshold)) if mark else spec

    @property
    def about(self) -> PolicyKind:
        return KINDS[self.kind]

    @property
    def count(self) -> int:
        """Such as the K of wait-K."""
        return int(self.argument)

    @property
    def name(self) -> str:
        """Without the threshold."""
        return f"{self.kind}-{self.argument}" if self.argument else self.kind

    def __str__(self) -> str:
        return self.name if self.threshold is None else f"{self.name}.threshold-{self.threshold}"

    def with_default_threshold(self, threshold: float) -> "PolicySpec":
        """With this threshold if its kind has one and none was given."""
        missing = self.about.has_threshold and self.threshold is None
        return replace(self, threshold=threshold) if missing else self

    def index_in(self, known: Sequence["PolicySpec"]) -> int:
        """Its index among the agent's or oracle's policies of a run, thresholds aside."""
        names = [spec.name for spec in known]
        if self.name not in names:
            how = "" if AGENT_TRANSLATION in known else " (by the first read of an interval)"
            raise UserError(f"policy {self.name}: this run knows {', '.join(names)}{how}")
        return names.index(self.name)


def _threshold(spec: PolicySpec, text: str, given: str) -> float:
    if not spec.about.has_threshold:
        raise UserError(f"policy {text[:40]}: only agents have a threshold; write {spec.name[:40]}")
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UserError(f"policy {text[:40]}: a threshold is a number from 0 to 1, as in {spec.name}.threshold-0.6")
    return value


AGENT_TRANSLATION = PolicySpec("agent", "translation")  # its agent has one latency for all intervals
# What low, medium and high are without an agent: for our models, and for those that need whole sentences.
FALLBACKS = tuple(PolicySpec("wait", k) for k in "135")
OFFLINE = tuple(PolicySpec("local-agreement", n) for n in "234")


def agent_policies(intervals: Sequence[Sequence[int]], labels: str) -> list[PolicySpec]:
    """The policies of an agent that learnt these labels, in the order of its latencies."""
    if labels == "translation":
        return [AGENT_TRANSLATION]
    return [PolicySpec("agent", str(first)) for first, *_ in intervals]


def oracle_policies(intervals: Sequence[Sequence[int]]) -> list[PolicySpec]:
    """The policies that follow searched reads."""
    return [PolicySpec("oracle", str(first)) for first, *_ in intervals]


def distinct(policies: Sequence[str], threshold: float) -> list[PolicySpec]:
    """Each policy once, whatever its spelling; `threshold` is the default of agents."""
    found: dict[PolicySpec, PolicySpec] = {}
    for spec in map(PolicySpec.parse, policies):
        found.setdefault(spec.with_default_threshold(threshold), spec)
    return list(found.values())


def parse_live(text: str) -> PolicySpec:
    """A policy that can translate live: one that needs no reference."""
    kind = find_kind(split_name(text)[0])
    if kind is None or kind.needs_reference:
        wanted = "low, medium, high, or a policy such as agent-1 or wait-3"
        raise UserError(f"latency {text[:40]}: must be {wanted}")
    return PolicySpec.parse(text)


AtLag = Callable[[PolicySpec], tuple[PolicySpec, str]]  # see `lag_finder` in whilst/model/lags.py


def not_calibrated(policy: PolicySpec) -> tuple[PolicySpec, str]:
    """Of models without an agent."""
    if policy.kind == "lag":
        raise UserError(f"policy {policy}: needs a run with an agent")
    return policy, ""


def for_latency(
    latency: str, agents: Sequence[PolicySpec], at_lag: AtLag = not_calibrated
) -> tuple[PolicySpec, str]:
    """The policy for low, medium, high or a policy's name, and a note for the user or "".

    `agents`: the policies of the run's agent; `at_lag` finds that of a policy such as lag-3.
    """
    if latency not in LATENCIES:
        return at_lag(parse_live(latency))
    options = agents or FALLBACKS
    spec = options[(len(options) - 1) * LATENCIES.index(latency) // 2]
    if not agents:
        return spec, f"this run has no agent: {latency} is {spec}"
    return spec, "" if len(agents) > 1 else f"this run has one latency, {spec}"


# The rules themselves, which PyTorch and the CPU engine share.


def fixed_reads(written: Count, k: int, length_ratio: tuple[int, int] = (1, 1)) -> Count:
    """g_i = k + (i - 1) J / I rounded down, where i - 1 tokens are written; wait-k has the ratio 1 : 1."""
    source, target = length_ratio
    return (written if source == target else written * source // target) + k


def log_odds(probability: float) -> float:
    """An agent WRITEs where its log-odds reach those of its threshold: at 0 always, at 1 never."""
    if not 0 < probability < 1:
        return math.inf if probability > 0 else -math.inf
    return math.log(probability / (1 - probability))
