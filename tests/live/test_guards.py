"""The model of the package: literals come through, phrases do not repeat, a glossary is obeyed."""

from functools import cache
from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from whilst.core.settings import DEFAULT_MODEL
from whilst.data.repeats import most_in_row
from whilst.live.loading import Model, ModelOptions, open_model
from whilst.live.session import Word


@cache
def model(*settings: str) -> Model:
    return open_model(ModelOptions(DEFAULT_MODEL, overrides=settings))


def written(opened: Model, latency: str, *words: str) -> str:
    session = opened.session(latency)
    events = [event for word in words for event in session.feed(word)] + session.finish()
    return " ".join(event.text for event in events if isinstance(event, Word))


@pytest.mark.parametrize("latency", ["low", "medium"])
@pytest.mark.parametrize(
    ("source", "literal"),
    [
        ("The rate rose to 15.7% last year.", "15.7%"),
        ("Add 3/4 of a cup of sugar.", "3/4"),
        ("Call me at +1-555-0199 tomorrow.", "+1-555-0199"),
        ("See https://example.org/a?b=1 for details.", "https://example.org/a?b=1"),
        ("He said 今天天气很好 and smiled.", "今天天气很好"),
        ("Use the <b>x</b> tag here.", "<b>x</b>"),
        ("Run `git commit -m` first.", "`git commit -m`"),
        ("I love this 😀 so much.", "😀"),
        ("今天天气很好", "今天天气很好"),
        ("🎉", "🎉"),
    ],
)
def test_literals_come_through(latency: str, source: str, literal: str) -> None:
    at_once, by_word = written(model(), latency, source), written(model(), latency, *source.split())
    assert at_once == by_word
    assert f" {literal} " in f" {at_once.rstrip('.')} "


@pytest.mark.parametrize("latency", ["low", "medium", "high"])
@pytest.mark.parametrize(
    "source",
    [
        "Make sure the device is unplugged before you open the back cover.",
        "All that glitters is not gold.",
        "Police arrested two men at the U.S. embassy at 4 p.m.",
    ],
)
def test_phrases_do_not_repeat(latency: str, source: str) -> None:
    assert most_in_row(written(model(), latency, source).split()) == 1
    if latency == "medium" and source.startswith("Make"):
        assert most_in_row(written(model("evaluate.guards=[]"), latency, source).split()) > 9


def test_a_glossary(tmp_path: Path) -> None:
    path = tmp_path / "my terms.tsv"
    path.write_text("Acme Robotics\nmachine learning\thọc máy\n", encoding="utf-8")
    done = whilst("live", "--glossary", path, stdin=b"We use machine learning at Acme Robotics.")
    assert done.code == 0
    assert "học máy" in done.out
    assert "Acme Robotics" in done.out
    done = whilst("live", "--glossary", tmp_path / "none.tsv", stdin=b"a")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "none.tsv" in done.err
