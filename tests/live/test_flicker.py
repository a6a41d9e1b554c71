"""Normalised erasure: zero for a live policy, more for retranslation, counted as it is defined."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.live.demo import TALK
from whilst.live.flicker import RETRANSLATION, count_erased, flicker
from whilst.live.loading import ModelOptions

words = st.lists(st.sampled_from("abc"), max_size=5)


def test_words_beyond_the_common_prefix_are_erased() -> None:
    assert count_erased([["a"], ["a", "b"], ["a", "c"], ["a", "c", "d"]]) == 1
    assert count_erased([["a", "b", "c"], ["x", "b", "c"]]) == 3
    assert count_erased([["a", "b"], []]) == 2
    assert count_erased([]) == count_erased([["a"]]) == 0


@given(st.lists(words, max_size=6))
def test_nothing_is_erased_if_and_only_if_the_text_only_grows(shown: list[list[str]]) -> None:
    grows = all(after[: len(before)] == before for before, after in itertools.pairwise(shown))
    assert (count_erased(shown) == 0) == grows
    assert 0 <= count_erased(shown) <= sum(map(len, shown))


@pytest.mark.parametrize("latency", ["low", "wait-3"])
def test_a_policy_erases_nothing_and_retranslation_does(
    latency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = TALK.read_text(encoding="utf-8").splitlines(keepends=True)
    (some := tmp_path / "some.txt").write_text("".join(lines[1:4]), encoding="utf-8")
    flicker(ModelOptions("en-vi", latency, by_lines=True), some, tmp_path / "figures.json")
    found = json.loads((tmp_path / "figures.json").read_text())
    policy = "agent-1" if latency == "low" else latency
    assert found["sentences"] == 3
    assert found[policy]["erased"] == 0 < found[policy]["words"]
    assert found[RETRANSLATION]["erased"] > 5


def test_a_file_without_sentences_is_an_error(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(UserError, match="is empty"):
        flicker(ModelOptions("en-vi"), empty, None)
