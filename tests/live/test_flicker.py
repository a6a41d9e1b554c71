"""Flicker: what a policy shows stays; what is translated anew does not; counted as it is defined."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.live.demo import TALK
from whilst.live.flicker import ANEW, flicker, taken_back
from whilst.live.loading import Wanted

words = st.lists(st.sampled_from("abc"), max_size=5)


def test_what_is_not_a_beginning_of_what_follows_was_taken_back() -> None:
    assert taken_back([["a"], ["a", "b"], ["a", "c"], ["a", "c", "d"]]) == 1
    assert taken_back([["a", "b", "c"], ["x", "b", "c"]]) == 3
    assert taken_back([["a", "b"], []]) == 2
    assert taken_back([]) == taken_back([["a"]]) == 0


@given(st.lists(words, max_size=6))
def test_nothing_is_taken_back_if_and_only_if_the_text_only_grows(shown: list[list[str]]) -> None:
    grows = all(after[: len(before)] == before for before, after in itertools.pairwise(shown))
    assert (taken_back(shown) == 0) == grows
    assert 0 <= taken_back(shown) <= sum(map(len, shown))


@pytest.mark.parametrize("latency", ["low", "wait-3"])
def test_a_policy_takes_nothing_back_and_translating_anew_does(
    latency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = TALK.read_text(encoding="utf-8").splitlines(keepends=True)
    (some := tmp_path / "some.txt").write_text("".join(lines[1:4]), encoding="utf-8")
    flicker(Wanted("en-vi", latency, by_lines=True), some, tmp_path / "figures.json")
    found = json.loads((tmp_path / "figures.json").read_text())
    policy = "agent-1" if latency == "low" else latency
    assert found["sentences"] == 3
    assert found[policy]["erased"] == 0 < found[policy]["words"]
    assert found[ANEW]["erased"] > 5


def test_a_file_without_sentences_is_told(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(UserError, match="is empty"):
        flicker(Wanted("en-vi"), empty, None)
