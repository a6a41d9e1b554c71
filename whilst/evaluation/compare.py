"""Our results beside the paper's and beside each other at equal latency, and the agent beside its oracle.

Computes only; how it is shown stands in tables.py. A curve is read between its points and never beyond them:
a figure that cannot be read is None.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.identity import bare
from whilst.evaluation.paper_numbers import Point, interpolate
from whilst.evaluation.seeds import Result, joined

FULL = "full-sentence"  # our name of what the paper calls offline
BASE = "multi-path"  # what BS-SiMT starts from and has to beat


@dataclass(frozen=True)
class Comparison:
    """The paper's BLEU at our AL (straight lines between its points), and how far ours is above it."""

    system: str
    bleu: float
    difference: float


def compare(result: Result, system: str) -> Comparison | None:
    """None where the paper has no such system, or no points on both sides of our AL."""
    ours, pair = result.bleu, result.records[0].pair
    if ours is None or system not in paper.systems(pair):
        return None
    points = paper.curve(pair, system)
    if system == paper.FULL:
        theirs: float | None = points[0].bleu
    else:
        theirs = None if result.is_full else interpolate(points, result.al)
    return None if theirs is None else Comparison(system, theirs, ours - theirs)


def paper_system(result: Result) -> str:
    """The paper's name of our system; what stands in brackets is ours, and what changes its choices is not its."""
    if result.change or result.kind == "diagonal" or "(from " in result.system:
        return result.name
    name = bare(result.system).lower()  # such as MMA under wait-k is not the paper's MMA
    if name == FULL:
        return paper.FULL if result.is_full else result.name
    return name if paper.KINDS.get(name, result.kind) == result.kind else result.name


def curve(chosen: Sequence[Result]) -> list[Point]:
    """The points of one curve; none where a point is there twice: a line through both means nothing."""
    if repeated(chosen):
        return []
    return [Point(result.policy, result.al, result.bleu) for result in chosen if result.bleu is not None]


def of_kind(results: Sequence[Result], system: str, kind: str, variant: str = "") -> list[Result]:
    """The system's results under such policies, by rising AL."""
    wanted = system, kind, variant
    chosen = [result for result in results if (result.system, result.kind, result.variant) == wanted]
    return sorted(chosen, key=lambda result: result.al)


def repeated(results: Sequence[Result]) -> list[str]:
    """Points that were measured several times: with several recipes, or with one seed twice."""
    counts = Counter(" ".join(result.cells) for result in results)
    return [name for name, count in counts.items() if count > 1]


def agents(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The systems and variants of BS-SiMT that an agent decides for."""
    found = [result for result in results if result.kind == "agent" and result.system.startswith(paper.BEST)]
    return list(dict.fromkeys((result.system, result.variant) for result in found))


def _minus(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else high - low


@dataclass(frozen=True)
class AtLatency:
    """BLEU of everybody at the AL of one point that the paper prints for BS-SiMT."""

    system: str  # ours, with its variant
    label: str  # the paper's interval
    al: float
    paper: float
    ours: float | None
    multi_path: float | None
    diagonal: float | None
    oracle: float | None
    paper_multi_path: float | None

    @property
    def over_paper(self) -> float | None:
        return _minus(self.ours, self.paper)

    @property
    def over_multi_path(self) -> float | None:
        return _minus(self.ours, self.multi_path)

    @property
    def over_diagonal(self) -> float | None:
        return _minus(self.ours, self.diagonal)

    @property
    def paper_over_multi_path(self) -> float | None:
        return _minus(self.paper, self.paper_multi_path)


def at_equal_latency(results: Sequence[Result]) -> list[AtLatency]:
    """For each of our BS-SiMTs, every point of the paper's; none without an agent of ours or a curve of theirs.

    Of a variant only the points at which it has a BLEU: there may be many of them.
    """
    pair = results[0].records[0].pair
    if paper.BEST not in paper.systems(pair):
        return []
    rows = []
    for system, variant in agents(results):
        agent = of_kind(results, system, "agent", variant)
        others = _base(results, agent[0]), _diagonal(results, agent[0]), _oracle(results, agent[0])
        curves = [*map(curve, (agent, *others)), paper.curve(pair, BASE)]
        for point in paper.curve(pair, paper.BEST):
            if (al := point.al) is None:
                continue
            values = [interpolate(points, al) for points in curves]
            if variant and values[0] is None:
                continue
            rows.append(AtLatency(agent[0].name, point.label, al, point.bleu, *values))
    return rows


def has_diagonal(rows: Sequence[AtLatency]) -> bool:
    return any(row.diagonal is not None for row in rows)


def _base(results: Sequence[Result], agent: Result) -> list[Result]:
    """Multi-path under wait-k: of the same name in brackets if there is one, as for `bs-simt (paper)`."""
    own = agent.system.replace(paper.BEST, BASE, 1)
    return of_kind(results, own, "wait", agent.decoding) or of_kind(results, BASE, "wait", agent.decoding)


def _diagonal(results: Sequence[Result], agent: Result) -> list[Result]:
    """The control, a fixed diagonal: of the same system, changed as it is or as usual, else of multi-path."""
    own, base = f"{agent.system} (diagonal)", f"{BASE} (diagonal)"
    places = (own, joined(agent.change, agent.decoding)), (own, agent.decoding), (base, agent.decoding)
    return next(filter(None, (of_kind(results, name, "diagonal", variant) for name, variant in places)), [])


def _oracle(results: Sequence[Result], agent: Result) -> list[Result]:
    """Of a system that changes something only its own: another's reads say nothing of it."""
    return of_kind(results, f"{agent.system} oracle", "oracle", joined(agent.change, agent.decoding))


@dataclass(frozen=True)
class Gap:
    """The agent under one interval, and what it loses by not knowing the searched reads."""

    agent: Result
    oracle: Result | None  # under the same interval
    at_agent: float | None  # BLEU on the oracle's curve at the agent's AL

    @property
    def bleu(self) -> float | None:
        """Oracle minus agent, at the agent's AL if `is_at_equal_latency`, else as the two points stand."""
        if self.at_agent is not None:
            return _minus(self.at_agent, self.agent.bleu)
        return _minus(self.oracle.bleu if self.oracle else None, self.agent.bleu)

    @property
    def is_at_equal_latency(self) -> bool:
        return self.at_agent is not None


def gaps(results: Sequence[Result]) -> list[Gap]:
    """For each of our BS-SiMTs that has an oracle, every interval of its agent by rising AL.

    Of a variant only where there is something to say.
    """
    rows = []
    for system, variant in agents(results):
        chosen = of_kind(results, system, "agent", variant)
        oracles = _oracle(results, chosen[0])
        points = curve(oracles)
        for agent in chosen if oracles else []:
            same = [oracle for oracle in oracles if oracle.argument == agent.argument]
            row = Gap(agent, same[0] if len(same) == 1 else None, interpolate(points, agent.al))
            if not variant or row.bleu is not None:
                rows.append(row)
    return rows
