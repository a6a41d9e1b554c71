"""`whilst toy` on a smaller model: its commands run, leave what they promise, and do not train twice."""

from pathlib import Path

import pytest

from whilst.cli import toy

SMALLER = {
    "steps = 700": "steps = 3",
    "steps = 150": "steps = 2",
    "steps = 300": "steps = 2",
    "warmup = 100": "warmup = 1",
    "width = 128": "width = 16",
    "hidden = 128": "hidden = 8",
    'corpus = "toy"': 'corpus = "toy"\ntoy_pairs = 200',
    "[evaluate]": "[evaluate]\nmax_ratio = 0.3\nmax_extra = 1",
}


def test_toy_goes_from_text_to_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = toy.RECIPE.read_text(encoding="utf-8")
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    assert "validate_every = 350" in text, "past the end, so the last step validates"
    recipe = tmp_path / "toy.toml"
    recipe.write_text(text, encoding="utf-8")
    monkeypatch.setattr(toy, "RECIPE", recipe)
    monkeypatch.setattr(toy, "POLICIES", ("wait-1", "agent-1", "oracle-1"))
    monkeypatch.chdir(tmp_path)
    toy.toy()
    first = capsys.readouterr()
    commands = [line.split()[2] for line in first.err.splitlines() if line.startswith("$ whilst ")]
    assert commands == ["prepare", "train", "evaluate", "report", "translate"]
    assert first.out.count("READ ") >= toy.SENTENCES
    for name in ("report.md", "curve.png", "curve.svg"):
        assert (tmp_path / "runs/toy/report" / name).is_file()
    weights = (tmp_path / "runs/toy/model.safetensors").stat().st_mtime_ns
    toy.toy()
    last = first.out[first.out.index("READ ") :]
    assert capsys.readouterr().out.endswith(last)
    assert (tmp_path / "runs/toy/model.safetensors").stat().st_mtime_ns == weights
