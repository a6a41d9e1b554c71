"""Reports: the paper's numbers, the comparison with them, tables and figures."""

import json
from pathlib import Path

import pytest

from whilst import paper
from whilst.console import console
from whilst.errors import UserError
from whilst.figure import Line, _limits
from whilst.metrics import Scores
from whilst.report import compare, paper_system, print_table, report, select
from whilst.scoring import Record

SIGNATURE = {"bleu": "nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0"}


def make(system: str, policy: str, al: float, bleu: float | None, pair: str = "iwslt15.en-vi") -> Record:
    scores = Scores(100, 1, al, 1.4, al - 0.1, al + 0.2, 0.61, al + 0.4, bleu, bleu, bleu, SIGNATURE)
    name = f"{system}-{policy}.jsonl.xz"
    return Record(system, policy, pair, "test", scores, name, "a", "b", {}, "c", "whilst evaluate", 1.5, "cpu", {})


RECORDS = [
    make("full-sentence", "full", 22.5, 30.1),
    make("multi-path", "wait-3", 4.69, 29.2),
    make("multi-path", "wait-1", 3.16, 27.4),
    make("bs-simt", "[3,7]", 4.0, 28.9),
]


def test_the_papers_numbers_are_there() -> None:
    assert paper.pairs() == ["iwslt15.en-vi", "iwslt15.vi-en", "iwslt14.de-en", "iwslt14.en-de"]
    assert paper.curve("iwslt15.en-vi", "offline") == [paper.Point("", 22.41, 28.8)]
    assert paper.curve("iwslt15.en-vi", "bs-simt")[0] == paper.Point("[1,5]", 2.0, 28.13)
    for pair in paper.pairs():
        for system in paper.systems(pair):
            points = [point.al for point in paper.curve(pair, system) if point.al is not None]
            assert points == sorted(points)
    assert paper.ablations()["agent GRU"][1] == paper.Point("[5,9]", 5.18, 30.43)
    assert paper.systems("toy.a-b") == []
    with pytest.raises(UserError, match=r"no 'x' for 'iwslt15.en-vi', it has offline"):
        paper.curve("iwslt15.en-vi", "x")


def test_interpolation_is_exact_at_points_straight_between_and_silent_outside() -> None:
    points = [paper.Point("a", 1.0, 10.0), paper.Point("b", 3.0, 20.0), paper.Point("c", 4.0, 18.0)]
    assert [paper.interpolate(points, al) for al in (1.0, 1.5, 3.0, 3.5, 4.0)] == [10, 12.5, 20, 19, 18]
    assert paper.interpolate(points, 0.9) is None
    assert paper.interpolate(points, 4.1) is None
    assert paper.interpolate(points[:1], 1.0) is None


def test_comparison_with_the_same_system_and_the_best() -> None:
    full, wait_3, _, _ = RECORDS
    same = compare(wait_3, paper_system(wait_3))
    assert same is not None
    assert (same.system, same.bleu) == ("multi-path", 27.99)
    assert same.difference == pytest.approx(29.2 - 27.99)
    best = compare(wait_3, "bs-simt")
    assert best is not None
    assert best.bleu == pytest.approx(28.0 + 1.05 * (4.69 - 3.4) / (5.39 - 3.4))
    offline = compare(full, paper_system(full))
    assert offline is not None
    assert offline.bleu == 28.8
    assert compare(full, "bs-simt") is None
    assert compare(make("multi-path", "wait-1", 1.0, 20.0), "multi-path") is None
    assert compare(make("ours", "wait-1", 4.0, 20.0), "ours") is None
    assert paper_system(make("multi-path (seed 2)", "wait-1", 4.0, 20.0)) == "multi-path"


def test_report_writes_table_data_and_curves_the_same_every_time(tmp_path: Path) -> None:
    written = report(RECORDS, tmp_path / "one")
    report(RECORDS, tmp_path / "two")
    assert [path.name for path in written] == ["report.md", "report.json", "curve.png", "curve.svg"]
    for path in written:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    markdown = (tmp_path / "one" / "report.md").read_text()
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("|")[2].strip() for row in rows[2:]] == ["wait-1", "wait-3", "[3,7]", "full"]
    assert "27.99 (+1.21)" in rows[3]
    assert SIGNATURE["bleu"] in markdown
    table = json.loads((tmp_path / "one" / "report.json").read_text())
    assert table["evaluations"][1]["paper"] == {"system": "multi-path", "bleu": 27.99, "difference": 1.21}
    assert (tmp_path / "one" / "curve.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "one" / "curve.svg").read_text()
    assert "<dc:date>" not in svg
    assert svg.count("#0072b2") > 3  # our first system is drawn


def test_a_pair_that_the_paper_lacks_has_no_reference(tmp_path: Path) -> None:
    report([make("multi-path", "wait-1", 1.0, 60.0, pair="toy.a-b")], tmp_path)  # one point alone is drawn as well
    assert "paper, bs-simt" not in (tmp_path / "report.md").read_text()


def test_the_axes_hold_all_of_ours_but_not_a_far_lone_reference() -> None:
    ours = [Line("a", [("k=1", 1.0, 40.0)]), Line("full", [("full", None, 45.0)])]
    references = [Line("b", [("", 2.0, 30.0), ("", 5.0, 35.0)]), Line("c", [("", -9.0, 1.0)])]
    (left, right), (low, high) = _limits(ours, references)
    assert -1 < left < 1
    assert 5 < right < 7
    assert 20 < low < 30
    assert 45 < high < 50


def test_only_what_compares_is_put_together(tmp_path: Path) -> None:
    mixed = [*RECORDS, make("multi-path", "wait-1", 1.0, 60.0, pair="toy.a-b")]
    with pytest.raises(UserError, match=r"different texts do not compare: iwslt15.en-vi test, toy.a-b test"):
        select(mixed, None)
    assert len(select(mixed, "toy.a-b")) == 1
    with pytest.raises(UserError, match=r"no evaluation of x; there are evaluations of iwslt15.en-vi"):
        select(RECORDS, "x")
    with pytest.raises(UserError, match="has no BLEU"):
        report([make("multi-path", "wait-1", 1.0, None)], tmp_path)


@pytest.mark.parametrize("width", [80, 140])
def test_the_terminal_table_never_cuts_a_figure(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_force_terminal", True)
    monkeypatch.setattr(console, "_width", width)
    print_table(select(RECORDS, None))
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "29.20" in printed
    assert "[3,7]" in printed  # brackets are text, not markup
    assert ("chrF" in printed) == (width == 140)
