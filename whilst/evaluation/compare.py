"""Our results beside the paper's and beside each other at equal latency, and the agent beside its oracle.

Computes only. Curves are interpolated and never extrapolated: a missing figure is None.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import Curve, Result, interpolate, joined
from whilst.evaluation.identity import System

MULTI_PATH = System("multi-path")  # what BS-SiMT starts from, and has to exceed


def at_our_latency(result: Result, system: str | None) -> float | None:
    """BLEU of the paper's system at our AL; None without such a system or without points on both sides of it."""
    if system is None or system not in paper.systems(result.pair):
        return None
    points = paper.curve(result.pair, system)
    if system == paper.FULL:
        return points[0].bleu
    return None if result.is_full else interpolate(points, result.al)


def paper_system(result: Result) -> str | None:
    """The paper's name of our system; None if it has no such system, or other choices."""
    system = result.system
    if result.change or (system.fine_tuned and system.base != "multi-path"):
        return None
    return next((name for name, own in paper.SYSTEMS.items() if own == (system.name, result.kind)), None)


def minus(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else high - low


def agents(curves: Sequence[Curve]) -> list[Curve]:
    """The curves of BS-SiMT with an agent."""
    return [one for one in curves if one.kind == "agent" and one.system.name == paper.BEST]


@dataclass(frozen=True)
class AtLatency:
    """BLEU of all systems at the AL of one point that the paper prints for BS-SiMT."""

    system: str  # ours
    label: str  # the paper's interval
    figures: dict[str, float | None]  # by heading: AL, BLEU of each system, and differences of BLEU ("over …")


def at_equal_latency(curves: Sequence[Curve]) -> list[AtLatency]:
    """For each of our BS-SiMTs, every point of the paper's; none without an agent of ours or a curve of theirs.

    Of a variant only the points at which it has a BLEU.
    """
    rows = []
    for agent in agents(curves):
        if paper.BEST not in paper.systems(agent.pair):
            continue
        base = _closest(curves, agent, MULTI_PATH, "wait", agent.first.options)
        others = agent, base, _diagonal(curves, agent), _oracle(curves, agent)
        their_base = paper.curve(agent.pair, paper.BASE)
        for point in paper.curve(agent.pair, paper.BEST):
            ours, multi_path, diagonal, oracle = (one.at(point.al) if one else None for one in others)
            figures = {
                "AL": point.al,
                "paper": point.bleu,
                "ours": ours,
                "over paper": minus(ours, point.bleu),
                "multi-path": multi_path,
                "over it": minus(ours, multi_path),
                "over diagonal": minus(ours, diagonal),
                "paper over its": minus(point.bleu, interpolate(their_base, point.al)),
                "oracle": oracle,
            }
            if ours is not None or not agent.is_variant:
                rows.append(AtLatency(agent.name, point.label, figures))
    return rows


def _closest(curves: Sequence[Curve], agent: Curve, system: System, kind: str, variant: str) -> Curve | None:
    """The curve of this system, policy and variant; of several, that whose recipe is closest to the agent's."""
    wanted = system, kind, variant
    return agent.closest(one for one in curves if (one.system, one.kind, one.first.variant) == wanted)


def _diagonal(curves: Sequence[Curve], agent: Curve) -> Curve | None:
    """The control, a fixed diagonal: of the same system, changed or as usual, else of multi-path."""
    change, options = agent.first.change, agent.first.options
    own, base = (replace(system, policy="diagonal") for system in (agent.system, MULTI_PATH))
    choices = (own, joined(change, options)), (own, options), (base, options)
    found = (_closest(curves, agent, system, "diagonal", variant) for system, variant in choices)
    return next(filter(None, found), None)


def _oracle(curves: Sequence[Curve], agent: Curve) -> Curve | None:
    """Only of the same system with the same changes."""
    variant = joined(agent.first.change, agent.first.options)
    return _closest(curves, agent, replace(agent.system, policy="oracle"), "oracle", variant)


@dataclass(frozen=True)
class Gap:
    """The agent under one interval, and how far it is below the searched reads themselves."""

    system: str  # ours
    agent: Result
    oracle: Result | None  # under the same interval
    bleu: float | None  # oracle minus agent
    is_at_equal_latency: bool  # with the oracle's curve at the agent's AL; otherwise with its point


def gaps(curves: Sequence[Curve]) -> list[Gap]:
    """For each of our BS-SiMTs with an oracle, every interval of its agent by rising AL.

    Of a variant only those with a gap.
    """
    rows = []
    for curve in agents(curves):
        oracles = _oracle(curves, curve)
        if oracles is None:
            continue
        for agent in curve.results:
            oracle, level = oracles.result(agent.label), oracles.at(agent.al)
            other = oracle.bleu if level is None and oracle else level
            if other is not None or not curve.is_variant:
                rows.append(Gap(curve.name, agent, oracle, minus(other, agent.bleu), level is not None))
    return rows
