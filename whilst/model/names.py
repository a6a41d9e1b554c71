"""What names say: of policies (wait-3, diagonal-3, agent-1, or low, medium and high), and of the usual model."""

import math
import re
from collections.abc import Sequence

from whilst.core.errors import UserError
from whilst.core.settings import Search

MODEL = "en-vi"  # comes with the package
LATENCIES = "low", "medium", "high"
FIXED = "wait-1", "wait-3", "wait-5"  # for these latencies, where there is no agent
LIVE = "full", "wait", "diagonal", "mma", "agent"  # kinds that need no reference
TRANSLATION_BASED = "agent-translation"  # the agent that learnt when prefixes are translated as the whole source is
NAMELESS = "n/a"  # the one point of a system that has no other, as the paper calls it
THRESHOLD = re.compile(r"threshold-(\d*\.?\d+)\.?")  # in the name of a record's policy
MOST_DIGITS = 9  # of a K: clients choose it, and beyond 64 bits nothing can be computed


def check_latency(latency: str) -> None:
    if latency not in LATENCIES and latency.partition("-")[0] not in LIVE:
        wanted = "low, medium, high, or a policy such as agent-1 or wait-3"
        raise UserError(f"latency {latency}: must be {wanted}")


def tokens_of(kind: str, argument: str) -> int:
    """The K of wait-K and diagonal-K."""
    if not argument.isdecimal() or len(argument) > MOST_DIGITS or int(argument) < 1:
        raise UserError(f"policy {kind}-{argument[:40]}: K must be a whole number from 1, as in {kind}-3")
    return int(argument)


def can_end_early(policy: str) -> bool:
    """Whether it may WRITE before all is read, and would then see more if it read on: MMA's heads have stopped."""
    return policy.partition(".")[0].partition("-")[0] not in ("full", "mma")


def normal(name: str) -> str:
    """wait-3 for wait-03: a policy has one name, by which its evaluation is found again."""
    kind, mark, argument = name.partition("-")
    return f"{kind}-{int(argument)}" if mark and argument.isdecimal() and len(argument) <= MOST_DIGITS else name


def agent_names(search: Search, labels: str) -> list[str]:
    """The policies of an agent that learnt these labels, in the order of its latencies."""
    return [TRANSLATION_BASED] if labels == "translation" else [f"agent-{first}" for first, _ in search.intervals]


def oracle_names(search: Search) -> list[str]:
    """The policies that obey searched reads."""
    return [f"oracle-{first}" for first, _ in search.intervals]


def point_name(policy: str, intervals: Sequence[Sequence[int]], weight: object) -> str:
    """What tells a point apart on its curve: k, the search interval, MMA's weight of latency, or a threshold."""
    kind, _, argument = policy.partition(".")[0].partition("-")
    if kind in ("wait", "diagonal"):
        return f"k={argument}"
    if kind == "mma":
        return f"λ={weight}"
    if policy.startswith(TRANSLATION_BASED):
        threshold = THRESHOLD.search(policy)
        return threshold[1] if threshold else NAMELESS
    return next((f"[{first},{last}]" for first, last in intervals if str(first) == argument), policy)


def bare(system: str) -> str:
    """A system's name without what it was made from: of "bs-simt (multi-path)" it is bs-simt."""
    return re.sub(r" \([^)]*\)", "", system)


def with_threshold(name: str, usual: float) -> tuple[str, float]:
    """agent-1.threshold-0.6 as its records call it: the policy, by its one name, and the chance to WRITE at."""
    policy, mark, value = name.partition(".threshold-")
    policy = normal(policy)
    if not mark:
        return policy, usual
    if not policy.startswith("agent-"):
        raise UserError(f"policy {name[:40]}: only agents have a threshold; write {policy[:40]}")
    try:
        threshold = float(value)
    except ValueError:
        threshold = math.nan
    if not 0 <= threshold <= 1:
        raise UserError(f"policy {name[:40]}: a threshold is a number from 0 to 1, as in {policy}.threshold-0.6")
    return policy, threshold


def distinct(policies: Sequence[str], usual: float) -> list[str]:
    """Each policy once, however it is spelled; the first spelling of each."""
    spelled: dict[tuple[str, float], str] = {}
    for policy in policies:
        spelled.setdefault(with_threshold(policy, usual), policy)
    return list(spelled.values())


def place_of(name: str, known: Sequence[str]) -> int:
    """The number of a policy among those that a run has."""
    if name not in known:
        how = "" if TRANSLATION_BASED in known else " (by the first read of an interval)"
        raise UserError(f"policy {name}: this run knows {', '.join(known)}{how}")
    return known.index(name)


def named(options: Sequence[str], latency: str) -> str:
    """The first, the middle or the last."""
    return options[(len(options) - 1) * LATENCIES.index(latency) // 2]


def by_latency(latency: str, agents: Sequence[str]) -> tuple[str, str]:
    """The policy for low, medium or high of a run with such an agent, and what there is to say about it."""
    if not agents:
        name = named(FIXED, latency)
        return name, f"this run has no agent: {latency} is {name}"
    name = named(agents, latency)
    return name, "" if len(agents) > 1 else f"this run has one latency, {name}"
