"""Units that are not learnt: of a run, of codes and models of other programs, of a vocabulary file."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceTrainer

from whilst.core.config import load_recipe
from whilst.core.errors import UserError
from whilst.core.settings import Data, Recipe
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.data.vocabulary import SPECIALS, UNK
from whilst.model.checkpoint import write_run

TEXT = ["the baker bakes bread", "the brewer brews beer", "a board is a board", "the bread is on a board"]
OTHER = ["der bäcker bäckt brot", "der brauer braut bier", "ein brett ist ein brett", "das brot ist auf dem brett"]
SUBWORD_NMT = "#version: 0.2\nt h\nth e</w>\nb r\n"
FASTBPE = "t h 30\nth e</w> 20\nb r 9\n"


@pytest.fixture
def data(tmp_path: Path) -> Data:
    (tmp_path / "text.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(TEXT, OTHER, strict=True)))
    text = ("text.tsv",)
    return Data(str(tmp_path / "set"), source="en", target="de", folder=str(tmp_path), train=text, valid=text)


def prepared(data: Data, **settings: object) -> Dataset:
    return Dataset.open(prepare(dataclasses.replace(data, **settings), overwrite=True))  # type: ignore[arg-type]


def units(made: Dataset, side: str, sentence: int = 0) -> list[str]:
    language, tokens = getattr(made, side), getattr(made.split("train"), side)
    return [language.units[id] for id in tokens[sentence]]


def write_pieces(path: Path, lines: list[str], **options: Any) -> None:
    """A model of SentencePiece, as people train it."""
    model = io.BytesIO()
    plain: dict[str, Any] = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2}
    SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **(plain | options))
    path.write_bytes(model.getvalue())


# Codes of byte pair encoding.


@pytest.mark.parametrize("codes", [SUBWORD_NMT, FASTBPE])
def test_codes_of_other_programs(data: Data, tmp_path: Path, codes: str) -> None:
    (tmp_path / "codes").write_text(codes)
    made = prepared(data, segmentation=("codes",))
    assert " ".join(units(made, "source")) == "the</w> b a k e r</w> b a k e s</w> br e a d</w> </s>"
    assert units(made, "target")[-4:] == ["br", "o", "t</w>", "</s>"]
    assert set(made.manifest["inputs"]) == {"train.pairs", "valid.pairs", "segmentation.both"}
    (tmp_path / "codes").write_text(codes.replace("b r", "e r"))
    with pytest.raises(UserError, match="made from other files or settings"):
        prepare(dataclasses.replace(data, segmentation=("codes",)))


def test_each_language_has_codes_of_its_own(data: Data, tmp_path: Path) -> None:
    (tmp_path / "en").write_text(SUBWORD_NMT)
    (tmp_path / "de").write_text("#version: 0.2\no t</w>\n")
    made = prepared(data, segmentation=("en", "de"))
    assert units(made, "source")[0] == "the</w>"
    assert units(made, "target")[-3:] == ["r", "ot</w>", "</s>"]


def test_a_vocabulary_as_fairseq_writes_it(data: Data, tmp_path: Path) -> None:
    """Its units, in its order; others are unknown."""
    (tmp_path / "codes").write_text(SUBWORD_NMT)
    (tmp_path / "dict.en.txt").write_text("the 9\nbr@@ 5\ne@@ 4\na@@ 3\nd 2\n<unk> 1\n")
    (tmp_path / "dict.de.txt").write_text("br@@ 5\no@@ 4\nt 3\n")
    made = prepared(data, segmentation=("codes",), vocabulary=("dict.en.txt", "dict.de.txt"))
    assert made.source.units == (*SPECIALS, "the</w>", "br", "e", "a", "d</w>")
    assert made.target.units == (*SPECIALS, "br", "o", "t</w>")
    assert units(made, "target")[-4:] == ["br", "o", "t</w>", "</s>"]
    assert UNK in made.split("train").target[0]


@pytest.mark.parametrize(
    ("content", "line"),
    [("e n</w>\n", 1), ("#version: 0.2\ne n</w>\nt h e\n", 3), ("e n 3\nt h e\n", 2), ("#version: 0.1\na b\n", 1)],
)
def test_codes_that_are_none(data: Data, tmp_path: Path, content: str, line: int) -> None:
    (tmp_path / "codes").write_text(content)
    with pytest.raises(UserError, match=rf"codes:{line}: '.*' is not a merge; give codes of subword-nmt"):
        prepared(data, segmentation=("codes",))
    with pytest.raises(UserError, match=r"gone: no such file"):
        prepared(data, segmentation=("gone",))
    with pytest.raises(UserError, match=r'data\.segmentation: .*codes: data\.units = "word" needs no file'):
        prepared(data, segmentation=("codes",), units="word")


# Models of SentencePiece.


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_model_of_sentencepiece(data: Data, tmp_path: Path, kind: str) -> None:
    write_pieces(tmp_path / "a.model", TEXT + OTHER, model_type=kind, user_defined_symbols=["<pad>"])
    made = prepared(data, units="sentencepiece", segmentation=("a.model",))
    assert made.source.units == made.target.units
    assert made.source.units[:4] == SPECIALS
    assert len(made.source) > len({*made.split("train").source.tokens}) + 3  # pieces that only the target has
    train = made.split("train")
    for number, pair in enumerate(zip(TEXT, OTHER, strict=True)):
        assert " ".join(made.source.decode(train.source[number])) == pair[0]
        assert " ".join(made.target.decode(train.target[number])) == pair[1]


def test_a_model_for_each_language_and_a_vocabulary(data: Data, tmp_path: Path) -> None:
    for name, lines in (("en", TEXT), ("de", OTHER)):
        write_pieces(tmp_path / f"{name}.model", lines)
    (tmp_path / "en.vocab").write_text("<unk>\t0\n<s>\t0\n\u2581the\t-1.5\n\u2581a\t-2\n")
    given = {"units": "sentencepiece", "segmentation": ("en.model", "de.model")}
    made = prepared(data, **given)
    assert any("ä" in unit for unit in made.target.units)
    assert not any("ä" in unit for unit in made.source.units)
    made = prepared(data, **given, vocabulary=("en.vocab", "en.vocab"))
    assert made.source.units == (*SPECIALS, "\u2581the", "\u2581a")
    (tmp_path / "en.vocab").write_text("<unk>\t0\n<s>\t0\n")
    with pytest.raises(UserError, match=r"en\.vocab: has no units but special ones"):
        prepared(data, **given, vocabulary=("en.vocab", "en.vocab"))


def test_a_word_that_a_model_normalises_to_nothing_is_unknown(data: Data, tmp_path: Path) -> None:
    write_pieces(tmp_path / "a.model", TEXT + OTHER)
    made = prepared(data, units="sentencepiece", segmentation=("a.model",))
    assert made.source.encode(["\u200b"]) == [UNK]


def test_models_that_cannot_be_used(data: Data, tmp_path: Path) -> None:
    (tmp_path / "text.model").write_text("no model")
    write_pieces(tmp_path / "bytes.model", TEXT, byte_fallback=True, vocab_size=300)
    write_pieces(tmp_path / "suffix.model", TEXT, treat_whitespace_as_suffix=True)
    write_pieces(tmp_path / "plain.model", TEXT, add_dummy_prefix=False)
    for name, message in (
        ("text", "not a SentencePiece model"),
        ("bytes", "has pieces for bytes"),
        ("suffix", "does not mark where a word begins"),
        ("plain", "does not mark where a word begins"),
    ):
        with pytest.raises(UserError, match=rf"{name}\.model: {message}"):
            prepared(data, units="sentencepiece", segmentation=(f"{name}.model",))


# The units of a run.


@pytest.fixture
def run(data: Data, tmp_path: Path) -> Path:
    """A run folder without weights, whose settings are not the defaults."""
    settings = dataclasses.replace(data, size=12, joint=False, lowercase=True)
    made, folder = Dataset.open(prepare(settings)), tmp_path / "run"
    write_run(folder, Recipe(str(folder), data=settings), made.source, made.target)
    return folder


def recipe_for(run: Path, data: Data, tmp_path: Path, more: str = "") -> Data:
    """The settings of a recipe that names the run and other text only."""
    (tmp_path / "other.tsv").write_text("The Baker is on BREAD\tder bäcker ist auf brot\n")
    path = tmp_path / "other.toml"
    path.write_text(
        f'[data]\ndataset = "{tmp_path}/other"\nfolder = "{data.folder}"\ntrain = ["other.tsv"]\n'
        f'valid = ["other.tsv"]\nlike = "{run}"\n{more}'
    )
    return load_recipe(path, []).data


def test_a_dataset_like_a_run_has_its_units_and_cleaning(data: Data, run: Path, tmp_path: Path) -> None:
    settings = recipe_for(run, data, tmp_path)
    assert (settings.source, settings.joint, settings.size, settings.lowercase) == ("en", False, 12, True)
    made, old = Dataset.open(prepare(settings)), Dataset.open(Path(data.dataset))
    made.require_units("start", run)
    assert made.source.encode(["bread"]) == old.source.encode(["bread"])
    assert made.source.decode(made.split("train").source[0]) == ["the", "baker", "is", "on", "bread"]
    assert {"like.source.json", "like.target.split"} <= made.manifest["inputs"].keys()
    assert str(tmp_path) not in str(made.manifest)
    assert prepare(settings) == Path(settings.dataset)  # again
    (run / "target.split").write_text("[]")
    with pytest.raises(UserError, match="made from other files or settings"):
        prepare(settings)


def test_a_model_of_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("Thank you.\tCảm ơn.\n", encoding="utf-8")
    text = f'[data]\ndataset = "{tmp_path}/set"\nlike = "en-vi"\nfolder = "{tmp_path}"\n'
    (tmp_path / "a.toml").write_text(f'start = "en-vi"\n{text}train = ["a.tsv"]\nvalid = ["a.tsv"]\n')
    recipe = load_recipe(tmp_path / "a.toml", ["model.dropout=0.2"])
    assert (recipe.model.width, recipe.model.dropout, recipe.data.unescape) == (256, 0.2, True)
    Dataset.open(prepare(recipe.data)).require_units("start", Path(recipe.start))


def test_a_run_with_other_languages_or_units_is_refused(data: Data, run: Path, tmp_path: Path) -> None:
    for more, message in (
        ('target = "fr"', rf"^data\.like: {run} translates en to de, not en to fr$"),
        ('units = "word"', rf'^data\.units: "word", but {run} has "bpe"; leave it out$'),
    ):
        with pytest.raises(UserError, match=message):
            prepare(recipe_for(run, data, tmp_path, more))
    with pytest.raises(UserError, match=rf"^data\.like: {tmp_path}: no run folder \(no source\.json\)"):
        prepare(recipe_for(tmp_path, data, tmp_path))
