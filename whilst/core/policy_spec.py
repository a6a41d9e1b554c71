"""Names of READ/WRITE policies, such as wait-3 or agent-1.threshold-0.6. Independent of models and PyTorch."""

import functools
import importlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from whilst.core.errors import UserError, as_user_error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from torch import Tensor

Count = TypeVar("Count", int, "Tensor")
LATENCIES = "low", "medium", "high"
NUMBER = r"[0-9]{1,3}(\.[0-9]{1,3})?"
MAX_DIGITS = 9  # of K, which clients of the server choose; larger numbers overflow 64-bit arithmetic


@dataclass(frozen=True)
class PolicyKind:
    """The properties of all policies of one kind."""

    # What follows "kind-": nothing, an integer K >= 1, a label, or a number >= 0 that may have decimals.
    argument: Literal["none", "count", "label", "number"] = "none"
    has_threshold: bool = False
    needs_reference: bool = False  # works on a test set only, not live
    can_end_early: bool = True  # may write an end mark that it would not write with more source
    usage: str = ""  # how names of this kind are written, for messages


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
    """Split a policy's name into kind, dash and argument. Known kinds may contain dashes."""
    known = [kind for kind in KINDS if f"{name}-".startswith(f"{kind}-")]
    kind = max(known, key=len, default=name.partition("-")[0])
    return kind, *name[len(kind) :].partition("-")[1:]


@functools.cache
def installed() -> "dict[str, EntryPoint]":
    """Kind of policy -> the module of an installed package that registers it."""
    from importlib.metadata import entry_points  # imported here, since it is slow and seldom needed

    return {point.name: point for point in entry_points(group="whilst.policies")}


def find_kind(kind: str) -> PolicyKind | None:
    """The properties of a kind, or None. Imports the installed package that registers the kind if necessary."""
    if kind not in KINDS and kind in installed():
        with as_user_error(f"policy {kind}, of {installed()[kind].value}"):
            importlib.import_module(installed()[kind].module)
    return KINDS.get(kind)


@dataclass(frozen=True)
class PolicySpec:
    """The parsed name of a policy. `str()` gives the canonical name, `parse` accepts every spelling of it."""

    kind: str
    argument: str = ""  # K, the first read l_1 of a search interval, "translation", or a number of words
    threshold: float | None = None  # WRITE at this probability or above; None: evaluate.threshold

    @classmethod
    def parse(cls, text: str) -> "PolicySpec":
        name, mark, threshold = text.partition(".threshold-")
        kind, dash, argument = split_name(name)
        if find_kind(kind) is None:
            usages = [about.usage or kind for kind, about in KINDS.items()]
            usages += sorted(installed().keys() - KINDS.keys())
            raise UserError(f"policy {text[:40]!r}: unknown; write {', '.join(usages[:-1])} or {usages[-1]}")
        about, where = KINDS[kind], f"policy {kind}-{argument[:40]}"
        is_count = argument.isdecimal() and len(argument) <= MAX_DIGITS
        if about.argument == "none" and dash:
            raise UserError(f"{where}: {kind} takes no argument")
        if about.argument == "count" and not (is_count and int(argument)):
            raise UserError(f"{where}: K must be a whole number from 1, as in {kind}-3")
        if about.argument == "number":
            if not re.fullmatch(NUMBER, argument):
                raise UserError(f"{where}: must end in a number of words, as in {kind}-3 or {kind}-2.5")
            argument = f"{float(argument):g}"
        spec = cls(kind, str(int(argument)) if is_count else argument)
        return replace(spec, threshold=_threshold(spec, text, threshold)) if mark else spec

    @property
    def about(self) -> PolicyKind:
        return KINDS[self.kind]

    @property
    def count(self) -> int:
        """The argument as an integer, such as K of wait-K."""
        return int(self.argument)

    @property
    def name(self) -> str:
        """The canonical name without the threshold."""
        return f"{self.kind}-{self.argument}" if self.argument else self.kind

    def __str__(self) -> str:
        return self.name if self.threshold is None else f"{self.name}.threshold-{self.threshold}"

    def with_default_threshold(self, threshold: float) -> "PolicySpec":
        """Set the threshold if this kind of policy has one and the name gives none."""
        missing = self.about.has_threshold and self.threshold is None
        return replace(self, threshold=threshold) if missing else self

    def index_in(self, known: Sequence["PolicySpec"]) -> int:
        """The index of this policy among the agent or oracle policies of a run, regardless of thresholds."""
        names = [spec.name for spec in known]
        if self.name not in names:
            note = "" if AGENT_TRANSLATION in known else " (named by the first read of a search interval)"
            raise UserError(f"policy {self.name}: this run knows {', '.join(names)}{note}")
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


AGENT_TRANSLATION = PolicySpec("agent", "translation")  # the agent of the translation-based policy; has one latency
# The policies for low, medium and high latency without an agent: of simultaneous and of offline models.
FALLBACKS = tuple(PolicySpec("wait", k) for k in "135")
OFFLINE = tuple(PolicySpec("local-agreement", n) for n in "234")


def agent_policies(intervals: Sequence[Sequence[int]], labels: str) -> list[PolicySpec]:
    """The policies of an agent that was trained with `agent.labels = labels`, in the order of its latencies."""
    if labels == "translation":
        return [AGENT_TRANSLATION]
    return [PolicySpec("agent", str(first)) for first, *_ in intervals]


def oracle_policies(intervals: Sequence[Sequence[int]]) -> list[PolicySpec]:
    """The policies that follow the reads searched in each interval."""
    return [PolicySpec("oracle", str(first)) for first, *_ in intervals]


def distinct(policies: Sequence[str], threshold: float) -> list[PolicySpec]:
    """Parse names of policies and drop duplicates in other spellings. `threshold`: the default of agents."""
    unique: dict[PolicySpec, PolicySpec] = {}
    for spec in map(PolicySpec.parse, policies):
        unique.setdefault(spec.with_default_threshold(threshold), spec)
    return list(unique.values())


def parse_live(text: str) -> PolicySpec:
    """Parse the name of a policy that can translate live, which means that it needs no reference."""
    kind = find_kind(split_name(text)[0])
    if kind is None or kind.needs_reference:
        choices = "low, medium, high, or a policy such as agent-1 or wait-3"
        raise UserError(f"latency {text[:40]}: must be {choices}")
    return PolicySpec.parse(text)


AtLag = Callable[[PolicySpec], tuple[PolicySpec, str]]  # see `lag_finder` in whilst/model/lags.py


def not_calibrated(policy: PolicySpec) -> tuple[PolicySpec, str]:
    """The `AtLag` of models without an agent: refuses lag-WORDS, returns other policies as they are."""
    if policy.kind == "lag":
        raise UserError(f"policy {policy}: needs a run with an agent")
    return policy, ""


def for_latency(
    latency: str, agents: Sequence[PolicySpec], at_lag: AtLag = not_calibrated
) -> tuple[PolicySpec, str]:
    """The policy for a latency (low, medium, high, or a policy's name), and a note for the user or "".

    `agents`: the policies of the run's agent; `at_lag` replaces a policy such as lag-3 by one of these.
    """
    if latency not in LATENCIES:
        return at_lag(parse_live(latency))
    options = agents or FALLBACKS
    spec = options[(len(options) - 1) * LATENCIES.index(latency) // 2]
    if not agents:
        return spec, f"this run has no agent: {latency} is {spec}"
    return spec, "" if len(agents) > 1 else f"this run has one latency, {spec}"


# Decision rules that PyTorch and the CPU engine share.


def fixed_reads(written: Count, k: int, length_ratio: tuple[int, int] = (1, 1)) -> Count:
    """g_i = k + (i - 1) J / I, rounded down. `written` is i - 1; `length_ratio` is (J, I), or (1, 1) for wait-k."""
    source, target = length_ratio
    return (written if source == target else written * source // target) + k


def to_log_odds(probability: float) -> float:
    """The log-odds of a threshold. An agent WRITEs if its own are at least as high: always at 0, never at 1."""
    if not 0 < probability < 1:
        return math.inf if probability > 0 else -math.inf
    return math.log(probability / (1 - probability))
