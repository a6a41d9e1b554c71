"""The demo, smaller: what it promises lies where it says, and a second run only shows it."""

from pathlib import Path

import pytest

from whilst import demo

SMALLER = {
    "steps = 700": "steps = 3",
    "steps = 150": "steps = 2",
    "steps = 300": "steps = 2",
    "warmup = 100": "warmup = 1",
    "width = 128": "width = 16",
    "hidden = 128": "hidden = 8",
    'corpus = "toy"': 'corpus = "toy"\ntoy_pairs = 200',
}


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = demo.RECIPE.read_text(encoding="utf-8")
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    assert "validate_every = 350" in text, "past the end, so the last step validates"
    recipe = tmp_path / "demo.toml"
    recipe.write_text(text, encoding="utf-8")
    monkeypatch.setattr(demo, "RECIPE", recipe)
    monkeypatch.chdir(tmp_path)
    demo.demo()
    first = capsys.readouterr()
    assert first.out.count("READ ") >= demo.SHOWN
    for name in ("report.md", "report.json", "curve.png", "curve.svg"):
        assert (tmp_path / "runs/toy/report" / name).is_file()
    weights = (tmp_path / "runs/toy/model.safetensors").stat().st_mtime_ns
    demo.demo()
    assert capsys.readouterr().out.strip() in first.out
    assert (tmp_path / "runs/toy/model.safetensors").stat().st_mtime_ns == weights
