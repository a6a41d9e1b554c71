"""Raw text word by word: the same units as in training whatever the white space, and unchanged words."""

# ruff: noqa: RUF001  (similar letters are intended)

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import settings as limit
from hypothesis import strategies as st

from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.data.text import cleaner
from whilst.data.writer import WordRules
from whilst.live.session import SessionState, TextPipeline

SOURCE = ["Well, Anna said: “No!”", "Anna's dog isn't here…", "Where is it, then?", "A DOG. a dog; dogs!"]
TARGET = ["Thế thì, Anna nói: “Không!”", "Chó của Anna không ở đây…", "Vậy nó ở đâu?", "Một con CHÓ. chó; chó!"]
# Case, punctuation at words, entities, letters in two parts, all kinds of space.
RAW = st.text(st.sampled_from("aAbB.,!?'\"“”&;ampquot#39 \t\u00a0\u2003\u0301\u0300éếΣσİß▁…-"), max_size=40)


@pytest.fixture(scope="module", params=["sentencepiece", "bpe", "word"])
def raw(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, Dataset]:
    folder = tmp_path_factory.mktemp("raw")
    for name, lines in (("s", SOURCE), ("t", TARGET)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines * 9), encoding="utf-8")
    files = ("s", "t")
    data = Data(train=files, valid=files, test=files, units=request.param, size=90, unescape=True)
    data = replace(data, dataset=str(folder / "set"), folder=str(folder))
    return data, Dataset.open(prepare(data))


def units(script: SessionState) -> list[int]:
    """The units to READ, without eos."""
    return [unit for sentence in script.sentences for unit, *_ in sentence.unread]


@given(line=RAW, lower=st.booleans())
@limit(max_examples=150)
@example(line="Anna\u0301's &amp;quot; &#32; A&nbsp;DOG.", lower=False)
def test_live_lines_have_the_units_of_prepare(raw: tuple[Data, Dataset], line: str, lower: bool) -> None:
    data, dataset = replace(raw[0], lowercase=lower), raw[1]
    clean = cleaner(data, "en")
    text = TextPipeline(
        dataset.source,
        dataset.target,
        clean,
        lambda _: 9,
        WordRules(dataset.source, dataset.target),
        10_000,
        lambda _: False,
    )
    cleaned = clean(line)
    prepared = dataset.source.encode(cleaned.split(" ")) if cleaned else []
    at_once, one_by_one = SessionState(text), SessionState(text)
    at_once.add_words(line)
    for word in line.split():
        one_by_one.add_words(word)
    assert units(at_once) == units(one_by_one) == prepared


@given(lines=st.lists(st.sampled_from(SOURCE + TARGET), max_size=3))
@limit(max_examples=30)
def test_decoded_words_are_unchanged(raw: tuple[Data, Dataset], lines: list[str]) -> None:
    """With case and punctuation, from a buffer that gets one unit at a time."""
    for language, known in ((raw[1].source, SOURCE), (raw[1].target, TARGET)):
        words = [word for line in lines if line in known for word in line.split()]
        assert language.decode(language.encode(words)) == words
