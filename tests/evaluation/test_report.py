"""Reports: the paper's numbers, tables in Markdown and the terminal, and the figure."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.evaluations import SIGNATURE, make
from whilst.cli.main import app
from whilst.core.errors import UserError
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import Curve, Point, group_seeds, to_curves
from whilst.evaluation.record import Record, write_record
from whilst.evaluation.report import our_lines, print_table, report, select


def curves_of(records: Sequence[Record]) -> list[Curve]:
    return to_curves(group_seeds(records))


TUNED = "BS-SiMT, ours, fine-tuned"
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
    assert paper.curve("iwslt15.en-vi", "offline") == [Point("", 22.41, 28.8)]
    assert paper.curve("iwslt15.en-vi", "bs-simt")[0] == Point("[1,5]", 2.0, 28.13)
    for pair in paper.pairs():
        for system in paper.systems(pair):
            points = [point.al for point in paper.curve(pair, system) if point.al is not None]
            assert points == sorted(points)
    assert paper.ablations()["agent GRU"][1] == Point("[5,9]", 5.18, 30.43)
    assert paper.systems("toy.a-b") == []
    assert paper.curve("iwslt15.en-vi", "x") == []


def test_report_writes_table_and_curves_the_same_every_time(tmp_path: Path) -> None:
    written = report(RECORDS, tmp_path / "one")
    report(RECORDS, tmp_path / "two")
    assert [path.name for path in written] == ["report.md", "curve.png", "curve.svg"]
    for path in written:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    markdown = (tmp_path / "one" / "report.md").read_text()
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("|")[2].strip() for row in rows[2:]] == ["wait-1", "wait-3", "[3,7]", "full"]
    assert "27.99 (+1.21)" in rows[3]
    assert SIGNATURE["bleu"] in markdown
    assert "seeds" not in rows[0]
    assert "##" not in markdown, "without an agent there is nothing to compare at equal latency"
    assert (tmp_path / "one" / "curve.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "one" / "curve.svg").read_text()
    assert "<dc:date>" not in svg
    assert svg.count("#0072b2") > 3  # our first system is drawn


def test_a_pair_that_the_paper_lacks_has_no_reference(tmp_path: Path) -> None:
    report([make("multi-path", "wait-1", 1.0, 60.0, pair="toy.a-b")], tmp_path)  # one point alone is drawn as well
    assert "paper: BS-SiMT" not in (tmp_path / "report.md").read_text()


def test_only_what_compares_is_put_together(tmp_path: Path) -> None:
    mixed = [*RECORDS, make("multi-path", "wait-1", 1.0, 60.0, pair="toy.a-b")]
    with pytest.raises(UserError, match=r"different texts cannot be compared: iwslt15.en-vi, toy.a-b; use --pair"):
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


def test_equal_latency_and_oracle(tmp_path: Path) -> None:
    markdown = "\n".join(to_lines(BOTH, tmp_path))
    headings, _, *rows = rows_of(markdown, "At equal latency")
    assert headings[2:6] == ["AL", "paper", "ours", "over paper"]
    assert [row[1] for row in rows] == ["[1,5]", "[3,7]", "[5,9]", "[7,11]", "[9,13]"]
    # By hand: the mean of the seeds is (3.3, 28.6), the next point (5.6, 29.4); multi-path has (3.16, 27.4) and
    # (4.69, 29.2); the paper's multi-path at 3.4 is 25.82 + 2.17 * 0.24 / 1.53.
    expected = ["3.40", "28.00", "28.63", "+0.63", "27.68", "+0.95", "+1.84", "29.59"]
    assert rows[1] == [TUNED, "[3,7]", *expected]
    assert rows[2] == [TUNED, "[5,9]", "5.39", "29.05", "29.33", "+0.28", "—", "—", "+0.92", "30.45"]
    assert rows[4][4:] == ["—", "—", "—", "—", "+0.67", "—"]

    _, _, *rows = rows_of(markdown, "Agent and oracle")
    assert rows == [
        [TUNED, "[3,7]", "3.30", "28.60", "3.20", "29.50", "+0.94"],
        [TUNED, "[5,9]", "5.60", "29.40", "5.50", "30.50", "+1.10†"],
    ]
    assert "†: that AL is outside" in markdown


def test_seeds_share_a_row_with_mean_and_deviation(tmp_path: Path) -> None:
    markdown = "\n".join(to_lines(BOTH, tmp_path))
    assert markdown.splitlines()[2].startswith("| system | policy | seeds | AL |")
    rows = [line for line in markdown.splitlines() if line.startswith(f"| {TUNED} | agent")]
    assert len(rows) == 2
    assert rows[0].startswith(f"| {TUNED} | agent-3 | 2 | 3.30 ± 0.14 |")
    assert "| 28.60 ± 0.28 |" in rows[0]
    assert "±" not in rows[1]
    line = next(line for line in our_lines(curves_of(BOTH)) if line.name == TUNED)
    assert [(one.label, round(one.al or 0, 2)) for one in line.points] == [("[3,7]", 3.3), ("[5,9]", 5.6)]


def test_variants_are_lines_of_their_own() -> None:
    lines = our_lines(curves_of(select(VARIED, None)))
    names = ["multi-path", TUNED, f"{TUNED}, oracle", "full-sentence"]
    assert [line.name for line in lines if not line.is_variant] == names, "systems keep their order"
    variants = {line.name: line for line in lines if line.is_variant}
    thresholds = "threshold-0.6", "threshold-0.7", "threshold-0.7.unknown-keep"
    assert variants.keys() == {f"{TUNED}, {name}" for name in thresholds}
    points = [Point("[3,7]", 4.1, 29.0), Point("[5,9]", 6.2, 29.6)]
    assert variants[f"{TUNED}, threshold-0.7"].points == points


def test_variants_keep_the_tables_readable(tmp_path: Path) -> None:
    markdown = "\n".join(to_lines(VARIED, tmp_path))
    _, _, *rows = rows_of(markdown, "At equal latency")
    found = [(row[0], row[1]) for row in rows if "threshold" in row[0]]
    assert found == [(f"{TUNED}, threshold-0.6", "[5,9]"), (f"{TUNED}, threshold-0.7", "[5,9]")]
    assert [row[1] for row in rows if row[0] == TUNED] == ["[1,5]", "[3,7]", "[5,9]", "[7,11]", "[9,13]"]


def test_two_recipes_under_one_name_are_two_curves(tmp_path: Path) -> None:
    other = make("multi-path", "wait-3", 4.2, 28.0, steps=7)
    markdown = "\n".join(to_lines([*BOTH, other], tmp_path))
    assert "multi-path: several recipes or runs, which differ in:" in markdown
    assert "- `train.steps`: multi-path A: 100; multi-path B: 7" in markdown
    assert [row.split(" | ")[:2] for row in markdown.splitlines() if row.startswith("| multi-path")] == [
        ["| multi-path A", "wait-1"],
        ["| multi-path A", "wait-3"],
        ["| multi-path B", "wait-3"],
    ]
    twice = make("multi-path", "wait-3", 4.3, 28.0)
    assert "\n- nothing: it was measured several times\n" in "\n".join(to_lines([*BOTH, twice], tmp_path))
    assert "several recipes" not in "\n".join(to_lines(BOTH, tmp_path))


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
    assert (tmp_path / "out" / "report.md").read_text().startswith(f"# iwslt15.en-vi, {split}\n")


@pytest.mark.usefixtures("terminal_width")
def test_the_terminal_shows_seeds_and_policies_whole(capsys: pytest.CaptureFixture[str]) -> None:
    scratch = make("bs-simt (from scratch)", "agent-5.threshold-0.45", 4.0, 28.0)
    print_table(select([*BOTH, scratch], None))
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "28.60 ± 0.28" in printed
    assert "agent-5.threshold-0.45 " in printed


def test_the_terminal_table_never_cuts_a_figure(terminal_width: int, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(select(RECORDS, None))
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "29.20" in printed
    assert "[3,7]" in printed  # brackets are text, not markup
    assert ("chrF" in printed) == (terminal_width == 140)
