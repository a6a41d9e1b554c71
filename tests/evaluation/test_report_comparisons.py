"""Comparisons: with the paper at our AL, of ours at the paper's AL, of agent and oracle; never beyond a curve."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.evaluations import make
from whilst.evaluation.curves import Curve, Result, group_seeds, to_curves
from whilst.evaluation.identity import System
from whilst.evaluation.record import Record
from whilst.evaluation.report import (
    MARK,
    Row,
    agents,
    at_equal_latency,
    at_our_latency,
    gaps,
    paper_system,
)


def one(system: str, policy: str, al: float, bleu: float | None) -> Result:
    return Result((make(system, policy, al, bleu),))


def curves_of(records: Sequence[Record]) -> list[Curve]:
    return to_curves(group_seeds(records))


TUNED = "BS-SiMT, ours, fine-tuned"
AGENT = [make("bs-simt", "agent-1", 3, 28), make("bs-simt", "agent-5", 7, 30)]
ORACLE = [make("bs-simt oracle", "oracle-1", 2, 29), make("bs-simt oracle", "oracle-5", 6, 31)]
WAIT = [make("multi-path", "wait-1", 3, 25), make("multi-path", "wait-9", 9, 28)]
WAIT += [make("multi-path", "full", 20, 29)]  # a height, and no part of the curve


def test_comparison_with_the_same_system_and_the_best() -> None:
    full, wait_3 = one("full-sentence", "full", 22.5, 30.1), one("multi-path", "wait-3", 4.69, 29.2)
    assert paper_system(wait_3) == "multi-path"
    assert at_our_latency(wait_3, "multi-path") == 27.99
    assert at_our_latency(wait_3, "bs-simt") == pytest.approx(28.0 + 1.05 * (4.69 - 3.4) / (5.39 - 3.4))
    assert at_our_latency(full, paper_system(full)) == 28.8
    assert at_our_latency(full, "bs-simt") is None
    assert at_our_latency(one("multi-path", "wait-1", 1.0, 20.0), "multi-path") is None
    assert at_our_latency(one("ours", "wait-1", 4.0, 20.0), "ours") is None


@pytest.mark.parametrize(
    ("system", "policy", "expected"),
    [
        ("bs-simt (multi-path)", "agent-1", "bs-simt"),
        ("bs-simt (multi-path) oracle", "oracle-1", "bs-simt oracle"),
        ("full-sentence", "full.half", "offline"),
        ("multi-path", "full", None),  # has no such point
        ("bs-simt", "wait-1", None),
    ],
)
def test_the_papers_name_of_our_system(system: str, policy: str, expected: str | None) -> None:
    assert paper_system(one(system, policy, 4.0, 20.0)) == expected


def take(row: Row, *names: str) -> tuple[float | None, ...]:
    return tuple(row.figures[name] for name in names)


def bleu_of(rows: Sequence[Row]) -> list[float | None]:
    """The gaps."""
    return [row.figures["gap"] for row in rows]


def test_equal_latency_reads_every_curve_at_the_papers_points() -> None:
    rows = at_equal_latency(curves_of(AGENT + ORACLE + WAIT))
    assert [(row.label, row.figures["AL"], row.figures["paper"]) for row in rows[:2]] == [
        ("[1,5]", 2.0, 28.13),
        ("[3,7]", 3.4, 28.0),
    ]
    first, second, third, fourth, last = rows
    assert take(second, "ours", "multi-path", "oracle") == pytest.approx((28.2, 25.2, 29.7))
    assert second.figures["over paper"] == pytest.approx(0.2)
    assert second.figures["over it"] == pytest.approx(3.0)
    assert second.figures["paper over its"] == pytest.approx(28 - (25.82 + 2.17 * 0.24 / 1.53))
    assert third.figures["ours"] == pytest.approx(28 + 2 * 2.39 / 4)
    # 2.0 is the oracle's first point; all else begins later. 7.29 and 9.07 lie beyond the agent and the oracle.
    assert take(first, "ours", "multi-path", "oracle", "over paper") == (None, None, 29.0, None)
    assert first.figures["paper over its"] is None
    assert take(fourth, "ours", "over it", "oracle") == (None, None, None)
    assert fourth.figures["multi-path"] == pytest.approx(25 + 3 * 4.29 / 6)
    assert take(last, "ours", "multi-path") == (None, None)


def test_equal_latency_uses_means_curves_of() -> None:
    more = [make("bs-simt", "agent-1", 3.2, 27, seed=2), make("bs-simt", "agent-5", 7, 32, seed=2)]
    row = at_equal_latency(curves_of(AGENT + more))[1]
    assert row.figures["ours"] == pytest.approx(27.5 + (31 - 27.5) * (3.4 - 3.1) / (7 - 3.1))
    assert take(row, "multi-path", "oracle") == (None, None)


@pytest.mark.parametrize("records", [WAIT, ORACLE, [make("bs-simt (wait-k)", "wait-1", 3, 20)]])
def test_nothing_without_an_agent(records: list[Record]) -> None:
    curves = curves_of(records)
    assert [agents(curves), at_equal_latency(curves), gaps(curves)] == [[], [], []]


def test_nothing_at_equal_latency_without_the_papers_curve() -> None:
    points = (("bs-simt", "agent-1", 28), ("bs-simt oracle", "oracle-1", 29))
    toy = [make(system, policy, 3, bleu, pair="toy.a-b") for system, policy, bleu in points]
    assert at_equal_latency(curves_of(toy)) == []
    assert bleu_of(gaps(curves_of(toy))) == [1.0]


def test_systems_stand_apart_with_their_own_oracle() -> None:
    named = [
        make("bs-simt (multi-path)", "agent-1", 3, 20),
        make("bs-simt (multi-path)", "agent-5", 7, 22),
        make("bs-simt (multi-path) oracle", "oracle-1", 2, 21),
        make("bs-simt (multi-path) oracle", "oracle-5", 6, 23),
    ]
    curves = curves_of(AGENT + named + ORACLE + WAIT)
    systems = System("bs-simt", "multi-path", True), System("bs-simt", "multi-path")
    assert [(own.system, own.first.variant) for own in agents(curves)] == [(system, "") for system in systems]
    rows = [row for row in at_equal_latency(curves) if row.label == "[3,7]"]
    assert [row.system for row in rows] == [TUNED, "BS-SiMT, ours"]
    assert [row.figures["ours"] for row in rows] == pytest.approx([28.2, 20.2])
    assert [row.figures["oracle"] for row in rows] == pytest.approx([29.7, 21.7])
    assert [row.figures["multi-path"] for row in rows] == pytest.approx([25.2, 25.2])


def test_another_threshold_is_another_curve() -> None:
    bolder = [make("bs-simt", f"agent-{n}.threshold-0.4", al, 20) for n, al in ((1, 2.5), (5, 6.0))]
    rows = at_equal_latency(curves_of(AGENT + bolder))
    at = {row.system: row.figures["ours"] for row in rows if row.label == "[3,7]"}
    assert at == pytest.approx({TUNED: 28.2, f"{TUNED}, threshold-0.4": 20.0})


def test_of_a_variant_only_what_can_be_compared_is_kept() -> None:
    bolder = [make("bs-simt", f"agent-{n}.threshold-0.4", al, 20) for n, al in ((1, 2.5), (5, 6.0), (9, 8.0))]
    curves = curves_of(AGENT + bolder + ORACLE)
    rows = at_equal_latency(curves)
    usual = [row.label for row in rows if row.system == TUNED]
    assert usual == ["[1,5]", "[3,7]", "[5,9]", "[7,11]", "[9,13]"]
    assert [row.label for row in rows if row.system != TUNED] == ["[3,7]", "[5,9]", "[7,11]"]
    # Beyond the oracle's points, and it has none under that interval: the usual agent's row would stay.
    assert [gap.label for gap in gaps(curves) if gap.system == f"{TUNED}, threshold-0.4"] == ["[1,5]", "[5,9]"]
    lonely = make("bs-simt", "agent-9", 9, 20)
    assert bleu_of(gaps(curves_of([*AGENT, lonely, *ORACLE])))[-1] is None


def test_two_recipes_are_two_curves_and_each_is_compared_with_the_closest() -> None:
    both = 100, 7
    agent = [make("bs-simt (multi-path)", f"agent-{n}", n + 2, 28, steps=steps) for steps in both for n in (1, 5)]
    base = [make("multi-path", f"wait-{k}", k + 2, k + steps, steps=steps) for steps in both for k in (1, 5)]
    rows = [row for row in at_equal_latency(curves_of(agent + base)) if row.figures["ours"] is not None]
    assert [row.system for row in rows] == ["BS-SiMT, ours A"] * 2 + ["BS-SiMT, ours B"] * 2
    assert [row.figures["multi-path"] for row in rows] == pytest.approx([101.4, 103.39, 8.4, 10.39])
    twice = [make("bs-simt oracle", f"oracle-{n}", n + 1.5, 27, steps=7) for n in (1, 5)]
    assert bleu_of(gaps(curves_of([*AGENT, *twice, *ORACLE]))) == [1.5, 1.0]


def test_the_gap_is_measured_at_the_agents_latency_where_the_oracle_has_a_curve() -> None:
    first, second = gaps(curves_of(AGENT + ORACLE + WAIT))
    assert [(gap.label, gap.mark) for gap in (first, second)] == [("[1,5]", ""), ("[5,9]", MARK)]
    assert take(first, "agent AL", "agent BLEU", "oracle AL", "oracle BLEU") == (3, 28, 2, 29)
    assert first.figures["gap"] == pytest.approx(29.5 - 28)
    assert second.figures["gap"] == pytest.approx(31 - 30), "7 lies beyond the oracle: the points as they stand"
    (lonely,) = gaps(curves_of([make("bs-simt", "agent-3", 9, 28), *ORACLE]))
    assert take(lonely, "oracle AL", "gap") == (None, None)
    assert lonely.mark == ""


THREE = {"search": {"intervals": [[1, 3], [5, 7], [9, 11]], "train": {"steps": 100, "seed": 1}}}
GRU = {"agent": {"kind": "gru"}}


def changed(records: list[Record], change: dict[str, Any]) -> list[Curve]:
    """Curves of another recipe."""
    return curves_of([replace(record, settings=record.settings | change) for record in records])


def test_what_changes_a_choice_stands_beside_its_system_and_not_in_its_curve() -> None:
    usual = curves_of(AGENT + ORACLE + WAIT)
    narrow = [make("bs-simt", "agent-1", 2.5, 20), make("bs-simt", "agent-5", 6, 24)]
    curves = usual + changed(narrow, THREE)
    rows = at_equal_latency(curves)
    assert [row for row in rows if row.system == TUNED] == at_equal_latency(usual)
    own = next(row for row in rows if row.system == f"{TUNED}, intervals of 3")
    assert own.label == "[3,7]"
    assert take(own, "ours", "multi-path") == pytest.approx((20 + 4 * 0.9 / 3.5, 25.2))
    assert own.figures["oracle"] is None, "the oracle is another system's"
    assert gaps(curves) == gaps(usual)
    curves += changed(ORACLE, THREE)
    assert gaps(curves)[:2] == gaps(usual)
    assert [gap.system for gap in gaps(curves)[2:]] == [f"{TUNED}, intervals of 3"] * 2
    assert bleu_of(gaps(curves)[2:]) == pytest.approx([29.25 - 20, 31 - 24])


@pytest.mark.parametrize(
    "result",
    [
        changed([make("bs-simt", "agent-1", 4, 20)], GRU)[0].first,
        one("bs-simt (from scratch)", "agent-1", 4, 20),
        one("multi-path (diagonal)", "diagonal-3", 4, 20),
    ],
)
def test_what_the_paper_does_not_have_has_no_name_there(result: Result) -> None:
    assert at_our_latency(result, paper_system(result)) is None
    assert at_our_latency(result, "bs-simt") is not None


def setting(record: Record, **sections: dict[str, Any]) -> Record:
    return replace(record, settings=record.settings | sections)


def test_a_model_for_each_lambda_or_k_is_one_curve() -> None:
    points = [(0.4, 3.1, 25.0), (0.1, 4.5, 28.0), (0.05, 5.5, 30.0)]
    mma = [
        setting(make("mma", "mma", al, bleu), objective={"name": "mma", "latency_average": weight})
        for weight, al, bleu in points
    ]
    (curve,) = curves_of(mma)
    assert [(point.al, point.bleu) for point in curve.points] == [point[1:] for point in points]
    twice = setting(mma[0], train={"steps": 7})
    assert [(one.name, len(one.points)) for one in curves_of([*mma, twice])] == [("MMA A", 3), ("MMA B", 1)]
    wait = [setting(make("wait-k", f"wait-{k}", k, 20), objective={"name": "wait-k", "k": k}) for k in (1, 3)]
    (curve,) = curves_of(wait)
    assert len(curve.points) == 2


def test_the_diagonal_is_of_the_same_system_or_else_of_multi_path() -> None:
    base = [make("multi-path (diagonal)", f"diagonal-{k}", 1 + k, 20 + k) for k in (1, 5)]
    own = [make("bs-simt (diagonal)", f"diagonal-{k}", 1 + k, 24 + k) for k in (1, 5)]
    for few in ([], base[:1]):  # one point is no curve
        rows = at_equal_latency(curves_of(AGENT + WAIT + few))
        assert {row.figures["over diagonal"] for row in rows} == {None}
    for more, expected in ((base, 22.4), (base + own, 26.4)):
        curves = curves_of(AGENT + WAIT + more)
        rows = at_equal_latency(curves)
        assert rows[1].figures["over diagonal"] == pytest.approx(28.2 - expected)
        assert rows[1].figures["multi-path"] == pytest.approx(25.2), "it is no part of multi-path's curve"
        assert rows[0].figures["over diagonal"] is None, "ours begins later"
        curves += changed([make("bs-simt", "agent-1", 3, 20), make("bs-simt", "agent-5", 7, 24)], THREE)
        row = at_equal_latency(curves)[-2]
        assert row.figures["over diagonal"] == pytest.approx(20.4 - expected), "its translator is the same"
    curves += changed([make("bs-simt (diagonal)", f"diagonal-{k}", 1 + k, 14 + k) for k in (1, 5)], THREE)
    assert at_equal_latency(curves)[-2].figures["over diagonal"] == pytest.approx(20.4 - (15 + 3.4 - 2))
