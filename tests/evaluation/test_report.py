"""Reports: the paper's numbers, tables in Markdown, JSON and the terminal, and the figure."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.evaluations import SIGNATURE, make
from whilst.cli.main import app
from whilst.core.errors import UserError
from whilst.evaluation import figure
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.figure import VARIANT, _by_system, _limits, _side_by_side, _text, draw
from whilst.evaluation.lines import COLOURS, Line, pale
from whilst.evaluation.placing import Array, Box, Label, dots, place
from whilst.evaluation.record import Record, write_record
from whilst.evaluation.report import our_lines, report, select
from whilst.evaluation.report_screen import print_comparisons, print_table
from whilst.evaluation.seeds import over_seeds

RECORDS = [
    make("full-sentence", "full", 22.5, 30.1),
    make("multi-path", "wait-3", 4.69, 29.2),
    make("multi-path", "wait-1", 3.16, 27.4),
    make("bs-simt", "[3,7]", 4.0, 28.9),
]
BOTH = [  # agent and oracle, with two seeds of the agent under the first interval
    *RECORDS[:3],
    make("bs-simt", "agent-3", 3.2, 28.4, seed=1),
    make("bs-simt", "agent-3", 3.4, 28.8, seed=2),
    make("bs-simt", "agent-5", 5.6, 29.4),
    make("bs-simt oracle", "oracle-3", 3.2, 29.5),
    make("bs-simt oracle", "oracle-5", 5.5, 30.5),
]
VARIED = [  # another threshold of the agent, one of them with more changed
    *BOTH,
    make("bs-simt", "agent-3.threshold-0.7", 4.1, 29.0),
    make("bs-simt", "agent-5.threshold-0.7", 6.2, 29.6),
    make("bs-simt", "agent-3.threshold-0.6", 3.9, 28.9),
    make("bs-simt", "agent-5.threshold-0.6", 5.9, 29.5),
    make("bs-simt", "agent-5.threshold-0.7.unknown-keep", 6.3, 29.1),
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
    assert "seeds" not in rows[0]
    assert "##" not in markdown, "without an agent there is nothing to compare at equal latency"
    assert table["at_equal_latency"] == table["agent_and_oracle"] == []
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


def test_labels_keep_off_our_lines_and_off_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[Box], list[Array], Box]] = []

    def watched(labels: Sequence[Label], lines: Sequence[tuple[Array, float]], frame: Box) -> list[Box | None]:
        boxes = place(labels, lines, frame)
        seen.append(([box for box in boxes if box], [line for line, weight in lines if weight > 1], frame))
        return boxes

    monkeypatch.setattr(figure, "place", watched)
    low = [("k=1", 2.9, 27.9), ("k=3", 4.5, 29.45), ("k=5", 6.2, 29.74), ("k=7", 8.0, 29.71)]
    high = [("[1,5]", 2.1, 28.3), ("[3,7]", 3.5, 29.1), ("[5,9]", 5.2, 29.75), ("[7,11]", 7.1, 29.8)]
    ours = [Line("a", [*low, ("full", None, 29.75)]), Line("b", high), Line("c", [("full", None, 30.2)])]
    draw(ours, [Line("d", [("", 2.0, 25.0), ("", 9.0, 28.0)])], "title", "paper", tmp_path / "curve")
    ((boxes, lines, frame),) = seen
    assert len(boxes) == 10
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])
    assert all(frame.holds(box) for box in boxes)
    assert len(lines) == 2 + 8 + 2 + 1, "curves, markers, heights and the empty curve of the last"
    assert sum(box.count(dots(line)) for box in boxes for line in lines) == 0


def test_only_what_compares_is_put_together(tmp_path: Path) -> None:
    mixed = [*RECORDS, make("multi-path", "wait-1", 1.0, 60.0, pair="toy.a-b")]
    with pytest.raises(UserError, match=r"different texts do not compare: iwslt15.en-vi, toy.a-b; choose"):
        select(mixed, None)
    assert len(select(mixed, "toy.a-b")) == 1
    with pytest.raises(UserError, match=r"no evaluation of x test; there are evaluations of iwslt15.en-vi test$"):
        select(RECORDS, "x")
    with pytest.raises(UserError, match="has no BLEU"):
        report([make("multi-path", "wait-1", 1.0, None)], tmp_path)


def rows_of(markdown: str, title: str) -> list[list[str]]:
    """The cells of the table below this heading."""
    lines = markdown.split(f"## {title}")[1].split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_equal_latency_and_oracle_in_markdown_and_json(tmp_path: Path) -> None:
    report(BOTH, tmp_path)
    markdown, table = (tmp_path / "report.md").read_text(), json.loads((tmp_path / "report.json").read_text())
    headings, _, *rows = rows_of(markdown, "At equal latency")
    assert headings[2:6] == ["AL", "paper", "ours", "over paper"]
    assert [row[1] for row in rows] == ["[1,5]", "[3,7]", "[5,9]", "[7,11]", "[9,13]"]
    # By hand: the mean of the seeds is (3.3, 28.6), the next point (5.6, 29.4); multi-path has (3.16, 27.4) and
    # (4.69, 29.2); the paper's multi-path at 3.4 is 25.82 + 2.17 * 0.24 / 1.53.
    expected = ["3.40", "28.00", "28.63", "+0.63", "27.68", "+0.95", "+1.84", "29.59"]
    assert rows[1] == ["bs-simt", "[3,7]", *expected]
    assert rows[2] == ["bs-simt", "[5,9]", "5.39", "29.05", "29.33", "+0.28", "—", "—", "+0.92", "30.45"]
    assert rows[4][4:] == ["—", "—", "—", "—", "+0.67", "—"]
    found = table["at_equal_latency"][1]
    assert (found["ours"], found["over_paper"], found["over_multi_path"]) == (28.63, 0.63, 0.95)
    assert (found["paper_over_its_multi_path"], found["oracle"]) == (1.84, 29.59)

    _, _, *rows = rows_of(markdown, "Agent and oracle")
    assert rows == [
        ["bs-simt", "[3,7]", "3.30", "28.60", "3.20", "29.50", "+0.94"],
        ["bs-simt", "[5,9]", "5.60", "29.40", "5.50", "30.50", "+1.10†"],
    ]
    assert "†: that AL lies outside" in markdown
    found = table["agent_and_oracle"][0]
    assert found["agent"] == {"al": 3.3, "bleu": 28.6}
    assert (found["gap"], found["gap_is_at_equal_latency"]) == (0.94, True)
    assert not table["agent_and_oracle"][1]["gap_is_at_equal_latency"]


def test_seeds_share_a_row_with_mean_and_deviation(tmp_path: Path) -> None:
    report(BOTH, tmp_path)
    markdown, table = (tmp_path / "report.md").read_text(), json.loads((tmp_path / "report.json").read_text())
    assert markdown.splitlines()[2].startswith("| system | policy | seeds | AL |")
    rows = [line for line in markdown.splitlines() if line.startswith("| bs-simt | agent")]
    assert len(rows) == 2
    assert rows[0].startswith("| bs-simt | agent-3 | 2 | 3.30 ± 0.14 |")
    assert "| 28.60 ± 0.28 |" in rows[0]
    assert "±" not in rows[1]
    found = next(item for item in table["evaluations"] if item["policy"] == "agent-3")
    assert (found["seeds"], found["scores"]["bleu"], found["deviations"]["bleu"]) == (2, 28.6, 0.2828)
    assert len(found["traces"]) == 2
    line = next(line for line in our_lines(over_seeds(BOTH)) if line.name == "bs-simt")
    assert [(label, round(al or 0, 2)) for label, al, _ in line.points] == [("[3,7]", 3.3), ("[5,9]", 5.6)]


def test_variants_are_lines_of_their_system() -> None:
    lines = our_lines(over_seeds(select(VARIED, None)))
    names = ["multi-path", "bs-simt", "bs-simt oracle", "full-sentence"]
    assert [line.name for line in lines] == names, "systems keep their order"
    variants = lines[1].variants
    assert [line.name for line in variants] == ["threshold-0.6", "threshold-0.7", "threshold-0.7.unknown-keep"]
    assert variants[1].points == [("[3,7]", 4.1, 29.0), ("[5,9]", 6.2, 29.6)]
    assert not any(line.variants for line in lines if line.name != "bs-simt")
    alone = [make("bs-simt", f"agent-3.threshold-0.{n}", 4.1, 29.0) for n in (6, 7)]
    lines = our_lines(over_seeds(alone))
    assert [line.name for line in lines] == ["bs-simt, threshold-0.6", "bs-simt, threshold-0.7"]


def test_the_figure_names_variants_under_their_system_and_labels_none_of_their_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def watched(labels: Sequence[Label], lines: Sequence[tuple[Array, float]], frame: Box) -> list[Box | None]:
        seen.append(len(labels))
        return place(labels, lines, frame)

    monkeypatch.setattr(figure, "place", watched)
    for out in ("one", "two"):
        report(VARIED, tmp_path / out)
    assert seen == [2 + 3 * 2] * 2, "two heights; multi-path, agent and oracle"
    for name in ("curve.svg", "curve.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    svg = (tmp_path / "one" / "curve.svg").read_text()
    texts = [text.strip() for text in re.findall("<!-- (.*?) -->", svg)]
    legend = texts[texts.index("whilst") + 1 :]
    assert legend[:3] == ["multi-path", "bs-simt", "… threshold-0.6"]
    assert legend[3:6] == ["… threshold-0.7", "… threshold-0.7.unknown-keep", "bs-simt oracle"]
    assert svg.count(pale(COLOURS[0], 0.4)) > 6, "three lines and their keys"


def test_a_label_that_could_not_be_read_is_left_out(tmp_path: Path) -> None:
    def texts(count: int) -> int:
        crowd = [Line(f"system {n}", [(f"k={n}", 3.0, 20.0)]) for n in range(count)]
        draw(crowd, [], "title", "", tmp_path / "curve")
        return (tmp_path / "curve.svg").read_text().count('<g id="text_')

    assert texts(8) - texts(4) == 4 * 2, "each a name and a key"
    assert texts(60) - texts(40) == 20, "each a key"


def test_without_references_each_system_has_a_column_of_the_legend(tmp_path: Path) -> None:
    variants = [Line(f"v{number}", [("", 2.0, 3.0), ("", 3.0, 3.0)]) for number in range(2)]
    points = [("", 1.0, 2.0), ("", 2.0, 3.0)]
    ours = [Line(f"s{number}", points, variants[: 2 - number]) for number in range(3)]
    draw(ours, [], "title", "paper", tmp_path / "curve")
    texts = [text.strip() for text in re.findall("<!-- (.*?) -->", (tmp_path / "curve.svg").read_text())]
    assert texts[texts.index("s0") :] == ["s0", "… v0", "… v1", "s1", "… v0", "s2"]
    keys = [_text(name) for name in ("s0", f"{VARIANT}v0", f"{VARIANT}v1", "s1", "s2")]
    assert _by_system(keys) == [keys[:3], keys[3:4], keys[4:]]


def test_long_names_stand_below_each_other() -> None:
    for length, columns in ((5, 4), (20, 3), (38, 2), (60, 1)):
        keys = [_text(name * length) for name in "abcde"]
        found = _side_by_side([[key] for key in keys])
        assert len(found) == columns
        assert {key for column in found for key in column} == set(keys)


def test_variants_keep_the_tables_readable(tmp_path: Path) -> None:
    note = "Of variants only the rows"
    markdown = "\n".join(to_lines(VARIED, tmp_path))
    _, _, *rows = rows_of(markdown, "At equal latency")
    found = [(row[0], row[1]) for row in rows if "threshold" in row[0]]
    assert found == [("bs-simt, threshold-0.6", "[5,9]"), ("bs-simt, threshold-0.7", "[5,9]")]
    assert [row[1] for row in rows if row[0] == "bs-simt"] == ["[1,5]", "[3,7]", "[5,9]", "[7,11]", "[9,13]"]
    assert note in markdown
    assert note not in "\n".join(to_lines(BOTH, tmp_path))


def test_a_label_that_had_to_go_far_is_led_to_its_point(tmp_path: Path) -> None:
    def leads(points: int) -> int:
        """Thin lines in the colour of the only system."""
        crowd = [(f"[{n},{n + 4}]", 5 + n / 100, 28.0 + n / 100) for n in range(points)]
        draw([Line("a", [("k=1", 2.0, 25.0), *crowd])], [], "title", "paper", tmp_path / "curve")
        return (tmp_path / "curve.svg").read_text().count(f"stroke: {COLOURS[0].lower()}; stroke-width: 0.8")

    assert leads(1) == 0
    assert leads(12) > 0


def test_two_recipes_under_one_name_are_no_curve(tmp_path: Path) -> None:
    other = make("multi-path", "wait-3", 4.2, 28.0, steps=7)
    report([*BOTH, other], tmp_path)
    markdown = (tmp_path / "report.md").read_text()
    assert rows_of(markdown, "At equal latency")[3][6:8] == ["—", "—"]
    assert "nothing is read off their curves: multi-path wait-3." in markdown
    report([other, make("multi-path", "wait-3", 4.2, 27.0)], tmp_path)
    assert "nothing is read off their curves: multi-path wait-3." in (tmp_path / "report.md").read_text(), "always"
    assert "several times" not in "".join(to_lines(BOTH, tmp_path))


def to_lines(records: list[Record], out: Path) -> list[str]:
    report(records, out)
    return (out / "report.md").read_text().splitlines()


def test_a_split_is_chosen_and_test_is_the_default(tmp_path: Path) -> None:
    valid = make("multi-path", "wait-1", 3.3, 25.0, split="valid")
    assert select([*RECORDS, valid], None) == select(RECORDS, None)
    assert select([*RECORDS, valid], None, "valid") == [valid]
    assert to_lines([*RECORDS, valid], tmp_path)[0] == "# iwslt15.en-vi, test"
    with pytest.raises(UserError, match=r"no evaluation of any pair valid; there are .* iwslt15.en-vi test$"):
        select(RECORDS, None, "valid")


@pytest.mark.parametrize(("words", "split"), [([], "test"), (["--split", "valid"], "valid")])
def test_the_command_takes_a_split(words: list[str], split: str, tmp_path: Path) -> None:
    files = [str(tmp_path / f"{name}.json") for name in ("test", "valid")]
    for file, name in zip(files, ("test", "valid"), strict=True):
        write_record(Path(file), make("multi-path", "wait-1", 3.3, 25.0, split=name))
    done = CliRunner().invoke(app, ["report", *files, "--out", str(tmp_path / "out"), *words])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "report.json").read_text())["split"] == split


@pytest.mark.usefixtures("terminal_width")
def test_the_terminal_shows_comparisons_whole(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = select([*BOTH, make("bs-simt (paper)", "agent-5.threshold-0.45", 4.0, 28.0)], None)
    print_table(chosen)
    print_comparisons(chosen)
    printed = capsys.readouterr().out
    assert "…" not in printed
    for text in ("28.60 ± 0.28", "+0.63", "+1.84", "+1.10†", "At equal latency", "Agent and oracle"):
        assert text in printed
    assert "agent-5.threshold-0.45 " in printed
    print_comparisons(select(BOTH, None))
    assert "bs-simt  [3,7]     3.40  28.00  28.63  +0.63 " in capsys.readouterr().out
    print_comparisons(select(RECORDS, None))
    assert capsys.readouterr().out == ""


def test_the_terminal_table_never_cuts_a_figure(terminal_width: int, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(select(RECORDS, None))
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "29.20" in printed
    assert "[3,7]" in printed  # brackets are text, not markup
    assert ("chrF" in printed) == (terminal_width == 140)
