"""What the paper's document shows beside the paper's own rows: our control, a point without a curve, late heads."""

import shutil
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import pytest

from tests.helpers.kept_results import RECIPES, keep, rows, section, write
from whilst.core.errors import UserError
from whilst.decoding.monotonic_heads import Head, write_heads
from whilst.evaluation.curves import over_seeds, to_curves
from whilst.evaluation.figure import Line
from whilst.evaluation.record import read_records, records_in
from whilst.evaluation.report import our_lines
from whilst.research.paper import tables as paper_tables
from whilst.research.paper.provenance import read_recipes
from whilst.research.paper.shelf import Shelf

TRANSLATING = "iwslt15.en-vi/translation-based"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The diagonal and what is above and below it."""
    root = tmp_path / "results"
    for k, al, bleu in ((1, 2.0, 26.0), (3, 4.0, 28.0), (5, 6.0, 29.0)):
        keep(root / "diagonal", "iwslt15.en-vi", "multi-path (diagonal)", f"diagonal-{k}", al, bleu)
        keep(root / "multi-path", "iwslt15.en-vi", "multi-path", f"wait-{k}", al + 1, bleu)
    for first, al, bleu in ((1, 3.0, 28.5), (3, 7.0, 29.0)):
        keep(root / "agent", "iwslt15.en-vi", "bs-simt (multi-path)", f"agent-{first}", al, bleu)
    keep(root / "prefixes", TRANSLATING, "translation-based", "agent-translation", 3.5, 27.0)
    return root


def test_the_diagonal_stands_in_the_main_table_and_everything_is_over_it(results: Path, tmp_path: Path) -> None:
    text = write(results, tmp_path / "out")
    found = {(row[0], row[1]): row[2:] for row in rows(section(text, "Table 8"))}
    row = ["the paper's + teacher", "—", "—", "4.00", "28.00", "1", "—", "—", "—"]
    assert found["multi-path (diagonal)", "3"] == row
    # The diagonal has 27.00 at 3.0, 28.50 at 5.0; it ends at 6.0.
    assert found["bs-simt, not fine-tuned", "[1,5]"][-1] == "+1.50"
    assert found["bs-simt, not fine-tuned", "[3,7]"][-1] == "—"
    assert found["multi-path", "3"][-1] == "-0.50"
    assert "diagonal/test.diagonal-3.json" in section(text, "Table 8")
    assert "- unknown words: names of the source in their place" in section(text, "Table 8")
    assert "- search: target belief, tolerance 0.03" in text
    assert "diagonal" not in section(text, "Measured")
    assert "\nNot run on iwslt15.vi-en: multi-path (diagonal) 3, 5, 7, 9.\n" in section(text, "Table 9")


def test_the_diagonal_is_drawn(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def draw(lines: Sequence[Line], *_: object) -> None:
        drawn.extend(line.name for line in lines if not line.is_reference)

    monkeypatch.setattr(paper_tables, "draw", draw)
    shelf = Shelf(to_curves(over_seeds(records_in(results).values()))[0], read_recipes(RECIPES), tmp_path)
    paper_tables.curves("iwslt15.en-vi", shelf)
    assert drawn == ["multi-path", "multi-path (diagonal)", "translation-based", "bs-simt, not fine-tuned"]


def test_a_point_alone_compares_with_the_other_curves_at_its_latency(results: Path, tmp_path: Path) -> None:
    text = write(results, tmp_path / "out")
    table = section(text, "Table 8")
    assert "ours 27.00 at AL 3.50, the paper's 21.92 at 0.61; +5.08 BLEU and +2.89 AL." in table
    found = {row[0]: row[1:] for row in rows(table) if len(row) == 3}
    assert found["our multi-path"] == ["26.50", "+0.50"]
    assert found["our multi-path (diagonal)"] == ["27.50", "-0.50"]
    assert found["our bs-simt, not fine-tuned"] == ["28.56", "-1.56"]
    assert found["the paper's bs-simt"] == ["28.05", "-1.05"]  # 28.00 at 3.40, 29.05 at 5.39
    assert "the paper's translation-based" not in found
    wanted = ["iwslt15.en-vi", "translation-based", "the paper's + teacher", "no curve"]
    assert wanted in [row[:4] for row in rows(text)]


def test_thresholds_are_the_curve_of_what_has_no_intervals(results: Path, tmp_path: Path) -> None:
    for threshold, al, bleu in ((0.3, 0.5, 21.0), (0.4, 1.5, 25.0)):
        policy, sets = f"agent-translation.threshold-{threshold}", f"evaluate.threshold={threshold}"
        keep(results / "prefixes", TRANSLATING, "translation-based", policy, al, bleu, sets)
    text = write(results, tmp_path / "out")
    found = {row[1]: row[3:] for row in rows(section(text, "Table 8")) if row[0] == "translation-based"}
    # On the line from 21 at 0.5 to 25 at 1.5 there is 21.44 at the paper's AL.
    assert found["n/a"] == ["0.61", "21.92", "3.50", "27.00", "1", "21.44", "-0.48", "-0.50"]
    assert found["0.3"][2:5] == ["0.50", "21.00", "1"]
    wanted = ["iwslt15.en-vi", "translation-based", "the paper's + teacher", "1 of 1", "-0.48"]
    assert wanted in [row[:5] for row in rows(text)]
    assert "ours 27.00 at AL 3.50, the paper's 21.92 at 0.61" in text, "as before"
    assert "our translation-based" not in {row[0] for row in rows(section(text, "Table 8"))}, "it is no other"
    (line,) = our_lines(over_seeds(read_records([results / "prefixes"])))
    assert [point.label for point in sorted(line.points, key=attrgetter("al"))] == ["0.3", "0.4", "n/a"]
    assert not line.is_variant


def test_what_must_agree_is_said_by_the_name_of_the_curve(results: Path, tmp_path: Path) -> None:
    within = "agent.agreement=within", "search.intervals=[[3, 11]]"
    keep(results / "within", TRANSLATING, "translation-based", "agent-translation", 3.6, 28.0, *within)
    text = write(results, tmp_path / "out")
    found = {row[0]: row[5:7] for row in rows(section(text, "Table 8")) if row[1] == "n/a"}
    assert found["translation-based"] == ["3.50", "27.00"]
    assert found["translation-based, within [3,11]"] == ["3.60", "28.00"]


def test_what_must_agree_is_drawn_as_a_variant(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = "agent.agreement=within", "search.intervals=[[3, 11]]"
    keep(results / "a", TRANSLATING, "translation-based", "agent-translation", 3.6, 28.0, *within)
    drawn: list[Line] = []
    monkeypatch.setattr(paper_tables, "draw", lambda lines, *_: drawn.extend(lines))
    for _ in range(2):
        found, _ = to_curves(over_seeds(records_in(results).values()))
        paper_tables.curves("iwslt15.en-vi", Shelf(found, read_recipes(RECIPES), tmp_path))
        shutil.rmtree(results / "prefixes", ignore_errors=True)
    both = [line for line in drawn if line.name.startswith("translation-based")]
    within_name = "translation-based, within [3,11]"
    assert [(line.name, line.is_variant) for line in both] == [
        (within_name, True),
        ("translation-based", False),
        (within_name, False),
    ]
    assert both[0].points == both[2].points


def test_settings_that_only_one_has_are_told_by_their_table(results: Path, tmp_path: Path) -> None:
    """Fine-tuned and not: training has other settings altogether."""
    sets = 'start="runs/iwslt15.en-vi"', 'objective.name="search"', "agent.hidden=64"
    keep(results / "tuned", "iwslt15.en-vi", "bs-simt", "agent-1", 3.0, 28.0, *sets)
    _, _, notes = section(write(results, tmp_path / "out"), "Table 8").partition("which differ in:\n\n")
    told = notes.partition("\n\n")[0].splitlines()
    assert "- `agent.hidden`: bs-simt, not fine-tuned: 512; bs-simt: 64" in told
    assert "- `search.train`: bs-simt only" in told
    assert "- `train`: bs-simt, not fine-tuned only" in told
    assert not [line for line in told if line.startswith(("- `train.", "- `search.train."))]


def test_heads_that_keep_mma_waiting_are_told(tmp_path: Path) -> None:
    root = tmp_path / "results"
    for weight, al in ((0.4, 2.7), (0.1, 4.6)):
        sets = (f"objective.latency_average={weight}",)
        keep(root / str(weight), "iwslt15.en-vi/mma", "mma", "mma", al, 28.0, *sets)
    late = [Head(1, 1, 4.0, -1.0, 0.0, 0.0), Head(5, 2, 9.0, 3.4, 0.625, 0.1), Head(6, 1, 7.0, 2.5, 0.2, 0.1)]
    file = root / "0.4" / "test.mma.heads.json"
    write_heads(file, late)
    table = section(write(root, tmp_path / "out"), "Table 8")
    found = [row for row in rows(table) if row[-1].startswith("[test.mma.heads.json]")]
    assert [row[:-1] for row in found] == [["0.4", "3", "2", "layer 5, head 2", "+3.40", "62%"]]
    assert "the translator began with: `runs/iwslt15.en-vi`" in table
    file.write_text('{"heads": [{"layer": 1}]}', encoding="utf-8")
    with pytest.raises(UserError, match=r"test\.mma\.heads\.json: damaged"):
        write(root, tmp_path / "again")
