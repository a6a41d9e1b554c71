"""`whilst new`: files are recognised, and the recipe suits the text and the time there is."""

import gzip
import re
from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from tests.helpers.runs import CPU
from whilst.core.config import load_recipe
from whilst.core.errors import UserError
from whilst.core.settings import Recipe
from whilst.data import toy
from whilst.training import new_recipe
from whilst.training.estimate import Times
from whilst.training.new_recipe import find_files, new

PAIRS = list(toy.pairs(400, 3))
SOURCE, TARGET = [" ".join(pair.source) for pair in PAIRS], [" ".join(pair.target) for pair in PAIRS]
ROWS = list(map("\t".join, zip(SOURCE, TARGET, strict=True)))


def write(folder: Path, *names: str) -> list[Path]:
    """Files of 400 lines, or of rows if they are TSV."""
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        lines = ROWS if "tsv" in name else (SOURCE, TARGET)[number % 2]
        content = "".join(f"{line}\n" for line in lines).encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return [folder / name for name in names]


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """What an update takes, by the width of the model, instead of a measurement."""
    invented = {128: 0.1, 256: 0.8, 512: 4.0}

    def times(recipe: Recipe, *_: object) -> Times:
        return {"translate": recipe.train.steps * invented[recipe.model.width], "evaluate": 1.0}

    monkeypatch.setattr(new_recipe, "estimate", times)
    return invented


# The files.


@pytest.mark.parametrize(
    ("names", "languages"),
    [
        (["train.de", "train.en"], ("de", "en")),
        (["talks.de.gz", "talks.en"], ("de", "en")),
        (["train.de", "train.en", "other.de", "other.en", "notes.md"], ("de", "en")),
        (["train.tsv"], ("src", "tgt")),
    ],
)
def test_training_text_is_found(names: list[str], languages: tuple[str, str], tmp_path: Path) -> None:
    paths = write(tmp_path / "texts", *names)
    files, found = find_files(tmp_path / "texts", None, None)
    assert files == {"train": tuple(paths[: 1 if "tsv" in names[0] else 2]), "valid": (), "test": ()}
    assert found == languages


def test_valid_and_test_lie_beside_the_training_text(tmp_path: Path) -> None:
    names = ["train.de", "train.en", "dev.de.gz", "dev.en.gz", "test.de", "test.en"]
    paths = write(tmp_path / "texts", *names)
    files, _ = find_files(tmp_path / "texts", None, None)
    assert files == {"train": (*paths[:2],), "valid": (*paths[2:4],), "test": (*paths[4:],)}
    turned, languages = find_files(tmp_path / "mine", paths[1], paths[0])  # the other direction
    assert turned == {split: names[::-1] for split, names in files.items()}
    assert languages == ("en", "de")
    assert find_files(tmp_path / "mine", *paths[2:4])[0]["valid"] == ()  # it is the training text


def test_files_of_any_name_can_be_given(tmp_path: Path) -> None:
    paths = write(tmp_path / "texts", "left.txt", "right.txt")
    files, languages = find_files(tmp_path / "mine", *paths)
    assert (files["train"], files["valid"], languages) == (tuple(paths), (), ("src", "tgt"))


def test_what_cannot_be_recognised_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="texts: no such folder; put aligned text there"):
        find_files(tmp_path / "texts", None, None)
    write(tmp_path / "texts", "a.de", "a.en", "b.de", "b.en", "c.de")
    with pytest.raises(UserError, match=r"training text \(a.de and a.en; b.de and b.en\); call them train.de"):
        find_files(tmp_path / "texts", None, None)
    with pytest.raises(UserError, match="--source and --target: give both"):
        find_files(tmp_path / "texts", tmp_path / "texts" / "a.de", None)


# The recipe.


def test_a_small_text_gets_a_small_model(tmp_path: Path, seconds: dict[int, float]) -> None:
    write(tmp_path / "texts", "train.de", "train.en")
    assert seconds
    new(tmp_path / "texts", None, None, tmp_path / "mine.toml", 1.0, CPU)
    recipe = load_recipe(tmp_path / "mine.toml", [])
    assert (recipe.run, recipe.data.dataset) == ("runs/mine", "data/mine")
    assert (recipe.data.source, recipe.data.target, recipe.data.held_out) == ("de", "en", 26)
    assert (recipe.data.units, recipe.data.unescape) == ("bpe", False)
    assert (recipe.model.width, recipe.train.steps, recipe.agent.train.steps) == (128, 1000, 200)
    assert recipe.evaluate.policies == ("wait-1", "wait-3", "wait-5", "agent-1", "agent-3", "agent-5", "full")
    assert recipe.agent.train.seed == recipe.train.seed == 1
    with pytest.raises(UserError, match=r"mine.toml: exists; remove it"):
        new(tmp_path / "texts", None, None, tmp_path / "mine.toml", 1.0, CPU)


@pytest.mark.parametrize(("hours", "width"), [(0.5, 128), (1.0, 256), (5.0, 512)])
def test_the_largest_model_is_taken_that_time_allows(
    hours: float, width: int, tmp_path: Path, seconds: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "texts", "train.de", "train.en")
    monkeypatch.setattr(new_recipe, "PASSES", 1500)  # as if the text were large
    sizes = [new_recipe.Size(1, size.width, *(2, 256, 1e-3)) for size in new_recipe.SIZES]
    monkeypatch.setattr(new_recipe, "SIZES", tuple(sizes))
    new(tmp_path / "texts", None, None, tmp_path / "mine.toml", hours, CPU)
    recipe = load_recipe(tmp_path / "mine.toml", [])
    assert recipe.model.width == width
    assert 0.1 * hours < recipe.train.steps * seconds[width] / 3600 < hours


def test_without_time_for_the_smallest_there_are_fewer_updates(tmp_path: Path, seconds: dict[int, float]) -> None:
    write(tmp_path / "texts", "train.de", "train.en")
    seconds[128] = 36.0  # ten hours for all
    new(tmp_path / "texts", None, None, tmp_path / "mine.toml", 1.0, CPU)
    recipe = load_recipe(tmp_path / "mine.toml", [])
    assert (recipe.model.width, recipe.train.steps) == (128, 90)  # 54 minutes


@pytest.mark.parametrize(
    ("line", "units", "unescape"),
    [("a b c .", "bpe", False), ("A b, c.", "sentencepiece", False), ("it &apos;s", "bpe", True)],
)
def test_raw_and_tokenised_text(
    line: str, units: str, unescape: bool, tmp_path: Path, seconds: dict[int, float]
) -> None:
    assert seconds
    [file] = write(tmp_path / "texts", "train.tsv")
    file.write_text("".join(f"{a} {line}\t{b} {line}\n" for a, b in zip(SOURCE, TARGET, strict=True)))
    new(tmp_path / "texts", None, None, tmp_path / "mine.toml", 1.0, CPU)
    data = load_recipe(tmp_path / "mine.toml", []).data
    assert (data.units, data.unescape) == (units, unescape)


def test_too_few_pairs(tmp_path: Path) -> None:
    for name in ("train.de", "train.en"):
        write(tmp_path, name)[0].write_text("one line\n" * 150)
    with pytest.raises(UserError, match=r"train.de: 150 pairs are too few to learn from; give 200 or more"):
        new(tmp_path, None, None, tmp_path / "mine.toml", 1.0, CPU)


@pytest.mark.slow
def test_from_a_folder_to_a_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "texts", "train.de", "train.en")
    monkeypatch.chdir(tmp_path)
    done = whilst("new", "texts", "--hours", "0.01", "--device", "cpu")
    assert done.code == 0, done.err
    assert re.search(r"time +about \d+ (s|min) on CPU", done.out)
    commands = re.findall(r"^    whilst (\w+) (\S+)$", done.out, re.MULTILINE)
    assert commands == [("prepare", "texts.toml"), ("train", "texts.toml")]
    smaller = "train.steps=40", "train.warmup=4", "agent.train.steps=2"
    for command, recipe in commands:
        done = whilst(command, recipe, *(part for setting in smaller for part in ("--set", setting)))
        assert done.code == 0, done.err
    assert (tmp_path / "runs/texts/report/curve.svg").is_file()
