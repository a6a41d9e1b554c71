"""The document of the paper beside ours: complete, and from the records alone."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from tests.helpers.evaluations import SIGNATURE
from tests.helpers.paper_results import ROOT, add_record, rows, section
from tests.helpers.runs import call
from whilst.core.errors import UserError
from whilst.core.files import write_json
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import Curve, group_seeds, to_curves
from whilst.evaluation.record import read_record, records_in, write_archived, write_record
from whilst.research.paper import ADDITIONAL, anchor, picture, write_paper
from whilst.research.paper_tables import ABLATIONS, bullets, details

TUNED = "BS-SiMT, ours, fine-tuned"
GERMAN = "iwslt14+europarl+tatoeba.de-en"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bit of everything: two seeds, other text, ablations, an oracle, several models for a curve, studies."""
    root = tmp_path_factory.mktemp("kept") / "results"
    for seed, more in ((1, 0.0), (2, 0.5)):
        for k, al, bleu in ((1, 3.0, 27.0), (3, 4.6, 29.0), (5, 6.5, 29.5)):
            add_record(root / f"x{seed}", "iwslt15.en-vi", "multi-path", f"wait-{k}", al, bleu + more, seed=seed)
    for k in (3, 5):
        sets = f"objective.k={k}", f"train.validate_k={k}"
        add_record(root / f"w{k}", "iwslt15.en-vi/wait-k", "wait-k", f"wait-{k}", k + 1.5, 26.0 + k / 10, *sets)
    add_record(root / "f", "iwslt15.en-vi/full", "full-sentence", "full", 22.0, 30.0)
    for first, al in ((3, 3.2), (5, 5.4), (7, 7.1)):
        add_record(root / "g", "german.de-en", "bs-simt", f"agent-{first}", al, 28.0 + al / 10, stage=1)
        add_record(
            root / "g",
            "german.de-en",
            "bs-simt oracle",
            f"oracle-{first}",
            al - 0.1,
            28.6 + al / 10,
            stage=1,
        )
    for first, al in ((3, 3.3), (5, 5.5)):
        add_record(
            root / "gru",
            "german.de-en/ablations/agent-kind",
            "bs-simt",
            f"agent-{first}",
            al,
            27.5 + al / 10,
            "agent.kind=gru",
        )
        add_record(
            root / "none", "german.de-en/ablations/base-none", "bs-simt (from scratch)", f"agent-{first}", al, 26.0
        )
        add_record(root / "len", "german.de-en/ablations/interval-3", "bs-simt", f"agent-{first}", al, 28.0)
        both = ("agent.kind=gru", "search.condition=ground-truth")
        add_record(root / "two", "german.de-en", "bs-simt", f"agent-{first}", al, 20.0, *both, stage=1)
    add_record(root / "y", "german.de-en", "bs-simt", "agent-3", 3.0, 31.11, "evaluate.split=valid", stage=1)
    add_record(root / "z", "german.de-en", "bs-simt", "agent-3.threshold-0.6", 3.9, 28.88, stage=1)
    _studies(root)
    return root


def _studies(root: Path) -> None:
    shares = [0.25, 0.5, 0.75, 1.0]
    quarters = {name: [0.1, 0.2, 0.3, 0.456] for name in ("first quarter", "last quarter")}
    bucket = {"target_length": 20, "sentences": 77, "chances": []}
    made = {"command": "whilst analyse here", "device": "a machine", "versions": {"torch": "2.0"}}
    about = {"system": "multi-path", "pair": GERMAN, "split": "test", "sentences": 6750, "shares": shares}
    found = about | {"mean": shares, "quarters": quarters, "bucket": bucket, "model_sha256": "1" * 64} | made
    write_json(root / "deep" / "some.json", found)
    (root / GERMAN).mkdir()
    for picture_file in (root / "deep" / "some.svg", root / GERMAN / "curve.svg"):
        picture_file.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    point = {"pair": GERMAN, "system": "bs-simt oracle", "policy": "oracle-3", "al": 3.1, "sufficiency": 0.761}
    point |= {"sentences": 508, "label": "[3,7]", "model_sha256": "1" * 64}
    lower = point | {"policy": "oracle-1", "label": "[1,5]", "al": 1.3, "sufficiency": 0.2}
    table = {"links": "sure", "files": {"a.de": "0" * 64}, "points": [point, lower]} | made
    write_json(root / "suff.json", table)


@pytest.fixture(scope="module")
def document(results: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_paper(results, tmp_path_factory.mktemp("document")).read_text(encoding="utf-8")


def test_every_table_and_figure_of_the_paper_has_a_section_in_its_order(document: str) -> None:
    names = [*(f"Figure {n}" for n in range(1, 6)), *(f"Table {n}" for n in range(1, 12))]
    contents = list(paper.facts()["contents"])
    assert sorted(contents) == sorted(names)
    headings = re.findall(r"^## (\w+ \d+):", document, flags=re.MULTILINE)
    assert headings == contents
    for name in names:
        assert len(section(document, name).splitlines()) > 2


def test_every_number_that_the_paper_prints_is_there(document: str) -> None:
    text = document
    for name, task in zip(("Table 8", "Table 9", "Table 10", "Table 11"), paper.pairs(), strict=True):
        shown = {(row[1], row[3], row[4]) for row in rows(section(text, name))}
        for system in set(paper.systems(task)) - {"bs-simt oracle"}:
            for point in paper.curve(task, system):
                al = "—" if point.al is None else f"{point.al:.2f}"
                assert (point.label or "—", al, f"{point.bleu:.2f}") in shown
    seen = {(row[1], row[3], row[4]) for name in ABLATIONS for row in rows(section(text, name))}
    for points in paper.ablations().values():
        assert {(point.label, f"{point.al:.2f}", f"{point.bleu:.2f}") for point in points} <= seen
    oracle = {tuple(row[1:6]) for row in rows(section(text, "Table 3"))}
    for point in paper.curve("iwslt14.de-en", "bs-simt oracle"):
        assert (point.label, f"{point.al:.2f}", f"{point.bleu:.2f}") in {(row[0], row[3], row[4]) for row in oracle}
    assert [row[:3] for row in rows(section(text, "Table 7"))[1:]] == [
        *([name, *values] for name, values in paper.facts()["hyperparameters"].items()),
        *([name, "—", "—"] for name in ADDITIONAL),
    ]


def test_our_results_have_seeds_and_the_difference_at_equal_latency(document: str) -> None:
    found = {(row[0], row[1]): row[2:] for row in rows(section(document, "Table 8"))}
    # Paper 27.99 at 4.69; ours rises from 29.25 at 4.6 to 29.75 at 6.5, so it is at 29.27 there.
    text = "the paper's + teacher"
    wanted = [text, "4.69", "27.99", "4.60 ± 0.00", "29.25 ± 0.35", "2", "29.27", "+1.28", "+1.26", "0.97", "—"]
    assert found["multi-path", "3"] == wanted
    assert found["multi-path", "9"][3:] == ["not run", "not run", "—", "—", "—", "—", "—", "—"]
    assert found["wait-k", "5"] == [
        text,
        "6.46",
        "28.27",
        "6.50",
        "26.50",
        "1",
        "26.50",
        "-1.77",
        "-1.77",
        "0.97",
        "—",
    ]
    assert found["full-sentence", "—"][-5:] == ["—", "+1.20", "+1.20", "0.97", "—"]
    assert found["paper: MMA", "0.4"][3:5] == ["not run", "not run"]


def test_other_training_text_is_named(document: str) -> None:
    text = document
    ours = [row for row in rows(section(text, "Table 10")) if row[0] == TUNED]
    assert {row[2] for row in ours} == {"**other**: iwslt14+europarl+tatoeba"}
    wanted = ["3.26", "28.95", "3.20", "28.32", "1", "28.33", "-0.62", "-0.63", "0.97", "—"]
    assert ours[0][1:] == ["[3,7]", ours[0][2], *wanted]
    assert f"Ours on {GERMAN}: **not on the paper's training text**" in section(text, "Figure 4")
    assert f"/{GERMAN}/curve.svg)" in section(text, "Figure 4")
    assert "Not drawn: `whilst report results/iwslt15.en-vi` does." in section(text, "Figure 4")
    summary = [row for row in rows(text) if row[0] == "iwslt14.de-en" and row[1] == TUNED]
    assert summary[0][2] == "**other**: iwslt14+europarl+tatoeba"


def test_ablations_compare_with_the_default_on_the_same_text(document: str) -> None:
    found = {(row[0], row[1]): row[2:] for row in rows(section(document, "Table 6"))}
    # Ours: 27.83 at 3.3, where the default has 28.33. The paper's: 28.19 at 3.34, where its default has 29.02.
    assert found["gru", "[3,7]"] == [GERMAN, "3.34", "28.19", "3.30", "27.83", "1", "-0.83", "-0.50", "-0.36"]
    assert found["linear", "[3,7]"] == ["—", "3.65", "27.82", "not run", "not run", "—", "-1.46", "—", "—"]
    assert found["lstm", "[3,7]"][3:5] == ["3.20", "28.32"]
    lengths = {(row[0], row[1]): row[2:] for row in rows(section(document, "Table 1"))}
    assert lengths["3", "[3,5]"][3:5] == ["3.30", "28.00"]
    bases = {(row[0], row[1]): row[2:] for row in rows(section(document, "Table 5"))}
    assert bases["scratch", "[3,7]"][3:5] == ["3.30", "26.00"]
    assert bases["full-sentence", "[3,7]"][3:5] == ["not run", "not run"]


def test_agent_and_oracle(document: str) -> None:
    found = {(row[0], row[1]): row[2:] for row in rows(section(document, "Table 3"))}
    assert found[GERMAN, "[5,9]"][:4] == ["5.01", "30.44", "5.29", "30.82"]
    assert found[GERMAN, "[5,9]"][5:9] == ["5.40", "28.54", "5.30", "29.14"]
    assert found[GERMAN, "[5,9]"][9] == "+0.61"


def test_every_record_is_linked(results: Path, document: str) -> None:
    """Every record is linked from somewhere, and what has no table says why."""
    text = document
    for path in results.rglob("test.*.json"):
        assert f"{path.parent.name}/{path.name})" in text, path
    left = rows(section(text, "Measured"))
    rest = {(row[2], row[3].partition("]")[0].strip("[")): row[4:] for row in left}
    assert rest[TUNED, "agent-5"][0] == "condition ground-truth (not concavity), agent gru (not lstm)"
    assert rest[TUNED, "agent-3.threshold-0.6"][2] == "28.88"
    assert "31.11" in section(text, "Measured")
    assert "31.11" not in section(text, "Table 10"), "the development set is no result"


def test_details_say_how_a_result_was_made(document: str) -> None:
    made = section(document, "Table 8").split("<summary>How it was made: ")[1:]
    told = {part.partition("</summary>")[0]: part for part in made}
    assert set(told) == {"full-sentence", "wait-k", "multi-path"}
    assert re.search(r"recipe: \[\S*recipes/iwslt15\.en-vi/bs-simt\.toml\]\(\S+\)\n", told["multi-path"]), (
        "as it stands"
    )
    assert "seeds: 1, 2\n" in told["multi-path"]
    wanted = ("a machine, torch 2.0", "`aaaaaaaaaaaa`", "`111111111111`", SIGNATURE["bleu"], "x2/test.wait-5.json")
    for what in wanted:
        assert what in told["multi-path"]
    assert "started from: random weights; teacher: `runs/iwslt15.en-vi.full`\n" in told["multi-path"]
    assert "started from: `runs/iwslt15.en-vi`; teacher: `runs/iwslt15.en-vi.full`\n" in told["wait-k"]
    assert re.findall(r"recipes/([\w./-]+)\.toml\]", told["wait-k"]) == ["iwslt15.en-vi/wait-k"]
    gru = section(document, "Table 6")
    assert re.search(r"recipe: \[\S*recipes/german\.de-en/ablations/agent-kind\.toml\]\(\S+\)\n", gru)


def test_a_changed_setting_is_named_and_makes_another_curve(tmp_path: Path) -> None:
    kept = tmp_path / "results"
    for slope in ("ratio", "one"):
        for first, al in ((3, 3.4), (5, 5.4)):
            sets = (f"search.slope={slope}", "search.multi_path=0.25")
            add_record(kept / slope, "iwslt15.en-vi", "bs-simt", f"agent-{first}", al, 28.0, *sets, stage=1)
    again = add_record(kept / "again", "iwslt15.en-vi", "bs-simt", "agent-3", 9.9, 28.0, *sets, stage=1)
    write_paper(kept, tmp_path / "out")
    text = (tmp_path / "out" / "paper.md").read_text(encoding="utf-8")
    table = section(text, "Table 8")
    assert {row[0] for row in rows(table)} >= {f"{TUNED} {letter}" for letter in "ABC"}
    assert f"- `search.slope`: {TUNED} A: one; {TUNED} B: one; {TUNED} C: ratio" in table
    assert f"[agent-3](results/{again.parent.name}/{again.name})" in table.replace("../", "")


def test_an_agent_without_fine_tuning_is_a_curve_of_its_own(tmp_path: Path) -> None:
    kept = tmp_path / "results"
    add_record(kept / "a", "iwslt15.en-vi", "bs-simt (multi-path)", "agent-3", 3.4, 29.0)
    add_record(kept / "b", "iwslt15.en-vi/no-teacher", "bs-simt", "agent-3", 3.4, 28.0, stage=2)
    write_paper(kept, tmp_path / "out")
    table = section((tmp_path / "out" / "paper.md").read_text(encoding="utf-8"), "Table 8")
    found = {row[0]: row[6] for row in rows(table) if "ours" in row[0] and row[1] == "[3,7]"}
    assert found == {"BS-SiMT, ours": "29.00", TUNED: "28.00"}


def curves_in(folder: Path) -> list[Curve]:
    return to_curves(group_seeds(records_in(folder).values()))


def test_other_weights_with_the_same_recipe_and_seeds_are_another_curve(tmp_path: Path) -> None:
    for name, sha in (("a", "1"), ("b", "2"), ("c", "3")):
        sets = f"start=runs/{name}"
        path = add_record(tmp_path / name, "iwslt15.en-vi", "bs-simt", "agent-3", 3.4, 28.0, sets, stage=1)
        write_record(path, dataclasses.replace(read_record(path), model_sha256=sha * 64))
    assert [[len(point.records) for point in curve.results] for curve in curves_in(tmp_path)] == [[1]] * 3


def test_teachers_and_starts_may_differ_between_seeds(tmp_path: Path) -> None:
    for seed in (1, 2):
        sets = f"teacher=runs/teacher-{seed}", f"start=runs/start-{seed}"
        add_record(
            tmp_path / str(seed),
            "iwslt15.en-vi",
            "multi-path",
            "wait-3",
            4.6,
            28.0 + seed,
            *sets,
            seed=seed,
        )
    [curve] = curves_in(tmp_path)
    assert [len(point.records) for point in curve.results] == [2]
    add_record(
        tmp_path / "none",
        "iwslt15.en-vi",
        "multi-path",
        "wait-3",
        4.6,
        27.0,
        "teacher=",
        "start=runs/x",
        seed=3,
    )
    add_record(tmp_path / "random", "iwslt15.en-vi", "multi-path", "wait-3", 4.6, 27.0, "start=", seed=4)
    assert len(curves_in(tmp_path)) == 3, "none at all is another one"


def test_studies_are_found_by_their_content(document: str) -> None:
    first, fifth = section(document, "Figure 1"), section(document, "Figure 5")
    assert "295 targets" in first
    assert ["last quarter", "0.100", "0.200", "0.300", "0.456"] in rows(first)
    assert "the bucket has 77 targets of 20 units" in first
    assert "made with `whilst analyse here`" in first
    assert "The oracle at [3,7], the paper's lowest latency: 76.1% at AL 3.10 (+1.1 percentage points)." in fifth
    assert "20.0%" not in fifth, "the paper has no [1,5] there"
    assert "The tokens before have read the same share." in first
    assert "Not run" not in first + fifth


def test_an_archive_gives_the_same_figures(results: Path, document: str, tmp_path: Path) -> None:
    """Archived records are linked as a file."""
    kept = tmp_path / "results"
    shutil.copytree(results, kept)
    records = records_in(kept)
    write_archived(kept, {path.relative_to(kept).with_suffix("").as_posix(): one for path, one in records.items()})
    for path in records:
        path.unlink()
    write_paper(kept, tmp_path / "out")
    text = (tmp_path / "out" / "paper.md").read_text(encoding="utf-8")
    assert "[x2/test.wait-5](../results/records.jsonl)" in text
    shown = [[cell for cell in row if "](" not in cell] for row in rows(text)]
    assert shown == [[cell for cell in row if "](" not in cell] for row in rows(document)]


def test_pieces_of_the_document(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    assert anchor("What's [3,7], really?") == "whats-37-really"
    assert picture(tmp_path / "a", "shown", tmp_path) == "![shown](a.png)"
    assert picture(tmp_path / "absent", "no file", tmp_path) == ""
    assert "<summary>a &lt; b</summary>\n\n- one\n- two" in details("a < b", bullets(["one", "two"]))


def test_a_document_without_records(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_paper(tmp_path / "empty", tmp_path / "out")
    text = (tmp_path / "out" / "paper.md").read_text(encoding="utf-8")
    assert "| iwslt15.en-vi | paper: full-sentence | not run |" in text
    assert "Nothing: every record is in a table above." in text
    with pytest.raises(UserError, match="no such folder"):
        write_paper(tmp_path / "absent", tmp_path / "out")


def test_the_same_results_give_the_same_bytes(results: Path, document: str, tmp_path: Path) -> None:
    write_paper(results, tmp_path)
    folder = re.compile(r"\((\.\./)+[^)]*?(results|recipes)/")
    again = (tmp_path / "paper.md").read_text(encoding="utf-8")
    assert folder.sub("(", again) == folder.sub("(", document)


def test_the_command_writes_into_the_given_folder(results: Path, tmp_path: Path) -> None:
    done = call("paper", results, "--out", tmp_path / "here")
    assert done.returncode == 0, done.stderr
    assert "paper.md" in done.stderr
    assert not (results / "paper").exists()


def test_the_committed_document_is_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ROOT / "results" / "paper" / "paper.md"
    if not kept.is_file():
        pytest.skip("no document is committed yet")
    monkeypatch.chdir(ROOT)
    fresh = write_paper(Path("results"), tmp_path / "paper").read_text(encoding="utf-8")
    plain = re.compile(r"\]\([^)]*?([^/)]+)\)")  # links differ by where the document lies
    assert plain.sub(r"](\1)", fresh) == plain.sub(r"](\1)", kept.read_text(encoding="utf-8")), "run `whilst paper`"
