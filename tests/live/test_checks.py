"""The checks of `whilst bench checks` see mistakes, and only mistakes."""

from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from whilst.core.files import read_json
from whilst.live.checks import NEGATIONS, Check, read_checks


def test_two_hundred_sentences_contain_what_they_need() -> None:
    checks = read_checks()
    assert len(checks) == 200 == len({check.source for check in checks})
    assert all(check.needed in check.source for check in checks if check.needed != "!")
    assert {check.kind for check in checks} == {"negation", "number", "name", "instruction", "news", "chat"}


@pytest.mark.parametrize("language", ["de", "vi"])
def test_other_languages_have_the_same_kinds(language: str) -> None:
    checks = read_checks(language)
    assert len(checks) == len({check.source for check in checks}) > 50
    assert all(check.needed in check.source for check in checks if check.needed != "!")
    assert all(NEGATIONS[language].search(check.source) for check in checks if check.needed == "!")
    assert {check.kind for check in checks} == {check.kind for check in read_checks()}


@pytest.mark.parametrize(
    ("check", "translation", "wrong"),
    [
        (Check("negation", "!", "I am not here."), "Tôi không ở đây.", []),
        (Check("negation", "!", "I am not here."), "Tôi ở đây.", ["negation lost"]),
        (Check("number", "3/4", "Add 3/4 cups."), "Thêm 3 cốc.", ["number lost or changed"]),
        (Check("chat", "😀", "So good 😀 now."), "Tốt 😀 rồi.", []),
        (Check("news", "", "Oil prices fell."), "Giá giá dầu.", ["repeated phrase"]),
        (Check("news", "", "They always win."), "Họ luôn luôn thắng.", []),
        (Check("news", "", "Oil prices fell again today."), "Giá.", ["too short or long"]),
    ],
)
def test_mistakes(check: Check, translation: str, wrong: list[str]) -> None:
    assert [name for name, is_wrong in check.mistakes(translation, "vi") if is_wrong] == wrong


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    done = whilst("bench", "checks", "--latency", "wait-3", "--json", tmp_path / "found.json")
    assert done.code == 0
    found = read_json(tmp_path / "found.json")
    assert found["number lost or changed"] == {"wait-3": 0}
    assert found["repeated phrase"] == {"wait-3": 0}
