"""Logs of other toolkits: what is written is read back, and what is wrong is named."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import whilst
from whilst.core.errors import UserError
from whilst.evaluation.metrics import score
from whilst.evaluation.passages import (
    Passage,
    convert,
    is_timed,
    read_passages,
    with_references,
    write_omnisteval,
    write_simuleval,
    write_simulstream,
)
from whilst.evaluation.trace import Sentence, read_trace, write_trace

TALK = Passage(
    name="talk",
    words=("das", "rote", "Haus", "dort"),
    delays=(600.0, 900.0, 900.0, 1500.0),
    elapsed=(650.0, 1000.0, 1000.0, 1500.0),
    source_length=1500.0,
    reference="das rote Haus dort",
)
SENTENCE = Sentence(0, "rotes Haus", (2, 3), (15.0, 40.0), (2, 3), 3, 3, 2, "the red house", "rotes Haus")


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_simulevals_log_of_speech_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "instances.log"
    write_simuleval(path, [TALK])
    assert is_timed(path)
    assert read_passages(path) == [TALK]


def test_simulevals_log_of_text_is_a_trace(tmp_path: Path) -> None:
    row = {"index": 0, "prediction": "rotes Haus", "delays": [2, 3], "elapsed": [0, 0], "prediction_length": 2}
    row |= {"reference": "rotes Haus", "source": "the red house", "source_length": 3}
    path = write_rows(tmp_path / "instances.log", row)
    assert not is_timed(path)
    (sentence,) = read_trace(path)
    assert (sentence.reads, sentence.source_units, sentence.elapsed) == ((2, 3), 3, ())
    assert score([sentence]).al_word == pytest.approx((2 + 1.5) / 2)


def test_simulstreams_log_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_simulstream(path, [TALK])
    (found,) = read_passages(path)
    assert found.words == TALK.words
    assert found.delays == pytest.approx(TALK.delays)
    assert found.elapsed == pytest.approx(TALK.elapsed)
    assert found.source_length == pytest.approx(1500)


def step(heard: float, new: list[str], deleted: list[str] = []) -> dict[str, Any]:  # noqa: B006
    row = {"id": 7, "total_audio_processed": heard, "computation_time": 0.5}
    return row | {"generated_tokens": new, "deleted_tokens": deleted}


def test_deleted_tokens_do_not_count_and_pieces_are_joined(tmp_path: Path) -> None:
    about = {"id": 7, "metadata": {"wav_name": "talks/a.wav"}}
    steps = step(1, ["▁ein", "▁Ha"]), step(2, ["us"]), step(3, ["▁da"], ["us"]), step(4, ["mit"])
    (found,) = read_passages(write_rows(tmp_path / "a.jsonl", about, *steps))
    assert (found.name, found.words) == ("a", ("ein", "Ha", "damit"))
    assert found.delays == (1000, 3000, 4000)  # "Ha" changed when "us" went
    assert found.elapsed == (1500, 3500, 4500)
    with pytest.raises(UserError, match=r"a\.jsonl:2: deletes tokens that are not the last ones"):
        read_passages(write_rows(tmp_path / "a.jsonl", about, step(1, ["a"], ["b"])))
    with pytest.raises(UserError, match=r"a\.jsonl:1: no metadata names the recording of id 7"):
        read_passages(write_rows(tmp_path / "a.jsonl", step(1, ["a"])))


def test_a_live_translation_has_both_times(tmp_path: Path) -> None:
    words = {"word": "ja", "sentence": 0, "source": 2, "arrived": 0.5, "time": 0.75}
    path = write_rows(tmp_path / "live.jsonl", words, {"end": 0, "source": 3, "words": 3, "time": 1.5})
    (timed,), (counted,) = read_passages(path), read_passages(path, in_words=True)
    assert (timed.delays, timed.elapsed) == ((500,), (750,))
    assert (counted.delays, counted.elapsed, counted.source_length) == ((2,), (), 3)


def test_resegmented_instances_of_omnisteval_are_written_and_read(tmp_path: Path) -> None:
    first = Passage("a", ("ja",), (100.0,), (150.0,), 500.0, "ja", 900.0)
    empty = Passage("a", (), (), (), 400.0, "nein", 400.0)
    path = tmp_path / "instances.resegmented.jsonl"
    write_omnisteval(path, [first, empty])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["docid"], row["segid"]) for row in rows] == [(0, 0), (0, 1)]
    read = read_passages(path)
    assert [(one.words, one.delays, one.end) for one in read] == [(("ja",), (100,), 900), ((), (), float("inf"))]


def test_a_trace_is_converted(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl.xz"
    write_trace(trace, [SENTENCE], with_text=True)
    assert convert(trace, tmp_path / "instances.log", "simuleval") == 1
    assert read_trace(tmp_path / "instances.log") == [SENTENCE]
    convert(trace, tmp_path / "metrics.log", "simulstream")
    (found,) = read_passages(tmp_path / "metrics.log")
    assert found.delays == pytest.approx((600, 900))
    assert found.elapsed == pytest.approx((615, 925))  # 25 ms from the first word to the second, after its source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delays": [1.0]}, "4 words in the prediction but 1 delays"),
        ({"delays": [2.0, 1.0, 3.0, 4.0]}, "delays must be finite and must not fall"),
        ({"elapsed": [1.0]}, "but 1 elapsed"),
        ({"source_length": 0.0}, "source_length must be positive"),
        ({"delays": "x"}, "delays: must be a list"),
        ({"prediction": 3}, "prediction: must be text"),
    ],
)
def test_a_broken_log_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "instances.log"
    write_simuleval(path, [TALK])
    write_rows(path, json.loads(path.read_text()) | change)
    with pytest.raises(UserError, match=message) as caught:
        read_passages(path)
    assert str(caught.value).startswith(str(path))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a log of SimulEval"):
        read_passages(write_rows(tmp_path / "x.log", {"a": 1}))
    (tmp_path / "y.log").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"y\.log:1: not valid JSON"):
        read_passages(tmp_path / "y.log")
    (tmp_path / "r").write_text("a\nb\n")
    with pytest.raises(UserError, match="has 2 lines, the log has 1 passages"):
        with_references([TALK], tmp_path / "r")


def test_comet_is_scored_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "t.jsonl"
    write_trace(trace, [SENTENCE], with_text=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = whilst("score", trace, "--comet", "wmt22")
    assert (absent.code, "comet-score is not on the PATH" in absent.err) == (2, True)
    command = tmp_path / "comet-score"
    command.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[-1], 'score: 0.8125', sep='\\t')\n")
    command.chmod(0o755)
    assert "COMET 0.8125: wmt22" in whilst("score", trace, "--comet", "wmt22").out
    write_trace(trace, [SENTENCE], with_text=False)
    bare = whilst("score", trace, "--comet", "wmt22")
    assert (bare.code, "give --source FILE and --reference FILE" in bare.err) == (2, True)
