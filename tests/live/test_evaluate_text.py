"""Commands take the names of models that `live` takes; any model is scored on any text."""

from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from whilst.evaluation.metrics import score
from whilst.evaluation.trace import read_trace

SOURCE = ["Thank you very much.", "My father gave me an old radio."]
REFERENCE = ["Cảm ơn rất nhiều.", "Cha tôi đã cho tôi một chiếc đài cũ."]


@pytest.fixture
def text(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "talk.en", tmp_path / "talk.vi"
    for path, lines in zip(paths, (SOURCE, REFERENCE), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def test_a_model_of_the_package_is_scored_on_a_text(text: tuple[Path, Path], tmp_path: Path) -> None:
    files = "--source", text[0], "--reference", text[1]
    chosen = "--policy", "low", "--policy", "wait-2", "--out", tmp_path
    done = whilst("evaluate", "--model", "en-vi", *files, *chosen)
    assert done.code == 0, done.err
    for name in ("low", "wait-2"):
        found = read_trace(tmp_path / f"talk.{name}.jsonl.xz")
        assert ([one.source for one in found], [one.reference for one in found]) == (SOURCE, REFERENCE)
        assert f" {score(found).al_word:.2f} " in done.out
    assert "agent-1" in done.out, "what low is"
    assert whilst("evaluate", "en-vi", *files, *chosen).out.split()[:8] == done.out.split()[:8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name one model to evaluate"),
        (("en-vi", "--model", "en-vi"), "name one model to evaluate"),
        (("en-vi", "--reference", "talk.vi"), "give --source FILE"),
        (("nothing", "--source", "talk.en", "--reference", "talk.vi"), "no such folder, and no model of that name"),
        (("en-vi", "--source", "talk.en", "--reference", "talk.vi"), "talk.en: no such file"),
    ],
)
def test_what_cannot_be_evaluated_is_named(arguments: tuple[str, ...], message: str) -> None:
    done = whilst("evaluate", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err


def test_translate_takes_names_and_exports(tmp_path: Path) -> None:
    lines = f"{SOURCE[0]}\n\n".encode()
    wanted = whilst("live", "--latency", "high", "--lines", stdin=lines).out
    named = whilst("translate", "en-vi", "--policy", "agent-9", "--device", "cpu", stdin=lines)
    assert (named.code, named.out) == (0, f"{wanted}\n")  # the empty line stays
    done = whilst("export", "en-vi", tmp_path / "export", "--precision", "int8")
    assert done.code == 0, done.err
    exported = whilst("translate", tmp_path / "export", "--policy", "agent-9", stdin=lines)
    assert (exported.code, exported.out) == (0, f"{wanted}\n")
