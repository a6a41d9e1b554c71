"""Model cards: measured figures and examples between marks, other text as it was; the list of models."""

import shutil
from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from whilst.core.files import MODELS, read_json
from whilst.core.settings import Data
from whilst.data.prepare import prepare
from whilst.live import checks
from whilst.live.card import BEGIN, END, with_section

PAIRS = [
    ("Thank you very much for your letter.", "Cảm ơn rất nhiều vì lá thư của bạn."),
    ("My father gave me an old radio.", "Cha tôi đã cho tôi một chiếc đài cũ."),
    ("The library opens at nine in the morning.", "Thư viện mở cửa lúc chín giờ sáng."),
    ("Where did you find the blue key?", "Bạn tìm thấy chiếc chìa khóa xanh ở đâu?"),
]


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """With a test set, and a question that is kept apart."""
    for number, name in enumerate(("t.en", "t.vi")):
        (tmp_path / name).write_text("".join(f"{pair[number]}\n" for pair in PAIRS), encoding="utf-8")
    files = ("t.en", "t.vi")
    data = Data(
        dataset=str(tmp_path / "set"),
        like=str(MODELS / "en-vi"),
        source="en",
        target="vi",
        units="sentencepiece",
        folder=str(tmp_path),
        train=files,
        valid=files,
        test=files,
        apart=(("questions", r"\?$", *files),),
        apart_pairs=1,
    )
    return str(prepare(data))


def test_text_outside_of_the_marks_stays() -> None:
    card = with_section("# Mine\n\nBefore.\n", "Figures.\n")
    assert card == f"# Mine\n\nBefore.\n\n{BEGIN}\nFigures.\n{END}\n"
    assert with_section(card + "After.\n", "Others.\n") == card.replace("Figures", "Others") + "After.\n"


def test_a_card_has_scores_and_mistakes_that_models_lists(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(MODELS / "en-vi", tmp_path / "models" / "en-vi")
    found = [*checks.read_checks()[:2], checks.Check("name", "Qxzw", "We like Qxzwvk | Sons.")]
    monkeypatch.setattr(checks, "read_checks", lambda _: found)
    monkeypatch.setattr("whilst.core.files.MODELS", tmp_path / "models")
    monkeypatch.setattr("whilst.live.card.MODELS", tmp_path / "models")
    settings = "--set", f"data.dataset={dataset}"
    done = whilst("card", "en-vi", "--licence", "for tests", "--out", tmp_path / "traces", *settings)
    assert done.code == 0, done.err
    folder = tmp_path / "models" / "en-vi"
    table = read_json(folder / "card.json")
    assert table["licence"] == "for tests"
    assert {name: row["sentences"] for name, row in table["scores"].items()} == {"test": 4, "questions": 1}
    assert table["mistakes"]["negation lost"]["of"] == 2
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# en-vi: English into Vietnamese")
    figure = f"{table['scores']['test']['medium']['sacrebleu']:.2f}"
    assert f"| test | medium | agent-5 | {figure} |" in card
    assert (tmp_path / "traces" / "questions.high.jsonl.xz").is_file()
    assert whilst("card", "en-vi", *settings).code == 0
    assert (folder / "README.md").read_text(encoding="utf-8") == card
    listed = whilst("models")
    assert (listed.code, listed.err) == (0, "")
    assert read_json(folder / "card.json")["licence"] == "for tests"
    assert {"en-vi", "questions"} <= {*listed.out.split()}


def test_models_of_the_package_are_listed() -> None:
    done = whilst("models")
    assert (done.code, done.err) == (0, "")
    assert {"model", "en-vi", "agent-9"} <= {*done.out.split()}


@pytest.mark.parametrize("command", ["live", "translate", "evaluate", "export", "bundle", "bench checks", "serve"])
def test_a_model_that_is_not_there_is_explained(command: str, tmp_path: Path) -> None:
    name = ["--model", "fr-en"] if command in ("live", "bench checks", "serve") else ["fr-en"]
    name += [str(tmp_path / "out")] if command in ("export", "bundle") else []
    done = whilst(*command.split(), *name)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("whilst: model 'fr-en': no such folder, and no model of that name; ")
    assert "whilst new" in done.err
    assert "hf:NAME" in done.err
