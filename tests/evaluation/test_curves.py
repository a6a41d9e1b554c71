"""Curves: seeds are one result, all other evaluations stay apart. Their figure: a colour for each system."""

import dataclasses
from pathlib import Path

import pytest

from tests.helpers.evaluations import make
from whilst.evaluation.curves import Point, Result, group_seeds, interpolate
from whilst.evaluation.figure import COLOURS, GREY, MAX_LINES, Line, _colours, choose, draw
from whilst.evaluation.record import Record
from whilst.evaluation.tables import NONE


def changed(record: Record, section: str, name: str, value: object) -> Record:
    settings = record.settings | {section: record.settings[section] | {name: value}}
    return dataclasses.replace(record, settings=settings)


def test_mean_and_deviation_over_seeds() -> None:
    points = [(1, 20), (2, 26), (6, 23)]
    records = [make("bs-simt", "agent-1", al, bleu, seed=seed) for seed, (al, bleu) in enumerate(points)]
    (result,) = group_seeds(records)
    assert result.records == tuple(records)
    assert (result.al, result.bleu, result.mean("sentences")) == (3, 23, 100)
    assert (result.shown("bleu"), result.shown("al", 4)) == ("23.00 ± 3.00", f"3.0000 ± {7**0.5:.4f}")
    alone, table = Result((records[0],)), records[0].scores.to_table()
    assert {name: alone.mean(name) for name in table} == table
    assert alone.shown("bleu") == "20.00"


def test_only_seeds_and_folders_may_differ() -> None:
    one, two = (make("bs-simt", "agent-1", 3, 20, seed=seed) for seed in (1, 2))
    assert len(group_seeds([one, two])) == 1
    others = [
        make("bs-simt (multi-path)", "agent-1", 3, 20, seed=2),
        make("bs-simt", "agent-3", 3, 20, seed=2),
        make("bs-simt", "agent-1.threshold-0.4", 3, 20, seed=2),
        make("bs-simt", "agent-1", 3, 20, seed=2, steps=7),
        make("bs-simt", "agent-1", 3, 20, seed=2, split="valid"),
        changed(two, "search", "intervals", [[1, 5]]),
        dataclasses.replace(two, reference_sha256="other"),
        dataclasses.replace(two, scores=dataclasses.replace(two.scores, signatures={"bleu": "other"})),
    ]
    for other in others:
        assert [result.records for result in group_seeds([one, other])] == [(one,), (other,)]


def test_records_without_a_checksum_of_the_dataset_join_the_only_one() -> None:
    old, one, two = (make("bs-simt", "agent-1", 3, 20, seed=seed) for seed in (1, 2, 3))
    new = [dataclasses.replace(record, origin={"dataset_sha256": "a"}) for record in (one, two)]
    assert [len(result.records) for result in group_seeds([old, *new])] == [3]
    other = dataclasses.replace(two, origin={"dataset_sha256": "b"})
    assert [len(result.records) for result in group_seeds([old, new[0], other])] == [1, 1, 1]


def test_the_seed_of_a_later_stage_counts_too() -> None:
    one = make("bs-simt", "agent-1", 3, 20)
    other = changed(one, "search", "train", {"steps": 100, "seed": 5})
    assert len(group_seeds([one, dataclasses.replace(other, model_sha256="other")])) == 1
    assert len(group_seeds([one, dataclasses.replace(other, agent_sha256="other")])) == 1


def test_the_same_weights_are_no_second_seed() -> None:
    """Such as a multi-path model whose agent was trained twice, under wait-k."""
    one = make("multi-path", "wait-1", 3, 20)
    assert len(group_seeds([one, changed(one, "search", "train", {"steps": 100, "seed": 5})])) == 2


def test_settings_that_change_no_result_do_not_matter() -> None:
    one, two = (make("bs-simt", "agent-1", 3, 20, seed=seed) for seed in (1, 2))
    other = changed(changed(two, "train", "save_every", 7), "evaluate", "batch", 3)
    other = changed(changed(other, "train", "compile", False), "search", "train", two.settings["search"]["train"])
    assert len(group_seeds([one, other])) == 1
    wait = [make("multi-path", "wait-1", 3, 20, seed=seed) for seed in (1, 2)]
    later = [wait[0], changed(wait[1], "search", "slope", "one")]
    assert len(group_seeds(later)) == 1, "settings of a later stage"


def test_the_same_seed_twice_is_no_second_seed() -> None:
    one, two = (make("bs-simt", "agent-1", 3, 20, seed=seed) for seed in (1, 2))
    assert [len(result.records) for result in group_seeds([one, one, two])] == [2, 1]


def test_what_one_seed_lacks_has_no_mean() -> None:
    (result,) = group_seeds([make("a", "wait-1", 3, 20, seed=1), make("a", "wait-1", 3, None, seed=2)])
    assert result.bleu is None
    assert result.shown("bleu") == NONE


@pytest.mark.parametrize(
    ("policy", "parts"),
    [
        ("wait-3", ("wait", "", "s", False)),
        ("agent-1.threshold-0.4", ("agent", "threshold-0.4", "s, threshold-0.4", False)),
        ("full", ("full", "", "s", True)),
        ("full.half", ("full", "half", "s, half", True)),
    ],
)
def test_a_policys_name_says_what_it_is(policy: str, parts: tuple[str, str, str, bool]) -> None:
    result = Result((make("s", policy, 1, 2),))
    assert (result.kind, result.variant, result.name, result.is_full) == parts


def test_a_change_and_the_weight_of_latency_tell_rows_and_curves_apart() -> None:
    gru = make("bs-simt", "agent-1.threshold-0.4", 1, 2)
    bold = Result((dataclasses.replace(gru, settings=gru.settings | {"agent": {"kind": "gru"}}),))
    assert (bold.title, bold.point) == ("BS-SiMT, ours, fine-tuned, agent gru", "agent-1.threshold-0.4")
    assert bold.variant == "agent gru, threshold-0.4"
    assert bold.name == "BS-SiMT, ours, fine-tuned, agent gru, threshold-0.4"
    weak = make("mma", "mma", 1, 2)
    heavy = changed(weak, "objective", "latency_average", 0.4)
    assert [Result((record,)).point for record in (weak, heavy)] == ["mma λ=0.1", "mma λ=0.4"]


def test_a_record_from_before_a_setting_was_there_has_its_default() -> None:
    older, newer = make("bs-simt", "agent-1", 3, 28), make("bs-simt", "agent-1", 3, 29, seed=2)
    assert len(group_seeds([older, changed(newer, "evaluate", "precision", "single")])) == 1
    assert len(group_seeds([older, changed(newer, "evaluate", "precision", "half")])) == 2


def test_interpolation_is_exact_at_points_straight_between_and_silent_outside() -> None:
    points = [Point("a", 1.0, 10.0), Point("b", 3.0, 20.0), Point("c", 4.0, 18.0)]
    assert [interpolate(points, al) for al in (1.0, 1.5, 3.0, 3.5, 4.0)] == [10, 12.5, 20, 19, 18]
    assert interpolate(points, 0.9) is None
    assert interpolate(points, 4.1) is None
    assert interpolate(points[:1], 1.0) is None


RANKED = list(COLOURS)


def line(role: str, points: int = 2, **kind: bool) -> Line:
    return Line(role, [Point(f"k={n}", 1.0 + 3 * n, 20.0 + n) for n in range(points)], role, **kind)


def test_the_most_important_lines_are_drawn_and_one_of_the_paper() -> None:
    ours = [line(role) for role in reversed(RANKED)]
    assert [one.name for one in choose(ours)] == RANKED[:MAX_LINES]
    references = [line("mma", is_reference=True), line("bs-simt", is_reference=True)]
    chosen = choose([*references, *ours])
    assert [(one.name, one.is_reference) for one in chosen[-2:]] == [(RANKED[4], False), ("bs-simt", True)]
    assert choose([*references, ours[0]]) == [ours[0], references[1], references[0]]


def test_variants_and_lone_points_come_last() -> None:
    others = [line("mma", is_variant=True), line("bs-simt", points=1), line("align"), line("wait-k")]
    assert [one.name for one in choose(others)] == ["wait-k", "align", "bs-simt", "mma"]
    height = Line("full-sentence", [Point("", None, 30.0)], "full-sentence")
    assert choose([line("bs-simt", points=1), height])[0] is height


def test_a_system_has_its_colour_in_every_figure() -> None:
    assert _colours([line("mma"), line("bs-simt")]) == [COLOURS["mma"], COLOURS["bs-simt"]]
    twice = _colours([line("bs-simt"), line("bs-simt"), line("align"), line("bs-simt", is_reference=True)])
    assert (twice[0], twice[-1]) == (COLOURS["bs-simt"], GREY)
    assert len(set(twice)) == 4


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    lines = [line("bs-simt", 4), Line("full", [Point("", None, 19.0)], "full-sentence")]
    assert draw(lines, "title", tmp_path / "curve") == lines
    svg = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert "<!-- full -->" in svg, "its name in the legend"
    assert "<dc:date>" not in svg
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
