"""Exported folders: they translate by themselves, are whole or absent, and say what is wrong with them."""

import errno
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from tests.helpers.commands import whilst
from tests.helpers.random_runs import make_run
from tests.helpers.runs import CPU
from whilst.core.errors import UserError
from whilst.core.files import read_json, write_json
from whilst.core.settings import Data, Model
from whilst.data.dataset import Dataset
from whilst.engine.export import export, make_engine
from whilst.engine.runtime import MANIFEST, EngineSession, load_exported
from whilst.model.checkpoint import load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toy_data: Data, toy_dataset: Dataset) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run", toy_data, toy_dataset)


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    out = run.with_name("exported")
    export(run, out)
    return out


def few_steps(session: EngineSession) -> np.ndarray:
    for token in (5, 6, 7):
        session.read(token)
        session.lookahead()
        session.commit(token + 1)
    session.lookahead()
    return session.logits()


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_folder_translates_by_itself(run: Path, exported: Path, precision: str) -> None:
    trained, loaded = load_run(run, CPU), load_exported(exported, precision)
    direct = make_engine(trained.model, trained.agent, precision)
    assert (few_steps(EngineSession(loaded.engine)) == few_steps(EngineSession(direct))).all()
    assert loaded.recipe == trained.recipe
    assert "agent" in loaded.engine.graphs
    assert loaded.source.units == trained.source.units
    assert loaded.target.units == trained.target.units
    assert read_json(exported / MANIFEST)["weights"] == trained.checksum


def test_the_command_says_where_it_lies_and_may_be_repeated(run: Path, tmp_path: Path) -> None:
    for _ in range(2):
        done = whilst("export", run, tmp_path / "out")
        assert (done.code, done.out) == (0, "")
        assert done.err.startswith(f"{tmp_path / 'out'}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    load_exported(tmp_path / "out")


def test_a_run_without_agent_is_exported_without(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> None:
    export(make_run(tmp_path / "run", toy_data, toy_dataset, agent=False), tmp_path / "out")
    loaded = load_exported(tmp_path / "out")
    assert loaded.engine.graphs.keys() == {"read", "write", "words"}


@pytest.mark.parametrize("kind", ["missing", "file", "bidirectional", "monotone", "beneath a file"])
def test_what_cannot_be_exported_is_one_line(
    kind: str, run: Path, tmp_path: Path, toy_data: Data, toy_dataset: Dataset
) -> None:
    source, out = run, tmp_path / "out"
    if kind == "missing":
        source = tmp_path / "nowhere"
    elif kind == "file":
        out.write_text("mine")
    elif kind == "beneath a file":
        out.write_text("mine")
        out = out / "deeper"
    else:
        chosen = Model(width=16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16)
        chosen = replace(chosen, encoder=kind) if kind == "bidirectional" else replace(chosen, cross=kind)  # type: ignore[arg-type]
        source = make_run(tmp_path / "run", toy_data, toy_dataset, chosen, agent=False)
    before = sorted(tmp_path.rglob("*"))
    done = whilst("export", source, out)
    assert done.code == 2
    assert done.err.startswith("whilst: ")
    assert done.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_with_other_things_stays_as_it_is(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not an earlier export"):
        export(run, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_others_put_there_stays(run: Path, tmp_path: Path) -> None:
    """`whilst evaluate` does; and what an earlier export had, and this one has not, goes."""
    out = tmp_path / "out"
    export(run, out)
    before = {path.name for path in out.iterdir()}
    (out / "evaluations").mkdir()
    (out / "evaluations" / "test.full.json").write_text("precious")
    about = read_json(out / MANIFEST)
    (out / "old.onnx").write_text("old")
    write_json(out / MANIFEST, about | {"files": about["files"] | {"old.onnx": "0"}})
    export(run, out)
    assert {path.name for path in out.iterdir()} == before | {"evaluations"}
    assert (out / "evaluations" / "test.full.json").read_text() == "precious"
    for damaged in ("{", "[]"):  # which is a reason to export again
        (out / MANIFEST).write_text(damaged)
        export(run, out)
        assert {path.name for path in out.iterdir()} == before | {"evaluations"}
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("earlier", [False, True])
def test_a_full_disk_leaves_what_was_there(
    earlier: bool, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "out"
    if earlier:
        export(run, out)
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "words.int8.onnx":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        export(run, out)
    assert list(out.parent.iterdir()) == ([out] if earlier else [])
    if earlier:
        load_exported(out)


def test_an_earlier_export_comes_back_if_the_new_one_cannot_take_its_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    export(run, out)
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name.endswith(".new"):
            raise OSError("no")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="no"):
        export(run, out)
    assert list(tmp_path.iterdir()) == [out]
    load_exported(out)


@pytest.mark.parametrize("damage", ["gone", "cut", "format", "pace", "files", "not a folder of ours", "json"])
def test_a_damaged_folder_says_what_is_wrong(damage: str, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(run, out)
    about = read_json(out / MANIFEST)
    if damage == "gone":
        (out / "source.json").unlink()
    elif damage == "cut":
        (out / "read.int8.onnx").write_bytes((out / "read.int8.onnx").read_bytes()[:-1])
    elif damage == "format":
        write_json(out / MANIFEST, about | {"format": 99})
    elif damage == "pace":
        write_json(out / MANIFEST, about | {"pace": [3]})
    elif damage == "files":
        write_json(out / MANIFEST, {name: value for name, value in about.items() if name != "files"})
    elif damage == "json":
        (out / MANIFEST).write_text("{")
    else:
        (out / MANIFEST).unlink()
    with pytest.raises(UserError) as caught:
        load_exported(out)
    assert str(caught.value).startswith(str(out))
    assert "\n" not in str(caught.value)


def test_exports_with_unsigned_weights_still_load(
    run: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of format 2."""

    def unsigned(array: np.ndarray, name: str) -> object:
        weights = array.dtype == np.int8
        return from_array((array.astype(np.int16) + 128).astype(np.uint8) if weights else array, name)

    from_array = numpy_helper.from_array
    monkeypatch.setattr(numpy_helper, "from_array", unsigned)
    export(run, tmp_path / "out", ["int8"])
    write_json(tmp_path / "out" / MANIFEST, read_json(tmp_path / "out" / MANIFEST) | {"format": 2})
    old, new = load_exported(tmp_path / "out"), load_exported(exported)
    assert (few_steps(EngineSession(old.engine)) == few_steps(EngineSession(new.engine))).all()


def test_only_two_precisions_exist(exported: Path) -> None:
    with pytest.raises(UserError, match="write fp32 or int8"):
        load_exported(exported, "fp8")
