"""The way through the toy corpus, smaller: what it promises lies where it says, and a second run only shows it."""

from pathlib import Path

import pytest

from whilst.cli import walkthrough

SMALLER = {
    "steps = 700": "steps = 3",
    "steps = 150": "steps = 2",
    "steps = 300": "steps = 2",
    "warmup = 100": "warmup = 1",
    "width = 128": "width = 16",
    "hidden = 128": "hidden = 8",
    'corpus = "toy"': 'corpus = "toy"\ntoy_pairs = 200',
}


def test_the_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = walkthrough.RECIPE.read_text(encoding="utf-8")
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    assert "validate_every = 350" in text, "past the end, so the last step validates"
    recipe = tmp_path / "walkthrough.toml"
    recipe.write_text(text, encoding="utf-8")
    monkeypatch.setattr(walkthrough, "RECIPE", recipe)
    monkeypatch.chdir(tmp_path)
    walkthrough.walk_through()
    first = capsys.readouterr()
    assert first.out.count("READ ") >= walkthrough.SHOWN
    for name in ("report.md", "report.json", "curve.png", "curve.svg"):
        assert (tmp_path / "runs/toy/report" / name).is_file()
    weights = (tmp_path / "runs/toy/model.safetensors").stat().st_mtime_ns
    walkthrough.walk_through()
    assert capsys.readouterr().out.strip() in first.out
    assert (tmp_path / "runs/toy/model.safetensors").stat().st_mtime_ns == weights
