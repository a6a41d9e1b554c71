"""Records and scoring again: what the evaluation measured comes back without the model, or a clear no."""

import dataclasses
import json
from pathlib import Path

import pytest

from whilst.core.config import to_table
from whilst.core.errors import UserError
from whilst.core.files import sha256_lines
from whilst.core.settings import Data, Recipe
from whilst.evaluation.metrics import score
from whilst.evaluation.record import (
    LATER_SCORES,
    Record,
    Rescored,
    read_record,
    read_records,
    record_path,
    rescore,
    write_record,
)
from whilst.evaluation.trace import Sentence, write_trace

SOURCE = ["we see it", "good  morning &quot; all &quot;"]
REFERENCE = ["wir sehen es", "guten Morgen \u0061\u0308hm allerseits"]  # a and its dots apart: NFC joins them
CLEAN = [["we see it", 'good morning " all "'], ["wir sehen es", "guten Morgen \u00e4hm allerseits"]]
SENTENCES = [
    Sentence(0, "wir sehen das", (1, 2, 3), (1.0, 2.0, 3.0), (1, 2, 3), 3, 3, 3, CLEAN[0][0], CLEAN[1][0]),
    Sentence(1, "guten Morgen", (2, 5), (1.0, 2.0), (2, 3, 6), 5, 6, 4, CLEAN[0][1], CLEAN[1][1]),
]


def evaluate(
    folder: Path,
    with_text: bool = False,
    data: Data = Data(unescape=True),  # noqa: B008
) -> tuple[Path, Record]:
    """What `whilst evaluate` leaves behind, made by hand."""
    trace = folder / "wait-1.jsonl.xz"
    record = Record(
        title="multi-path",
        policy="wait-1",
        pair="toy.a-b",
        split="test",
        scores=score(SENTENCES, CLEAN[1]),
        trace=trace.name,
        source_sha256=sha256_lines(CLEAN[0]),
        reference_sha256=sha256_lines(CLEAN[1]),
        settings=to_table(Recipe(data=data)),
        model_sha256="0" * 64,
        command="whilst evaluate recipes/toy/bs-simt.toml",
        seconds=1.5,
        device="cpu",
        versions={"whilst": "0"},
    )
    write_trace(trace, SENTENCES, with_text)
    write_record(record_path(trace), record)
    return trace, record


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")  # no last newline: the checksum must not mind
    return path


def test_a_record_is_read_back(tmp_path: Path) -> None:
    trace, record = evaluate(tmp_path)
    again = read_record(record_path(trace))
    assert again.scores.to_table() == record.scores.to_table()
    assert again.scores.signatures == record.scores.signatures
    assert dataclasses.replace(again, scores=record.scores, settings=record.settings) == record
    table = json.loads((tmp_path / "wait-1.json").read_text())
    assert table["format"] == 1
    assert table["signatures"]["bleu"].startswith("nrefs:1|case:lc")
    assert [item.policy for item in read_records([tmp_path])] == ["wait-1"]
    for place in (trace, tmp_path / "wait-1.json"):
        assert [item.policy for item in read_records([place, tmp_path])] == ["wait-1"], "named twice, read once"


@pytest.mark.parametrize("data", [Data(unescape=True), Data(unescape=True, moses=True, tokenised=("t.*",))])
def test_scoring_again_gives_the_same_figures(tmp_path: Path, data: Data) -> None:
    trace, record = evaluate(tmp_path, data=data)
    source = write_lines(tmp_path / "t.en", SOURCE)
    reference = write_lines(tmp_path / "t.de", REFERENCE)
    again = rescore(trace, source, reference)
    assert again.scores.to_table() == record.scores.to_table()
    assert again.differences == {}
    assert again.notes == []
    assert again.sentences == SENTENCES


def test_short_translations_and_early_ends_are_counted() -> None:
    first, *others = SENTENCES
    short = dataclasses.replace(first, delays=(1,), prediction="x", elapsed=(0.0,))
    assert first.source_length > 1
    whole, cut = (Rescored(score([one, *others], None), [one, *others], None, []) for one in (first, short))
    assert (whole.early, cut.early) == (0, 1)
    words = sum(one.reference_length for one in SENTENCES)
    assert whole.scores.length is not None
    assert cut.scores.length is not None
    assert cut.scores.length == pytest.approx(whole.scores.length - (len(first.delays) - 1) / words)
    nothing = [dataclasses.replace(one, reference_length=0) for one in SENTENCES]
    assert score(nothing, None).length is None


def test_text_in_the_trace_is_enough(tmp_path: Path) -> None:
    trace, record = evaluate(tmp_path, with_text=True)
    assert rescore(trace).scores.to_table() == record.scores.to_table()


def test_without_a_reference_only_latency_is_measured_and_that_is_said(tmp_path: Path) -> None:
    trace, record = evaluate(tmp_path)
    again = rescore(trace)
    assert again.scores.al == record.scores.al
    assert again.scores.bleu is None
    assert again.differences == {}
    (note,) = again.notes
    assert "BLEU, sacreBLEU and chrF are left out" in note
    record_path(trace).unlink()
    assert "no record wait-1.json" in rescore(trace).notes[0]


def test_a_changed_figure_is_seen(tmp_path: Path) -> None:
    trace, record = evaluate(tmp_path)
    write_record(record_path(trace), dataclasses.replace(record, scores=dataclasses.replace(record.scores, al=9.0)))
    assert rescore(trace).differences == {"al": (9.0, round(record.scores.al, 4))}


def test_other_text_is_refused(tmp_path: Path) -> None:
    trace, record = evaluate(tmp_path)
    other = write_lines(tmp_path / "other.de", [*REFERENCE[:1], "guten Tag ihr allerseits"])
    with pytest.raises(UserError, match=r"other.de: not the evaluated text") as caught:
        rescore(trace, None, other)
    assert record.reference_sha256[:12] in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="has 3 lines, the trace has 2 sentences"):
        rescore(trace, write_lines(tmp_path / "long.en", [*SOURCE, "more"]))
    record_path(trace).unlink()  # now only the word counts can tell
    short = write_lines(tmp_path / "short.de", [*REFERENCE[:1], "guten Tag"])
    with pytest.raises(UserError, match=r"short.de:2: the reference has 2 words, its stated length is 4"):
        rescore(trace, None, short)
    rescore(trace, None, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "not an evaluation's record"),
        ({"policy": 3}, "policy: must be text"),
        ({"surplus": 3}, "missing or unknown surplus"),
        ({"scores": {}}, "scores: missing or unknown al, "),
    ],
)
def test_a_broken_record_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    trace, _ = evaluate(tmp_path)
    path = record_path(trace)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message) as caught:
        read_record(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_folders_without_evaluations_and_odd_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no evaluation in this folder"):
        read_records([tmp_path])
    with pytest.raises(UserError, match="a trace's name ends in"):
        record_path(Path("trace.txt"))


def test_records_from_before_newer_scores_are_as_recorded(tmp_path: Path) -> None:
    trace, _ = evaluate(tmp_path, with_text=True)
    path = record_path(trace)
    table = json.loads(path.read_text())
    for name in LATER_SCORES:
        del table["scores"][name]
    path.write_text(json.dumps(table))
    again = rescore(trace)
    assert again.differences == {}
    assert again.scores.atd is not None
