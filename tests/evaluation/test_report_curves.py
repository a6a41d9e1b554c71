"""Reports of many systems: which records make a curve, what it is called, and what it is compared with."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.test_report import BOTH, TUNED, curves_of, rows_of, to_lines
from tests.helpers.evaluations import make
from whilst.evaluation.curves import Point, Result
from whilst.evaluation.record import Record
from whilst.evaluation.report import our_lines, print_table, report, select


def setting(record: Record, section: str, **values: object) -> Record:
    """The same by another recipe."""
    return replace(record, settings=record.settings | {section: record.settings.get(section, {}) | values})


THREE = [[1, 3], [3, 5], [5, 7]]
ABLATED = [  # an agent of another kind, shorter intervals with their own oracle, and several models for a curve
    *BOTH,
    *(setting(make("bs-simt", f"agent-{n}", n + 0.1, 26.0 + n), "agent", kind="gru") for n in (3, 5)),
    *(setting(make("bs-simt", f"agent-{n}", n + 0.3, 25.0 + n), "search", intervals=THREE) for n in (3, 5)),
    *(setting(make("bs-simt oracle", f"oracle-{n}", n + 0.2, 25.5 + n), "search", intervals=THREE) for n in (3, 5)),
    *(
        setting(make("mma", "mma", al, 27.0 + al), "objective", name="mma", latency_average=weight)
        for weight, al in ((0.4, 3.0), (0.1, 4.0), (0.05, 5.0))
    ),
    *(setting(make("wait-k", f"wait-{k}", 1.0 + k, 24.0 + k), "objective", name="wait-k", k=k) for k in (1, 3)),
]


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (setting(make("bs-simt", "agent-3", 3, 25), "agent", kind="gru"), "agent gru"),
        (setting(make("bs-simt", "agent-3", 3, 25), "agent", reference="ground-truth"), "reference ground-truth"),
        (setting(make("bs-simt", "agent-3", 3, 25), "search", condition="ground-truth"), "condition ground-truth"),
        (setting(make("bs-simt", "agent-3", 3, 25), "search", condition="authors"), ""),
        (setting(make("bs-simt", "agent-3", 3, 25), "search", intervals=THREE), "intervals of 3"),
        (setting(make("bs-simt oracle", "oracle-3", 3, 25), "agent", kind="gru"), ""),
        (setting(make("multi-path", "wait-3", 3, 25), "search", intervals=THREE), ""),
        (make("bs-simt (from scratch)", "agent-3", 3, 25), ""),
        (setting(make("mma", "mma", 3, 25), "objective", name="mma", latency_average=0.3), ""),
        (setting(make("wait-k", "wait-3", 3, 25), "objective", name="wait-k", k=3), ""),
        (setting(make("wait-k", "wait-5", 3, 25), "objective", name="wait-k", k=3), "trained for k=3"),
        (setting(make("bs-simt", "agent-3", 3, 25), "of", another="toolkit"), ""),
    ],
)
def test_a_change_is_what_decides_the_figure_and_is_not_the_papers_choice(record: Record, change: str) -> None:
    assert Result((record,)).change == change


def test_ablations_stand_in_rows_and_curves_of_their_own(tmp_path: Path) -> None:
    for name, records in (("alone", BOTH), ("all", ABLATED)):
        report(records, tmp_path / name)
    markdown = {name: (tmp_path / name / "report.md").read_text() for name in ("alone", "all")}
    for title in ("At equal latency", "Agent and oracle"):
        usual, found = (rows_of(markdown[name], title) for name in ("alone", "all"))
        assert [row for row in found if row[0] == TUNED] == usual[2:], "as if there were nothing else"
    _, _, *rows = rows_of(markdown["all"], "At equal latency")
    at = {row[0]: row for row in rows if row[1] == "[5,9]" or "gru" in row[0]}
    assert at[f"{TUNED}, agent gru"][1:5] == ["[3,7]", "3.40", "28.00", "29.30"]
    assert at[f"{TUNED}, agent gru"][-1] == "—"
    assert f"{TUNED}, intervals of 3" not in at, "its points end at 5.3"
    _, _, *rows = rows_of(markdown["all"], "Agent and oracle")
    assert rows[2:] == [
        [f"{TUNED}, intervals of 3", "[3,5]", "3.30", "28.00", "3.20", "28.50", "+0.60"],
        [f"{TUNED}, intervals of 3", "[5,7]", "5.30", "30.00", "5.20", "30.50", "+0.50†"],
    ]
    assert "several recipes" not in markdown["all"]
    assert f"| {TUNED}, agent gru | agent-3 | 1 | 3.10 |" in markdown["all"]
    lines = {line.name: line for line in our_lines(curves_of(select(ABLATED, None)))}
    labels = {name: [point.label for point in line.points] for name, line in lines.items()}
    assert labels[TUNED] == labels[f"{TUNED}, agent gru"] == ["[3,7]", "[5,9]"]
    assert labels[f"{TUNED}, intervals of 3"] == ["[3,5]", "[5,7]"]
    variants = [name for name, line in lines.items() if line.is_variant]
    assert sorted(variants) == [
        f"{TUNED}, {name}" for name in ("agent gru", "intervals of 3", "oracle, intervals of 3")
    ]


def test_models_for_each_lambda_or_k_are_one_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {line.name: line for line in our_lines(curves_of(select(ABLATED, None)))}
    points = {name: [(point.label, point.al) for point in line.points] for name, line in lines.items()}
    assert points["MMA"] == [("λ=0.4", 3.0), ("λ=0.1", 4.0), ("λ=0.05", 5.0)]
    assert points["wait-k"] == [("k=1", 2.0), ("k=3", 4.0)]
    markdown = "\n".join(to_lines(ABLATED, tmp_path))
    print_table(select(ABLATED, None))
    printed = capsys.readouterr().out
    for policy in ("mma λ=0.4", "mma λ=0.1", "mma λ=0.05"):
        assert f"| MMA | {policy} |" in markdown
        assert f" {policy} " in printed


def test_different_recipes_are_different_curves(tmp_path: Path) -> None:
    assert "several recipes" not in "\n".join(to_lines(ABLATED, tmp_path)), "each k and lambda is a model"
    usual = setting(make("wait-k", "wait-1", 2.0, 25.0), "objective", name="wait-k", k=1)
    longer = setting(make("wait-k", "wait-3", 4.0, 27.0, steps=7), "objective", name="wait-k", k=3)
    assert "- `train.steps`: wait-k A: 100; wait-k B: 7" in to_lines([usual, longer], tmp_path)


def test_the_fixed_diagonal_is_a_curve_and_a_column(tmp_path: Path) -> None:
    fixed = [make("multi-path (diagonal)", f"diagonal-{k}", k, 24.0 + k) for k in (3, 5)]
    assert "over diagonal" not in "\n".join(to_lines(BOTH, tmp_path))
    records = select([*BOTH, *fixed], None)
    markdown = "\n".join(to_lines(records, tmp_path))
    headings, _, *rows = rows_of(markdown, "At equal latency")
    place = headings.index("over diagonal")
    assert headings[place - 1 : place + 2] == ["over it", "over diagonal", "paper over its"]
    assert [row[place] for row in rows] == ["—", "+1.23", "—", "—", "—"], "28.63 over 24 + 3.4; 5.39 is beyond it"
    assert [row[:place] + row[place + 1 :] for row in (headings, *rows)] == [
        row for row in rows_of("\n".join(to_lines(BOTH, tmp_path)), "At equal latency") if "---" not in row
    ]
    line = next(line for line in our_lines(curves_of(records)) if line.name == "multi-path, diagonal")
    assert line.points == [Point("k=3", 3, 27.0), Point("k=5", 5, 29.0)], "no search intervals"


def test_a_policy_of_another_kind_is_a_system_of_its_own(tmp_path: Path) -> None:
    waits = [make("multi-path", f"wait-{k}", k, 24.0 + k) for k in (1, 3)]
    own = [replace(record, policy=record.policy.replace("wait", "align")) for record in waits]
    lines = our_lines(curves_of(select([*waits, *own], None)))
    assert [(line.name, len(line.points)) for line in lines] == [("multi-path", 2), ("align, on multi-path", 2)]
    (row, _) = (line for line in to_lines([*waits, *own], tmp_path) if line.startswith("| align"))
    assert row.startswith("| align, on multi-path | align-1 |")


def test_offline_models_are_compared_at_equal_latency(tmp_path: Path) -> None:
    offline = [
        make("full-sentence", f"{kind}-{n}", al, bleu)
        for kind, start in (("wait", 20.0), ("local-agreement", 22.0), ("align-att", 24.0))
        for n, al, bleu in ((2, 2.0, start), (3, 4.0, start + 4))
    ]
    agent = make("bs-simt (multi-path)", "agent-1", 3.0, 28.0)
    report([*offline, make("full-sentence", "full", 20.0, 30.0), agent], tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    section = text[text.index("## Against offline models") :]
    heads = [line for line in section.splitlines() if line.startswith("| system")][:2]
    assert "| AL | BLEU | wait-k | over wait-k | LocalAgreement | over LocalAgreement | AlignAtt |" in heads[0]
    assert "| LAAL | BLEU |" in heads[1]
    assert "| 3.00 | 28.00 | 22.00 | +6.00 | 24.00 | +4.00 | 26.00 | +2.00 |" in section
    assert "with computing" not in section  # sentences were decoded in batches
    report([replace(agent, trace="x")], tmp_path / "alone")
    assert "offline" not in (tmp_path / "alone" / "report.md").read_text(encoding="utf-8")


def test_models_that_were_measured_twice_have_lines_of_their_own() -> None:
    ways = [(k, later) for k in (1, 3) for later in (False, True)]
    both = [make("multi-path", f"wait-{k}", k + 0.5 * later, 25.0 + k, steps=9 + later) for k, later in ways]
    other = [replace(record, model_sha256=f"{later}") for record, (_, later) in zip(both, ways, strict=True)]
    lines = our_lines(curves_of(select(other, None)))
    found = {line.name: [(point.label, point.al) for point in line.points] for line in lines}
    first, second = [("k=1", 1.0), ("k=3", 3.0)], [("k=1", 1.5), ("k=3", 3.5)]
    assert found == {"multi-path A": first, "multi-path B": second}
    assert [line.is_variant for line in lines] == [False, True]
