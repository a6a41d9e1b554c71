"""Traces: what is written is read back, and nothing impossible passes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from whilst.core.errors import UserError
from whilst.evaluation.trace import Sentence, parse_trace, read_trace, to_archived_line, write_trace

FIRST = Sentence(
    index=0,
    prediction="das rote Haus",
    delays=(2, 3, 3),
    elapsed=(1.26, 2.0, 3.5),
    reads=(2, 3, 4, 4),
    source_length=3,
    source_units=4,
    reference_length=2,
    source="the red house",
    reference="rotes Haus",
)
EMPTY = Sentence(1, "", (), (), (), source_length=1, source_units=1, reference_length=0)


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.xz"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_trace(path, [FIRST, EMPTY], with_text=True)
    assert read_trace(path) == [dataclasses.replace(FIRST, elapsed=(1.3, 2.0, 3.5)), EMPTY]
    before = path.read_bytes()
    write_trace(path, read_trace(path), with_text=True)
    assert path.read_bytes() == before


def test_without_text_nothing_of_the_corpus_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(path, [FIRST], with_text=False)
    assert "house" not in path.read_text()
    assert "rotes" not in path.read_text()
    (sentence,) = read_trace(path)
    assert sentence.source is None
    assert sentence.reference is None
    assert (sentence.source_length, sentence.reference_length) == (3, 2)


def test_an_archived_line_has_steps_and_neither_text_nor_times() -> None:
    line = to_archived_line(FIRST)
    row = json.loads(line)
    assert (row["delay_steps"], row["read_steps"]) == ([2, 1, 0], [2, 1, 1, 0])
    assert not row.keys() & {"source", "reference", "elapsed"}
    archived = dataclasses.replace(FIRST, elapsed=(), source=None, reference=None)
    assert parse_trace([line, to_archived_line(EMPTY)], "t") == [archived, EMPTY]
    for damaged in (line.replace("[2,1,0]", '"2"'), line.replace("delay_steps", "delays")):
        with pytest.raises(UserError, match="t:1: 'delay_steps' and 'read_steps' must be lists of numbers"):
            parse_trace([damaged], "t")


def test_keys_are_those_of_simuleval(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(path, [FIRST], with_text=True)
    row = json.loads(path.read_text())
    theirs = {"index", "prediction", "delays", "elapsed", "prediction_length", "reference", "source"}
    assert theirs | {"source_length"} <= set(row)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delays": [2, 3], "prediction_length": 2}, "3 words in the prediction but 2 delays"),
        ({"elapsed": [1.0]}, "1 elapsed"),
        ({"elapsed": [1.0, 3.0, 2.0]}, "must not fall"),
        ({"elapsed": [1.0, 2.0, float("nan")]}, "finite"),
        ({"delays": [3, 2, 3]}, "delays must rise"),
        ({"delays": [2, 3, 4]}, "at most the source's 3 words"),
        ({"delays": [2, 3, "3"]}, "delays: must be a whole number, not '3'"),
        ({"delays": 3}, "delays: must be a list"),
        ({"reads": [-1, 2]}, "reads must rise"),
        ({"reads": [2, 5]}, "at most the source's 4 units"),
        ({"prediction": "das  rote Haus"}, "one space"),
        ({"prediction_length": 4}, "'prediction_length' differs"),
        ({"index": True}, "index: must be a whole number"),
        ({"index": -1}, "negative"),
        ({"reference": "Haus"}, "the reference has 1 words, its stated length is 2"),
        ({"source": "the house"}, "the source has 2 words"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(path, [FIRST], with_text=True)
    good = path.read_text()
    bad = json.loads(good) | {"index": 1} | change
    path.write_text(good + json.dumps(bad) + "\n")
    with pytest.raises(UserError, match=message) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "\n" not in str(caught.value)


def test_missing_keys_doubled_indices_and_broken_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(path, [FIRST], with_text=True)
    good = path.read_text()
    row = json.loads(good)
    del row["reads"]
    for text, message in [
        (json.dumps(row), ":1: missing or unknown reads"),
        (good + good, ":2: index 0 is already in line 1"),
        ("{\n", ":1: not valid JSON"),
        ("3\n", ":1: must be a JSON object"),
        ("", "is empty"),
    ]:
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_trace(path)
    for name in ("cut.jsonl.xz", "cut.jsonl.gz", "no.jsonl"):
        broken = tmp_path / name
        broken.write_bytes(b"\xff\xfe not what the name says")
        with pytest.raises(UserError, match=r"cannot be read|not valid UTF-8"):
            read_trace(broken)


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.jsonl.xz"])
def test_a_damaged_file_is_named_wherever_the_damage_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_trace(path, [FIRST], with_text=True)
    whole, refused = path.read_bytes(), 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        try:
            read_trace(path)  # a flag or a date in the head may be anything
        except UserError as error:
            refused += str(error).startswith(str(path))
    assert refused > 0.8 * len(whole)


def test_the_writer_refuses_what_the_reader_would(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sentence 0: 3 words in the prediction but 1 delays"):
        write_trace(tmp_path / "t.jsonl", [dataclasses.replace(FIRST, delays=(1,))], with_text=True)
    assert list(tmp_path.iterdir()) == []
