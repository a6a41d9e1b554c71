"""Tables and curves of any number of evaluations, set beside the paper's numbers.

Reads records only: no traces, no models. report.md is for people, report.json for programs.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whilst.core.config import build
from whilst.core.errors import UserError
from whilst.core.files import write_json, writing_text
from whilst.core.settings import Recipe
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.compare import (
    FULL,
    AtLatency,
    Gap,
    agents,
    at_equal_latency,
    compare,
    gaps,
    has_diagonal,
    paper_system,
    repeated,
)
from whilst.evaluation.families import Family, Filed, describe, differing
from whilst.evaluation.figure import draw
from whilst.evaluation.lines import Line
from whilst.evaluation.record import Record
from whilst.evaluation.seeds import Result, joined, over_seeds
from whilst.evaluation.tables import MARK, NAMES, NONE, agent_and_oracle, all_results, equal_latency, point_label

PAPER = "BS-SiMT paper"
FORMAT = 2
CHANGED = {"length": "intervals of {}"}  # all else is said by the name of the choice


def report(
    records: Sequence[Record],
    out: Path,
    pair: str | None = None,
    split: str = "test",
    times: Mapping[str, float] | None = None,
) -> list[Path]:
    """Write report.md, report.json, curve.png and curve.svg into `out`; returns what was written.

    `times`: seconds of the stages that made what was evaluated.
    """
    chosen = select(records, pair, split)
    results, pair = to_results(chosen), chosen[0].pair
    draw(our_lines(results), reference_lines(pair), f"{pair} · {split}", PAPER, out / "curve")
    write_json(out / "report.json", to_json(results) | ({"seconds": dict(times)} if times else {}))
    with writing_text(out / "report.md") as file:
        file.write(to_markdown(results) + _times_section(times or {}))
    return [out / name for name in ("report.md", "report.json", "curve.png", "curve.svg")]


def select(records: Sequence[Record], pair: str | None, split: str = "test") -> list[Record]:
    """Records of one pair and one split, by system, change and AL: figures of different texts do not compare."""
    chosen = [record for record in records if pair in (None, record.pair) and record.split == split]
    if not chosen:
        found = ", ".join(sorted({f"{record.pair} {record.split}" for record in records})) or "none at all"
        raise UserError(f"no evaluation of {pair or 'any pair'} {split}; there are evaluations of {found}")
    pairs = sorted({record.pair for record in chosen})
    if len(pairs) > 1:
        raise UserError(f"evaluations of different texts do not compare: {', '.join(pairs)}; choose with --pair")
    if len(texts := {(record.source_sha256, record.reference_sha256) for record in chosen}) > 1:
        raise UserError(f"{pairs[0]} {split}: evaluations of {len(texts)} texts, which do not compare; name fewer")
    order = list(dict.fromkeys(record.system for record in chosen))
    return sorted(
        chosen,
        key=lambda item: (Result((item,)).is_full, order.index(item.system), change_of(item), item.scores.al),
    )


def to_results(records: Sequence[Record]) -> list[Result]:
    """One for all seeds, each with what its recipe changes."""
    return [replace(result, change=change_of(result.records[0])) for result in over_seeds(records)]


def change_of(record: Record) -> str:
    """What makes its points another curve than the usual system's, such as `agent gru`; mostly nothing."""
    try:
        family, _, _ = describe(Filed(Path(record.trace), record))
    except UserError:  # not one of our recipes: nothing is known of it
        return ""
    if family.kind != Result((record,)).kind:  # a model for each k is one curve, a model under other k another
        return f"trained for k={build(Recipe, record.settings).objective.k}"
    # The base stands in the system's name.
    changes = {name: value for name, value in family.changes.items() if name != "base"}
    named = [CHANGED.get(name, f"{name} {{}}").format(value) for name, value in changes.items()]
    return joined(*named, family.agreement)


def our_lines(results: Sequence[Result]) -> list[Line]:
    """One line a system, with its variants; a variant of what is not there in its usual form is a system itself.

    What cannot be drawn, because it has no BLEU, is refused.
    """
    points: dict[tuple[str, str], list[tuple[str, float | None, float]]] = {}
    for result, curve in zip(results, _curves(results), strict=True):
        if result.bleu is None:
            traces = ", ".join(record.trace for record in result.records)
            raise UserError(f"{traces}: has no BLEU; score it with its reference first")
        al = None if result.is_full else result.al
        points.setdefault((result.system, curve), []).append((point_label(result), al, result.bleu))
    lines = []
    for (system, variant), own in points.items():
        if not variant:
            others = sorted(other for name, other in points if name == system and other)
            lines.append(Line(system, own, [Line(other, points[system, other]) for other in others]))
        elif (system, "") not in points:
            lines.append(Line(f"{system}, {variant}", own))
    return lines


def _curves(results: Sequence[Result]) -> list[str]:
    """The variant that each is drawn as. Where a point is there twice each model has a line of its own: one through
    points of several would go to and fro."""
    names = []
    for result in results:
        same = [other for other in results if other.name == result.name]
        weights = [other.records[0].model_sha256 for other in same]
        own, extra = result.records[0].model_sha256, ""
        if repeated(same) and len(set(weights)) < len(same):
            extra = "" if own == weights[0] else f"weights {own[:8]}"
        elif repeated(same):  # each point is a model, such as those of MMA
            extra = "again" if result.cells in [other.cells for other in same[: same.index(result)]] else ""
        names.append(joined(result.variant, extra))
    return names


def reference_lines(pair: str) -> list[Line]:
    lines = []
    for system in paper.systems(pair):
        is_full = system == paper.FULL
        points = [(point.label, None if is_full else point.al, point.bleu) for point in paper.curve(pair, system)]
        lines.append(Line(FULL if is_full else system, points))
    return lines


def to_json(results: Sequence[Result]) -> dict[str, Any]:
    """Everything that the tables show, and where it comes from."""
    return {
        "format": FORMAT,
        "pair": results[0].records[0].pair,
        "split": results[0].records[0].split,
        "evaluations": list(map(_row, results)),
        "at_equal_latency": _at_latencies(at_equal_latency(results)),
        "agent_and_oracle": list(map(_gap, gaps(results))),
    }


def _row(result: Result) -> dict[str, Any]:
    comparisons = (("paper", compare(result, paper_system(result))), ("paper_best", compare(result, paper.BEST)))
    return {
        **dict(zip(("system", "policy"), result.cells, strict=True)),
        "seeds": len(result.records),
        "scores": {name: _rounded(value, 4) for name, value in result.scores.items()},
        "deviations": {name: _rounded(value, 4) for name, value in result.deviations.items()},
        "signatures": dict(result.records[0].scores.signatures),
        **{
            key: item
            and {
                "system": item.system,
                "bleu": _rounded(item.bleu),
                "difference": _rounded(item.difference),
            }
            for key, item in comparisons
        },
        "traces": [
            {"trace": record.trace, "seconds": record.seconds, "device": record.device} for record in result.records
        ],
    }


def _at_latencies(rows: Sequence[AtLatency]) -> list[dict[str, Any]]:
    if not has_diagonal(rows):
        return list(map(_at_latency, rows))
    over = [{"diagonal": _rounded(row.diagonal), "over_diagonal": _rounded(row.over_diagonal)} for row in rows]
    return [_at_latency(row) | more for row, more in zip(rows, over, strict=True)]


def _at_latency(row: AtLatency) -> dict[str, Any]:
    return {
        "system": row.system,
        "interval": row.label,
        "al": row.al,
        "paper": row.paper,
        "ours": _rounded(row.ours),
        "over_paper": _rounded(row.over_paper),
        "multi_path": _rounded(row.multi_path),
        "over_multi_path": _rounded(row.over_multi_path),
        "paper_over_its_multi_path": _rounded(row.paper_over_multi_path),
        "oracle": _rounded(row.oracle),
    }


def _gap(row: Gap) -> dict[str, Any]:
    points = {
        name: {"al": _rounded(result.al), "bleu": _rounded(result.bleu)} if result else None
        for name, result in (("agent", row.agent), ("oracle", row.oracle))
    }
    return {
        "system": row.agent.name,
        "policy": row.agent.policy,
        "interval": point_label(row.agent),
        **points,
        "gap": _rounded(row.bleu),
        "gap_is_at_equal_latency": row.is_at_equal_latency,
    }


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def to_markdown(results: Sequence[Result]) -> str:
    """The tables with what their figures mean."""
    first = results[0].records[0]
    lines = [f"# {first.pair}, {first.split}", "", *all_results(results, NAMES).to_markdown(), ""]
    lines += ["![BLEU against average lagging](curve.svg)", ""]
    lines += [
        "AL and CW: model units, hypothesis length (the paper's convention). AL word, LAAL, AP and DAL:",
        "words, as SimulEval. BLEU: words as they stand, lower-cased (the paper's convention, on tokenised text).",
        "sacreBLEU: 13a, cased.",
        "",
    ]
    if paper.systems(first.pair):
        if paper.task(first.pair) != first.pair:
            lines += [f"**Trained on other text than the paper's**, tested as {paper.task(first.pair)}.", ""]
        lines += [
            "The paper's columns give its BLEU at our AL, on straight lines between the points that it prints,",
            f"and in brackets how far ours is above; {NONE} where our AL lies outside of its points.",
            "",
        ]
    if any(len(result.records) > 1 for result in results):
        lines += ["Several seeds: mean ± standard deviation (n - 1); whatever is compared is the mean.", ""]
    lines += [*warning(results), *_equal_latency_section(results), *_oracle_section(results)]
    records = [record for result in results for record in result.records]
    empty = sum(record.scores.empty for record in records)
    if empty:
        lines += [f"Outputs without a word, left out of the latency but not of the quality: {empty}.", ""]
    signatures = {(name, text) for record in records for name, text in record.scores.signatures.items()}
    lines += [f"- {name}: `{text}`" for name, text in sorted(signatures)]
    return "\n".join(lines).rstrip() + "\n"


def _equal_latency_section(results: Sequence[Result]) -> list[str]:
    rows = at_equal_latency(results)
    if not rows:
        return []
    has_variants = any(variant for _, variant in agents(results))
    note = ["Over diagonal: ours over a fixed diagonal, of the same system if there is one, else of multi-path."]
    note = note * has_diagonal(rows)
    note += ["Of variants only the rows that have a figure of ours are shown."] * has_variants
    return [
        "## At equal latency",
        "",
        *equal_latency(rows).to_markdown(),
        "",
        "BLEU at the AL of each point that the paper prints for BS-SiMT. Ours, multi-path (under wait-k) and",
        f"oracle are read off straight lines between our points; {NONE} where that AL lies outside of them.",
        "Over it: ours over our multi-path. Paper over its: the paper's BS-SiMT over the paper's multi-path.",
        *note,
        "",
    ]


def _oracle_section(results: Sequence[Result]) -> list[str]:
    rows = gaps(results)
    if not rows:
        return []
    lines = [
        "## Agent and oracle",
        "",
        *agent_and_oracle(rows).to_markdown(),
        "",
        "Gap: BLEU on the oracle's curve at the agent's AL, less the agent's.",
    ]
    if any(row.bleu is not None and not row.is_at_equal_latency for row in rows):
        lines += [f"{MARK}: that AL lies outside of the oracle's points, and the two points differ by this much."]
    return [*lines, ""]


def _times_section(times: Mapping[str, float]) -> str:
    if not times:
        return ""
    rows = [*times.items(), ("together", sum(times.values()))]
    lines = ["", "## Time", "", "| stage | seconds |", "|---|---:|"]
    lines += [f"| {name} | {seconds:,.1f} |" for name, seconds in rows]
    lines += ["", "From the binarised data to the end of each stage, validation and compiling counted."]
    return "\n".join(lines) + "\n"


def warning(results: Sequence[Result]) -> list[str]:
    """Two recipes under one name, or a seed twice, make no curve: one would look for a figure, or believe it."""
    lines = []
    if twice := ", ".join(repeated(results)):
        lines += [f"Measured several times, so nothing is read off their curves: {twice}.", ""]
    if mixed := ", ".join(_mixed(results)):
        lines += [f"Points of one curve whose recipes differ in more than the point: {mixed}.", ""]
    return lines


def _mixed(results: Sequence[Result]) -> list[str]:
    """Curves that join points of different recipes, and in brackets the settings in which those differ."""
    curves: dict[str, list[Family]] = {}
    for result in results:
        with contextlib.suppress(UserError):  # not one of our recipes: nothing is known of it
            family, _, _ = describe(Filed(Path(result.records[0].trace), result.records[0]))
            curves.setdefault(result.name, []).append(family)
    return [f"{name} ({', '.join(names)})" for name, group in curves.items() if (names := differing(group))]
