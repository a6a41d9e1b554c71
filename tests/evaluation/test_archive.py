"""Archived evaluations: the same records, and their traces are scored again."""

import dataclasses
from pathlib import Path

import pytest

from tests.helpers.runs import call
from whilst.core.config import to_table
from whilst.core.errors import UserError
from whilst.core.files import sha256_lines
from whilst.core.settings import Recipe
from whilst.evaluation.metrics import score
from whilst.evaluation.record import (
    ARCHIVED,
    TRACES,
    Record,
    pack,
    read_records,
    records_in,
    rescore_archive,
    write_archived,
    write_evaluation,
)
from whilst.evaluation.trace import Sentence

TEXT = ["we see it"], ["wir sehen es"]
SENTENCE = Sentence(0, "wir sehen das", (1, 2, 3), (1.0, 2.0, 3.0), (1, 2, 3), 3, 3, 3)
ABOUT = {
    "pair": "toy.a-b",
    "split": "test",
    "source_sha256": sha256_lines(TEXT[0]),
    "reference_sha256": sha256_lines(TEXT[1]),
    "model_sha256": "0" * 64,
    "command": "whilst evaluate",
    "seconds": 1.5,
    "device": "cpu",
    "versions": {"whilst": "0"},
}


def evaluate(folder: Path, policy: str, seed: int = 1) -> Record:
    """What `whilst evaluate` leaves behind."""
    recipe = Recipe()
    recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, seed=seed))
    about = ABOUT | {"title": "multi-path", "policy": policy, "settings": to_table(recipe)}
    sentence = dataclasses.replace(SENTENCE, reference=TEXT[1][0])
    return write_evaluation(about, folder / f"test.{policy}.jsonl.xz", [sentence], with_text=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "toy.a-b"
    evaluate(folder / "multi-path", "wait-1")
    evaluate(folder / "multi-path", "wait-3")
    evaluate(folder / "seed-2", "wait-3", seed=2)
    return folder


def test_archived_records_are_read_as_before(folder: Path) -> None:
    before = records_in(folder)
    assert pack(folder) == 3
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [ARCHIVED, TRACES]
    assert records_in(folder) == before
    assert records_in(folder.parent) == before
    assert [record.policy for record in read_records([folder, folder.parent])] == ["wait-1", "wait-3", "wait-3"]
    assert (folder / ARCHIVED).read_text(encoding="utf-8").count('"settings":{') == 2, "one is shared"


def test_every_archived_trace_is_scored_again(folder: Path, tmp_path: Path) -> None:
    pack(folder)
    source, reference = tmp_path / "t.a", tmp_path / "t.b"
    source.write_text(TEXT[0][0], encoding="utf-8")
    reference.write_text(TEXT[1][0], encoding="utf-8")
    found = dict(rescore_archive(folder / TRACES, source, reference))
    assert sorted(found) == ["multi-path/test.wait-1", "multi-path/test.wait-3", "seed-2/test.wait-3"]
    for rescored in found.values():
        assert rescored.differences == {}
        assert rescored.scores == score([SENTENCE], TEXT[1])
        assert rescored.notes == []
    ((name, rescored),) = rescore_archive(folder / TRACES / "seed-2/test.wait-3.jsonl", None, None)
    assert (name, rescored.scores.bleu) == ("seed-2/test.wait-3", None)
    with pytest.raises(UserError, match="no such trace in the archive"):
        list(rescore_archive(folder / TRACES / "seed-9/test.wait-3.jsonl", None, None))


def test_more_evaluations_are_added(folder: Path) -> None:
    pack(folder)
    first = (folder / TRACES).read_bytes()
    evaluate(folder / "diagonal", "diagonal-3")
    assert pack(folder) == 4
    assert len(dict(rescore_archive(folder / TRACES, None, None))) == 4
    second = (folder / TRACES).read_bytes()
    assert pack(folder) == 4
    assert (folder / TRACES).read_bytes() == second != first, "the bytes are reproducible"


def test_a_new_evaluation_replaces_an_archived_one(folder: Path) -> None:
    pack(folder)
    evaluate(folder / "multi-path", "wait-1", seed=5)
    assert pack(folder) == 3
    seeds = [record.settings["train"]["seed"] for record in read_records([folder])]
    assert seeds == [5, 1, 2]


def test_the_commands(folder: Path) -> None:
    packed = call("archive", folder)
    assert "3 evaluations in records.jsonl and traces.tar.xz" in packed.stderr
    scored = call("score", folder / TRACES)
    assert scored.returncode == 0, scored.stderr
    assert scored.stdout.count("AL") == 0
    assert scored.stdout.splitlines()[0].startswith("multi-path/test.wait-1: al 1.00, laal 1.00")
    assert "as recorded" in scored.stderr
    one = call("score", folder / TRACES / "multi-path" / "test.wait-1.jsonl")
    assert "al_word" in one.stdout
    nothing = call("archive", folder / "absent")
    assert (nothing.returncode, "no evaluation in this folder" in nothing.stderr) == (2, True)


def test_a_changed_figure_of_an_archived_record_is_seen(folder: Path) -> None:
    pack(folder)
    records = {
        path.relative_to(folder).with_suffix("").as_posix(): dataclasses.replace(
            record, scores=dataclasses.replace(record.scores, al=9.0)
        )
        for path, record in records_in(folder).items()
    }
    write_archived(folder, records)
    done = call("score", folder / TRACES)
    assert done.returncode == 2
    assert "not as recorded: multi-path/test.wait-1 al, multi-path/test.wait-3 al" in done.stderr


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"name": "a", "settings": "b"}'])
def test_damaged_files_are_named(folder: Path, text: str) -> None:
    pack(folder)
    (folder / TRACES).write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"traces\.tar\.xz: cannot be read"):
        list(rescore_archive(folder / TRACES, None, None))
    (folder / ARCHIVED).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"records\.jsonl:1: damaged"):
        records_in(folder)
