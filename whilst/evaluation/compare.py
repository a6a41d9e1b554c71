"""Our results beside the paper's and beside each other at equal latency, and the agent beside its oracle.

Computes only; tables.py shows it. Curves are interpolated and never extrapolated: a missing figure is None.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import Point, Result, interpolate, joined
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


def curve(chosen: Sequence[Result]) -> list[Point]:
    """The points of one curve; none if a point occurs twice, since a line through both has no meaning."""
    if repeated(chosen):
        return []
    return [Point(result.label, result.al, result.bleu) for result in chosen if result.bleu is not None]


def of_kind(results: Sequence[Result], system: System, kind: str, variant: str = "") -> list[Result]:
    """The system's results under policies of this kind, by rising AL."""
    wanted = system, kind, variant
    chosen = [result for result in results if (result.system, result.kind, result.variant) == wanted]
    return sorted(chosen, key=lambda result: result.al)


def repeated(results: Sequence[Result]) -> list[str]:
    """Points that occur several times: with several recipes, or with one seed twice."""
    counts = Counter(" ".join(result.cells) for result in results)
    return [name for name, count in counts.items() if count > 1]


def agents(results: Sequence[Result]) -> list[list[Result]]:
    """The curves of BS-SiMT with an agent: each system and variant, by rising AL."""
    found = [one for one in results if one.kind == "agent" and one.system.name == paper.BEST]
    curves = dict.fromkeys((one.system, one.variant) for one in found)
    return [of_kind(results, system, "agent", variant) for system, variant in curves]


def minus(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else high - low


@dataclass(frozen=True)
class AtLatency:
    """BLEU of all systems at the AL of one point that the paper prints for BS-SiMT."""

    system: str  # ours, with its variant
    label: str  # the paper's interval
    figures: dict[str, float | None]  # AL, BLEU of each system, and differences of BLEU ("over_…")


def at_equal_latency(results: Sequence[Result]) -> list[AtLatency]:
    """For each of our BS-SiMTs, every point of the paper's; none without an agent of ours or a curve of theirs.

    Of a variant only the points at which it has a BLEU.
    """
    pair = results[0].pair
    if paper.BEST not in paper.systems(pair):
        return []
    rows = []
    for agent in agents(results):
        first = agent[0]
        base = of_kind(results, MULTI_PATH, "wait", first.options)
        others = base, _diagonal(results, first), _oracle(results, first)
        curves = [*map(curve, (agent, *others)), paper.curve(pair, paper.BASE)]
        for point in paper.curve(pair, paper.BEST):
            ours, multi_path, diagonal, oracle, their_base = (interpolate(points, point.al) for points in curves)
            figures = {
                "al": point.al,
                "paper": point.bleu,
                "ours": ours,
                "over_paper": minus(ours, point.bleu),
                "multi_path": multi_path,
                "over_multi_path": minus(ours, multi_path),
                "diagonal": diagonal,
                "over_diagonal": minus(ours, diagonal),
                "paper_over_its_multi_path": minus(point.bleu, their_base),
                "oracle": oracle,
            }
            if ours is not None or not first.variant:
                rows.append(AtLatency(first.name, point.label, figures))
    return rows


def has_diagonal(rows: Sequence[AtLatency]) -> bool:
    return any(row.figures["diagonal"] is not None for row in rows)


def _diagonal(results: Sequence[Result], agent: Result) -> list[Result]:
    """The control, a fixed diagonal: of the same system, changed or as usual, else of multi-path."""
    own, base = (replace(system, policy="diagonal") for system in (agent.system, MULTI_PATH))
    choices = (own, joined(agent.change, agent.options)), (own, agent.options), (base, agent.options)
    return next(filter(None, (of_kind(results, system, "diagonal", variant) for system, variant in choices)), [])


def _oracle(results: Sequence[Result], agent: Result) -> list[Result]:
    """Only of the same system with the same changes."""
    own = replace(agent.system, policy="oracle")
    return of_kind(results, own, "oracle", joined(agent.change, agent.options))


@dataclass(frozen=True)
class Gap:
    """The agent under one interval, and how far it is below the searched reads themselves."""

    agent: Result
    oracle: Result | None  # under the same interval
    bleu: float | None  # oracle minus agent
    is_at_equal_latency: bool  # with the oracle's curve at the agent's AL; otherwise with its point


def gaps(results: Sequence[Result]) -> list[Gap]:
    """For each of our BS-SiMTs with an oracle, every interval of its agent by rising AL.

    Of a variant only those with a gap.
    """
    rows = []
    for curve_of_agent in agents(results):
        oracles = _oracle(results, curve_of_agent[0])
        points = curve(oracles)
        for agent in curve_of_agent if oracles else []:
            same = [oracle for oracle in oracles if oracle.label == agent.label]
            oracle = same[0] if len(same) == 1 else None
            level = interpolate(points, agent.al)
            other = oracle.bleu if level is None and oracle else level
            if other is not None or not agent.variant:
                rows.append(Gap(agent, oracle, minus(other, agent.bleu), level is not None))
    return rows
