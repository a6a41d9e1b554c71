"""The demo: the talk, all of it, translated by the model of the package."""

from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from whilst.core.files import MODELS, checked_manifest
from whilst.core.settings import DEFAULT_MODEL
from whilst.engine.export import export
from whilst.engine.runtime import FORMAT, MANIFEST
from whilst.live.terminal import TALK, demo
from whilst.model.run_folder import SHIPPED, check_bundle

MARKS = ("READ", "WRITE")


def test_the_talk_is_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    demo(words_per_second=1000)
    rows = capsys.readouterr().out.splitlines()
    read, written = (" ".join(row.removeprefix(mark) for row in rows if row.startswith(mark)) for mark in MARKS)
    assert " ".join(read.split()) == " ".join(TALK.read_text(encoding="utf-8").split())
    assert written.split()[:2] == ["Xin", "chào,"]  # it translates real language
    assert any("on average" in row for row in rows)


def test_live_and_serve_use_it_if_none_is_named() -> None:
    said = whilst("live", "--engine", "torch", "--latency", "high", stdin=b"Thank you very much.")
    assert (said.code, said.out, said.err) == (0, "Cảm ơn rất nhiều.\n", "")
    assert f"[default:{DEFAULT_MODEL}]" in "".join(whilst("serve", "--help").out.split())


def test_the_model_of_the_package_is_whole_and_small() -> None:
    folder = MODELS / DEFAULT_MODEL
    check_bundle(folder)
    engine = sum(path.stat().st_size for path in (folder / SHIPPED).iterdir())
    assert engine < 15_000_000
    assert sum(path.stat().st_size for path in folder.rglob("*")) - engine < 3_000_000


def test_the_engine_of_the_package_is_made_from_its_weights(tmp_path: Path) -> None:
    """`whilst export whilst/models/en-vi whilst/models/en-vi/engine --precision int8` makes it."""
    export(MODELS / DEFAULT_MODEL, tmp_path / "engine", ["int8"])
    folders = tmp_path / "engine", MODELS / DEFAULT_MODEL / SHIPPED
    made, shipped = (checked_manifest(folder / MANIFEST, [FORMAT], set(), "") for folder in folders)
    assert made["files"] == shipped["files"]
    assert made["weights"] == shipped["weights"]
