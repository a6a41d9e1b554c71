"""Making and reading dataset folders: skipped pairs are counted, errors name file and line."""

import dataclasses
import lzma
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256, sha256_lines, write_json
from whilst.core.settings import Data
from whilst.data import dataset as dataset_module
from whilst.data.dataset import Dataset, TokenSequences
from whilst.data.prepare import prepare
from whilst.data.vocabulary import EOS, UNK

TRAIN = [
    ("The cat sleeps .", "die katze schläft ."),
    ("the dog sleeps .", "der hund schläft ."),
    ("a cat and a dog .", "eine katze und ein hund ."),
    ("", "nichts"),
    ("too long " * 9, "zu lang " * 9),
    ("short", "das hier ist viel zu viel"),
    ("the cat and the dog .", "die katze und der hund ."),
]
VALID = [("the cat .", "die katze ."), ("the dog barks .", "der hund bellt .")]
TEST = [("a dog .", "ein hund ."), ("long " * 20, "lang " * 20)]


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """Settings for six small files; words are the units."""
    for split, pairs in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        write(tmp_path / f"{split}.en", [source for source, _ in pairs])
        write(tmp_path / f"{split}.de", [target for _, target in pairs])
    return Data(
        dataset=str(tmp_path / "out" / "set"),
        source="en",
        target="de",
        folder=str(tmp_path),
        train=("train.en", "train.de"),
        valid=("valid.en", "valid.de"),
        test=("test.en", "test.de"),
        lowercase=True,
        units="word",
        max_length=10,
        max_ratio=3.0,
    )


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize("units", ["word", "bpe", "sentencepiece"])
@pytest.mark.parametrize("joint", [True, False])
def test_round_trip(data: Data, units: str, joint: bool) -> None:
    long_enough = {"units": units, "joint": joint, "size": 60, "max_length": 60, "max_ratio": 0.0}
    settings = dataclasses.replace(data, **long_enough)  # type: ignore[arg-type]
    made = Dataset.open(prepare(settings))
    assert (made.source.name, made.target.name) == ("en", "de")
    kept = [(source.lower().strip(), target.strip()) for source, target in TRAIN if source]
    split = made.split("train")
    assert len(split.source) == len(split.target) == len(kept)
    for index, (source, target) in enumerate(kept):
        assert split.source[index][-1] == EOS
        assert " ".join(made.source.decode(split.source[index])) == source
        assert " ".join(made.target.decode(split.target[index])) == target
    assert made.text("valid") == ([source for source, _ in VALID], [target for _, target in VALID])
    assert isinstance(split.source.tokens, np.memmap)
    assert split.source.tokens.dtype == np.uint16


def test_manifest_counts_everything(data: Data) -> None:
    manifest = Dataset.open(prepare(data)).manifest
    train, valid, test = (manifest["splits"][name] for name in ("train", "valid", "test"))
    assert (train["read"], train["pairs"]) == (7, 4)
    assert train["skipped"] == {"empty": 1, "too_long": 1, "ratio": 1}
    assert train["source"]["unknown"] == 0
    assert valid["source"]["unknown"] == 1 / 7  # barks
    assert valid["target"]["unknown"] == 1 / 7  # bellt
    assert (test["pairs"], test["too_long_kept"], test["source"]["longest"]) == (2, 1, 20)
    assert manifest["vocabulary"]["source"] == 4 + 9  # the cat sleeps . dog a and too long
    folder = Path(data.folder)
    assert manifest["inputs"]["test.target"] == {"file": "test.de", "sha256": sha256(folder / "test.de")}
    assert valid["source"]["text_sha256"] == sha256_lines([source for source, _ in VALID])
    assert manifest["settings"]["max_ratio"] == 3.0
    assert data.folder not in str(manifest)  # the manifest does not depend on paths


def test_minimum_frequency_makes_words_unknown(data: Data) -> None:
    made = Dataset.open(prepare(dataclasses.replace(data, minimum_frequency=3)))
    sentence = made.split("train").source[0]
    assert [made.source.units[id] for id in sentence] == ["the", "cat", "<unk>", ".", "</s>"]
    assert made.manifest["splits"]["train"]["source"]["unknown"] > 0


def test_subwords_and_tsv(data: Data, tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", ["the hat the cap\tder hut der rabe"])
    settings = dataclasses.replace(data, units="bpe", joint=False, size=2, train=("train.tsv",), test=())
    made = Dataset.open(prepare(settings))
    units = [made.source.units[id] for id in made.split("train").source[0]]
    assert units == ["the</w>", "h", "a", "t</w>", "the</w>", "c", "a", "p</w>", "</s>"]
    assert set(made.manifest["inputs"]) == {"train.pairs", "valid.source", "valid.target"}
    with pytest.raises(UserError, match="no split 'test', only train, valid"):
        made.split("test")


def test_several_pairs_of_files_are_joined(data: Data, tmp_path: Path) -> None:
    write(tmp_path / "more.en", ["a bird ."])
    write(tmp_path / "more.de", ["ein vogel ."])
    settings = dataclasses.replace(data, train=(*data.train, "more.en", "more.de"))
    made = Dataset.open(prepare(settings))
    split, inputs = made.split("train"), made.manifest["inputs"]
    assert made.source.decode(split.source[4]) == ["a", "bird", "."]
    assert (len(split.source), made.manifest["splits"]["train"]["read"]) == (5, 8)
    assert (inputs["train.source"]["file"], inputs["train.2.target"]["file"]) == ("train.en", "more.de")
    write(tmp_path / "more.de", ["ein vogel .", "zu viel"])
    with pytest.raises(UserError, match=r"more\.en has 1 lines but .*more\.de has 2"):
        prepare(settings, overwrite=True)


def test_moses_skips_tokenised_files(data: Data, tmp_path: Path) -> None:
    write(tmp_path / "raw.en", ["It isn't, is it?"])
    write(tmp_path / "raw.de", ["Nicht wahr?"])
    for split in ("valid", "test"):
        write(tmp_path / f"{split}.en", ["it isn &apos;t , is it ?"])
        write(tmp_path / f"{split}.de", ["nicht wahr ?"])
    settings = dataclasses.replace(
        data,
        train=("valid.en", "valid.de", "raw.en", "raw.de"),
        moses=True,
        unescape=True,
        tokenised=("valid.*", "test.e[n]", "test.de"),
    )
    made = Dataset.open(prepare(settings))
    train = made.split("train")
    first, second = (made.source.decode(train.source[number]) for number in range(2))
    assert first == second == ["it", "isn", "'t", ",", "is", "it", "?"]
    assert made.text("test") == (["it isn 't , is it ?"], ["nicht wahr ?"])


def test_a_manifest_without_a_newer_setting_still_matches(data: Data) -> None:
    path = prepare(data) / "manifest.json"
    manifest = read_json(path)
    del manifest["settings"]["tokenised"]
    write_json(path, manifest)
    prepare(data)
    with pytest.raises(UserError, match="--overwrite"):
        prepare(dataclasses.replace(data, tokenised=("train.*",)))


def test_the_same_text_has_the_same_checksum(data: Data, tmp_path: Path) -> None:
    """Whatever the names and the compression of the files."""
    for side in ("en", "de"):
        (tmp_path / f"packed.{side}.xz").write_bytes(lzma.compress((tmp_path / f"train.{side}").read_bytes()))
    packed = dataclasses.replace(
        data, dataset=str(tmp_path / "again"), train=("packed.en.xz", "packed.de.xz"), toy_seed=7
    )
    checksum = Dataset.open(prepare(data)).checksum
    assert Dataset.open(prepare(packed)).checksum == checksum
    others = (
        dataclasses.replace(data, max_length=4),
        dataclasses.replace(data, lowercase=False),
        dataclasses.replace(data, minimum_frequency=2),
    )
    for number, other in enumerate(others):
        path = prepare(dataclasses.replace(other, dataset=str(tmp_path / f"other-{number}")))
        assert Dataset.open(path).checksum != checksum


def test_the_direction_can_be_reversed(data: Data) -> None:
    turned = dataclasses.replace(
        data, source="de", target="en", train=data.train[::-1], valid=data.valid[::-1], test=data.test[::-1]
    )
    assert Dataset.open(prepare(turned)).text("valid")[0] == [target for _, target in VALID]


def test_an_existing_dataset_is_reused(data: Data, capsys: pytest.CaptureFixture[str]) -> None:
    made = prepare(data)
    before = (made / "manifest.json").stat().st_mtime_ns
    assert "pairs" in capsys.readouterr().out
    assert prepare(data) == made
    assert "already prepared" in capsys.readouterr().out
    assert (made / "manifest.json").stat().st_mtime_ns == before


def test_other_settings_or_files_need_overwrite(data: Data, tmp_path: Path) -> None:
    prepare(data)
    other = dataclasses.replace(data, lowercase=False)
    with pytest.raises(UserError, match="--overwrite"):
        prepare(other)
    prepare(other, overwrite=True)
    assert "The" in Dataset.open(Path(data.dataset)).source.units
    write(tmp_path / "valid.en", ["another", "text"])
    with pytest.raises(UserError, match="--overwrite"):
        prepare(other)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["set"]  # nothing temporary is left


def test_other_folders_are_never_deleted(data: Data) -> None:
    folder = Path(data.dataset)
    folder.mkdir(parents=True)
    prepare(data)  # an empty folder may be taken
    (folder / "manifest.json").unlink()
    with pytest.raises(UserError, match="is not a dataset"):
        prepare(data, overwrite=True)


def test_failure_leaves_nothing(data: Data, tmp_path: Path) -> None:
    write(tmp_path / "test.de", ["", ""])
    with pytest.raises(UserError, match="empty"):
        prepare(data)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(("side", "what"), [("en", "source"), ("de", "target")])
def test_empty_side_in_valid_is_refused(data: Data, tmp_path: Path, side: str, what: str) -> None:
    path = tmp_path / f"valid.{side}"
    write(path, ["something", "  "])
    with pytest.raises(UserError, match=re.escape(f"{path}:2: an empty {what}")):
        prepare(data)


def test_pairs_are_held_out_evenly_and_not_trained_on(data: Data, tmp_path: Path) -> None:
    sentences = [f"s{number // 2 if number < 4 else number}" for number in range(20)]  # two occur twice
    write(tmp_path / "train.en", sentences)
    write(tmp_path / "train.de", [f"t{number}" for number in range(20)])
    data = dataclasses.replace(data, valid=(), test=(), held_out=2)
    made = Dataset.open(prepare(data))
    assert made.text("valid") == (["s0", "s10"], ["t0", "t10"])
    assert made.text("test") == (["s5", "s15"], ["t5", "t15"])
    train = made.manifest["splits"]["train"]
    assert (train["pairs"], train["skipped"]["held_out"]) == (15, 5)  # with the other s0
    assert {made.source.decode(made.split("train").source[i])[0] for i in range(15)}.isdisjoint({"s0", "s5", "s10"})

    only_test = dataclasses.replace(data, valid=("valid.en", "valid.de"), dataset=f"{data.dataset}.2")
    made = Dataset.open(prepare(only_test))
    assert made.text("valid")[0] == ["the cat .", "the dog barks ."]
    assert made.text("test")[0] == ["s0", "s10"]


def test_too_many_held_out_pairs(data: Data) -> None:
    for valid, count, total in (((), 3, 6), (data.valid, 5, 5)):
        with pytest.raises(UserError, match=rf"data.held_out: {total} of 5 pairs leave none to train on"):
            prepare(dataclasses.replace(data, valid=valid, test=(), held_out=count))


def test_text_is_kept_apart_in_both_directions(data: Data, tmp_path: Path) -> None:
    sentences = [f"This is sentence number {number}." for number in range(12)]
    said = [f"Das ist der Satz {number}, ja." for number in range(12)]
    write(tmp_path / "train.en", [*sentences, "This is  Sentence number 3 !", "Yes?"])
    write(tmp_path / "train.de", [*said, "Etwas anderes.", "Ja?"])
    apart = (("odd", r"[13579]\D*$", *data.train), ("any", "", *data.train))
    settings = dataclasses.replace(data, apart=apart, apart_pairs=3, max_ratio=0.0)
    made = Dataset.open(prepare(settings))
    odd, others = made.text("odd"), made.text("any")
    assert len(odd[0]) == len(others[0]) == 3
    assert all(int(re.sub(r"\D", "", text)) % 2 for text in odd[0])
    assert {*odd[0]}.isdisjoint(others[0])
    train = made.manifest["splits"]["train"]
    split = made.split("train")
    left = {" ".join(made.source.decode(split.source[number])) for number in range(len(split.source))}
    assert train["pairs"] + train["skipped"]["apart"] == 14
    has_three = [any("number 3" in text for text in texts) for texts in (left, [*odd[0], *others[0]])]
    assert has_three in ([True, False], [False, True]), "both spellings, or none"
    assert left.isdisjoint({*odd[0], *others[0]})
    assert "yes?" in left, "too short to be chosen"

    turned = dataclasses.replace(
        settings,
        source="de",
        target="en",
        train=data.train[::-1],
        valid=data.valid[::-1],
        test=data.test[::-1],
        apart=tuple((name, pattern, *files[::-1]) for name, pattern, *files in apart),
        dataset=f"{data.dataset}.2",
    )
    made = Dataset.open(prepare(turned))
    assert (made.text("odd"), made.text("any")) == (odd[::-1], others[::-1])


@pytest.mark.parametrize(
    ("apart", "message"),
    [
        (("test", "", "train.en", "train.de"), "test is a split of its own"),
        (("news", "(", "train.en", "train.de"), "not a regular expression"),
        (("news", "", "train.en", "train.de"), "news has only 4 pairs"),
        (("news", "", "gone.en", "gone.de"), "no such file"),
    ],
)
def test_text_that_cannot_be_kept_apart(data: Data, apart: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        prepare(dataclasses.replace(data, apart=(apart,)))


def test_only_tokenised_files_are_detokenised(data: Data, tmp_path: Path) -> None:
    write(tmp_path / "raw.en", ["Raw text , as it is."])
    write(tmp_path / "raw.de", ["Text , wie er ist."])
    train = ("train.en", "train.de", "raw.en", "raw.de")
    settings = dataclasses.replace(data, train=train, detokenise=True, tokenised=("train.*", "valid.*", "test.*"))
    made = Dataset.open(prepare(settings))
    split = made.split("train")
    texts = [" ".join(made.source.decode(split.source[number])) for number in range(len(split.source))]
    assert (texts[0], texts[-1]) == ("the cat sleeps.", "raw text , as it is.")


def test_no_pairs_left(data: Data) -> None:
    with pytest.raises(UserError, match=r"no pair is left of 7 \(1 empty, 6 ratio\)"):
        prepare(dataclasses.replace(data, max_ratio=0.5))
    with pytest.raises(UserError, match=r"data\.max_length: every train pair"):
        prepare(dataclasses.replace(data, max_length=2))


def test_missing_files(data: Data) -> None:
    with pytest.raises(UserError, match=r"nowhere\.en: no such file"):
        prepare(dataclasses.replace(data, train=("nowhere.en", "train.de")))


def test_opening_an_incomplete_dataset(data: Data, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such dataset"):
        Dataset.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a dataset"):
        Dataset.open(tmp_path)
    made = prepare(data)
    with pytest.raises(UserError, match="units only"):
        Dataset.open(made).text("train")
    tokens = made / "train.source.tokens.npy"
    np.save(tokens, np.load(tokens)[:-1])
    with pytest.raises(UserError, match=r"train\.source is cut off"):
        Dataset.open(made).split("train")
    tokens.unlink()
    with pytest.raises(UserError, match=r"train\.source is missing or damaged"):
        Dataset.open(made).split("train")
    (made / "target.json").unlink()
    with pytest.raises(UserError, match=r"target\.json: no such file"):
        Dataset.open(made)


def test_another_format_is_refused_but_can_be_overwritten(data: Data) -> None:
    made = prepare(data)
    manifest = read_json(made / "manifest.json")
    write_json(made / "manifest.json", {**manifest, "format": dataset_module.FORMAT + 1})
    for attempt in (lambda: Dataset.open(made), lambda: prepare(data)):
        with pytest.raises(UserError, match="dataset format 2, but this version reads 1"):
            attempt()
    prepare(data, overwrite=True)
    assert Dataset.open(made).manifest == manifest


@given(st.lists(st.lists(st.integers(UNK, 70_000), max_size=5), min_size=1, max_size=8))
def test_token_sequences_return_their_sentences(sentences: list[list[int]]) -> None:
    ended = [[*sentence, EOS] for sentence in sentences]
    offsets = np.cumsum([0, *map(len, ended)])
    sequences = TokenSequences(np.array([id for sentence in ended for id in sentence], dtype=np.int32), offsets)
    assert [list(sequences[index]) for index in range(len(sequences))] == ended
    assert list(sequences.lengths) == [len(sentence) for sentence in ended]
    for outside in (-1, len(sequences)):
        with pytest.raises(IndexError):
            sequences[outside]
