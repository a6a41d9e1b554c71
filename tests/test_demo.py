"""The demo: with the model of the package the talk, all of it; without one the toy language."""

from pathlib import Path

import pytest

from tests.test_export import make_lively
from whilst import demo, loading
from whilst.bundle import bundle
from whilst.dataset import Dataset
from whilst.settings import Data


def test_the_talk_is_translated(
    tmp_path: Path,
    toy_data: Data,
    toy_dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle(make_lively(tmp_path / "run", toy_data, toy_dataset), tmp_path / "models" / demo.MODEL)
    for module in (demo, loading):
        monkeypatch.setattr(module, "BUNDLED", tmp_path / "models")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    capsys.readouterr()
    demo.demo(pace=1000)
    rows = capsys.readouterr().out.splitlines()
    read = [word for row in rows if row.startswith("READ") for word in row.split()[1:]]
    assert read == demo.TALK.read_text(encoding="utf-8").split()
    assert any("average lagging" in row for row in rows)


def test_without_a_model_the_toy_language_has_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "BUNDLED", tmp_path)
    called: list[bool] = []
    monkeypatch.setattr(demo, "walk_through", lambda: called.append(True))
    demo.demo()
    assert called
