"""What the paper's document shows beside the paper's own rows: our control, a point without a curve, late heads."""

from operator import attrgetter
from pathlib import Path

import pytest

from tests.helpers.paper_results import add_record, rows, section, write
from whilst.evaluation.curves import group_seeds, to_curves
from whilst.evaluation.record import read_records
from whilst.evaluation.report import our_lines

TRANSLATING = "iwslt15.en-vi/translation-based"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The diagonal and what is above and below it."""
    root = tmp_path / "results"
    for k, al, bleu in ((1, 2.0, 26.0), (3, 4.0, 28.0), (5, 6.0, 29.0)):
        add_record(root / "diagonal", "iwslt15.en-vi", "multi-path (diagonal)", f"diagonal-{k}", al, bleu)
        add_record(root / "multi-path", "iwslt15.en-vi", "multi-path", f"wait-{k}", al + 1, bleu)
    for first, al, bleu in ((1, 3.0, 28.5), (3, 7.0, 29.0)):
        add_record(root / "agent", "iwslt15.en-vi", "bs-simt (multi-path)", f"agent-{first}", al, bleu)
    add_record(root / "prefixes", TRANSLATING, "translation-based", "agent-translation", 3.5, 27.0)
    return root


def test_the_diagonal_stands_in_the_main_table_and_everything_is_over_it(results: Path, tmp_path: Path) -> None:
    text = write(results, tmp_path / "out")
    found = {(row[0], row[1]): row[2:] for row in rows(section(text, "Table 8"))}
    row = ["the paper's + teacher", "—", "—", "4.00", "28.00", "1", "—", "—", "—", "0.97", "—"]
    assert found["multi-path, diagonal", "3"] == row
    # The diagonal has 27.00 at 3.0, 28.50 at 5.0; it ends at 6.0.
    assert found["BS-SiMT, ours", "[1,5]"][-1] == "+1.50"
    assert found["BS-SiMT, ours", "[3,7]"][-1] == "—"
    assert found["multi-path", "3"][-1] == "-0.50"
    assert "diagonal/test.diagonal-3.json" in section(text, "Table 8")
    assert "- unknown words: names of the source in their place" in section(text, "Table 8")
    assert "- search: target belief, tolerance 0.03" in text
    assert "diagonal" not in section(text, "Measured")


def test_thresholds_are_the_curve_of_what_has_no_intervals(results: Path, tmp_path: Path) -> None:
    for threshold, al, bleu in ((0.3, 0.5, 21.0), (0.4, 1.5, 25.0)):
        policy, sets = f"agent-translation.threshold-{threshold}", f"evaluate.threshold={threshold}"
        add_record(results / "prefixes", TRANSLATING, "translation-based", policy, al, bleu, sets)
    text = write(results, tmp_path / "out")
    found = {row[1]: row[3:] for row in rows(section(text, "Table 8")) if row[0] == "translation-based"}
    # On the line from 21 at 0.5 to 25 at 1.5 there is 21.44 at the paper's AL.
    assert found["n/a"] == ["0.61", "21.92", "3.50", "27.00", "1", "21.44", "-0.48", "+5.08", "0.97", "-0.50"]
    assert found["0.3"][2:5] == ["0.50", "21.00", "1"]
    wanted = ["iwslt15.en-vi", "translation-based", "the paper's + teacher", "1 of 1", "-0.48"]
    assert wanted in [row[:5] for row in rows(text)]
    (line,) = our_lines(to_curves(group_seeds(read_records([results / "prefixes"]))))
    assert [point.label for point in sorted(line.points, key=attrgetter("al"))] == ["0.3", "0.4", "n/a"]
    assert not line.is_variant


def test_what_must_agree_is_said_by_the_name_of_the_curve(results: Path, tmp_path: Path) -> None:
    within = "agent.agreement=within", "search.intervals=[[3, 11]]"
    add_record(results / "within", TRANSLATING, "translation-based", "agent-translation", 3.6, 28.0, *within)
    text = write(results, tmp_path / "out")
    found = {row[0]: row[5:7] for row in rows(section(text, "Table 8")) if row[1] == "n/a"}
    assert found["translation-based"] == ["3.50", "27.00"]
    assert found["translation-based, within [3,11]"] == ["3.60", "28.00"]


def test_settings_that_only_one_has_are_told_by_their_table(results: Path, tmp_path: Path) -> None:
    """Fine-tuned and not: training has other settings altogether."""
    sets = 'start="runs/iwslt15.en-vi"', 'objective.name="search"', "agent.hidden=64"
    add_record(results / "tuned", "iwslt15.en-vi", "bs-simt", "agent-1", 3.0, 28.0, *sets)
    _, _, notes = section(write(results, tmp_path / "out"), "Table 8").partition("which differ in:\n\n")
    told = notes.partition("\n\n")[0].splitlines()
    assert "- `agent.hidden`: BS-SiMT, ours: 512; BS-SiMT, ours, fine-tuned: 64" in told
    assert "- `search.train`: BS-SiMT, ours, fine-tuned only" in told
    assert "- `train`: BS-SiMT, ours only" in told
    assert not [line for line in told if line.startswith(("- `train.", "- `search.train."))]
