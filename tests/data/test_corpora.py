"""Known corpora: found in a folder, downloaded, or unpacked from the original archive."""

import io
import lzma
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whilst.core.errors import UserError
from whilst.core.settings import Data
from whilst.data import corpora
from whilst.data.corpora import download, fits, locate, segments, talk_lines
from whilst.data.prepare import prepare
from whilst.data.text import read_lines


def touch(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        content = b"a line\n"
        (folder / name).write_bytes(lzma.compress(content) if name.endswith(".xz") else content)


def iwslt15(folder: Path, source: str = "en", target: str = "vi") -> Data:
    return Data(corpus="iwslt15", source=source, target=target, folder=str(folder))


@pytest.mark.parametrize("suffix", ["", ".xz"])
@pytest.mark.parametrize(("source", "target"), [("en", "vi"), ("vi", "en")])
def test_iwslt15_in_a_folder(tmp_path: Path, suffix: str, source: str, target: str) -> None:
    touch(tmp_path, *(f"train.{language}{suffix}" for language in ("en", "vi")))
    touch(tmp_path, *(f"{split}.{language}" for split in ("tst2012", "tst2013") for language in ("en", "vi")))
    files = locate(iwslt15(tmp_path, source, target))
    assert files["train"] == (tmp_path / f"train.{source}{suffix}", tmp_path / f"train.{target}{suffix}")
    assert files["valid"] == (tmp_path / f"tst2012.{source}", tmp_path / f"tst2012.{target}")
    assert files["test"] == (tmp_path / f"tst2013.{source}", tmp_path / f"tst2013.{target}")


def test_a_missing_file_and_wrong_languages(tmp_path: Path) -> None:
    touch(tmp_path, "train.en")
    with pytest.raises(UserError, match=r"no train\.vi \(or \.xz, \.gz\)"):
        locate(iwslt15(tmp_path))
    with pytest.raises(UserError, match="iwslt15 is in en and vi, not en and de"):
        locate(iwslt15(tmp_path, "en", "de"))


def test_iwslt15_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    names = [f"{split}.{side}" for split in ("train", "tst2012", "tst2013") for side in ("en", "vi")]
    touch(site, *names)
    monkeypatch.setattr(corpora, "IWSLT15_SITE", site.as_uri())
    settings = Data(corpus="iwslt15", source="vi", target="en", dataset=str(tmp_path / "data" / "set"))
    files = locate(settings)
    assert read_lines(files["train"][0]) == ["a line"]
    for name in names:
        (site / name).unlink()
    assert locate(settings) == files  # existing files are not downloaded again
    assert files["train"][0] == tmp_path / "data" / "iwslt15" / "train.vi"


def test_without_internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    settings = Data(corpus="iwslt14", source="de", target="en", dataset=str(tmp_path / "set"))
    with pytest.raises(UserError, match=r"cannot be fetched .*no route.*--set data\.folder=FOLDER"):
        locate(settings)
    assert not list(tmp_path.rglob("*.tgz"))


def test_a_broken_download_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer(io.BytesIO):
        headers = {"Content-Length": "100"}  # noqa: RUF012

    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Answer(b"only this"))
    with pytest.raises(UserError, match="broke off"):
        download("http://example.org/file", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_toy(tmp_path: Path) -> None:
    settings = Data(corpus="toy", dataset=str(tmp_path / "set"), toy_pairs=3)
    files = locate(settings)
    assert [path.name for path in files["train"]] == ["train.src", "train.tgt"]
    assert len(read_lines(files["train"][0])) == 3
    with pytest.raises(UserError, match="toy is in src and tgt"):
        locate(Data(corpus="toy", source="en", target="tgt"))


def test_own_files() -> None:
    files = locate(Data(folder="texts", train=("a", "b"), valid=("/v.tsv",)))
    assert files["train"] == (Path("texts/a"), Path("texts/b"))
    assert files["valid"] == (Path("/v.tsv"),)
    assert files["test"] == ()
    with pytest.raises(UserError, match=r"data\.valid: name two aligned files"):
        locate(Data(train=("a", "b")))
    with pytest.raises(UserError, match=r"data\.train: data\.corpus=toy names its files itself"):
        locate(Data(corpus="toy", train=("a", "b")))


def talk(language: str, sentences: list[str]) -> str:
    head = [
        f"<url>http://example.org/{language}</url>",
        "<keywords>kettles, tea</keywords>",
        "<talkid>7</talkid>",
        f"<title>{'Über Tee' if language == 'de' else 'On Tea'}</title>",
        f"<description>{'Ein Gespräch.' if language == 'de' else 'A talk.'}</description>",
    ]
    return "".join(f"{line}\n" for line in head + sentences)


def archive(path: Path, english: int = 46) -> None:
    """A small archive like the original: 46 sentences, 2 of them unsuitable, and five evaluation sets."""
    german = [f"Satz {number}, bitte!" for number in range(46)]
    german[0] = "Viel zu viele Wörter für eine so kurze Zeile."
    german[1] = ""
    sides = {"de": german, "en": [f"Line {number}, please!" for number in range(english)]}
    contents = {f"train.tags.de-en.{lang}": talk(lang, lines) for lang, lines in sides.items()}
    for name in corpora.IWSLT14_TEST:
        for lang in sides:
            contents[f"IWSLT14.{name}.de-en.{lang}.xml"] = (
                f'<refset>\n<hl>no</hl>\n<seg id="1"> {name} it\u2019s [{lang}] </seg>\n</refset>\n'
            )
    with tarfile.open(path, "w:gz") as tar:
        for name, text in contents.items():
            member = tarfile.TarInfo(f"de-en/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))


def test_iwslt14_from_the_archive(tmp_path: Path) -> None:
    pytest.importorskip("sacremoses")
    (tmp_path / "in").mkdir()
    archive(tmp_path / "in" / "de-en.tgz")
    settings = Data(
        corpus="iwslt14",
        source="de",
        target="en",
        folder=str(tmp_path / "in"),
        dataset=str(tmp_path / "out/set"),
    )
    files = locate(settings)
    train = [read_lines(path) for path in files["train"]]
    valid = [read_lines(path) for path in files["valid"]]
    # 48 lines with title and description, 2 unfit: 46 pairs, of which numbers 23 and 46 are validation
    assert (len(train[0]), len(train[1])) == (44, 44)
    assert train[0][:3] == ["über tee", "ein gespräch .", "satz 2 , bitte !"]
    assert train[1][:3] == ["on tea", "a talk .", "line 2 , please !"]
    assert valid == [["satz 22 , bitte !", "satz 45 , bitte !"], ["line 22 , please !", "line 45 , please !"]]
    english = read_lines(files["test"][1])
    assert english[1] == "tedx.dev2012 it &apos;s &#91; en &#93;"
    assert [line.split()[0] for line in english] == [name.lower() for name in corpora.IWSLT14_TEST]
    stamp = files["train"][0].stat().st_mtime_ns
    assert locate(settings) == files
    assert files["train"][0].stat().st_mtime_ns == stamp  # unpacked once


def test_wrong_iwslt14_archives(tmp_path: Path) -> None:
    pytest.importorskip("sacremoses")
    path = tmp_path / "de-en.tgz"
    settings = Data(corpus="iwslt14", source="de", target="en", folder=str(tmp_path), dataset=str(tmp_path / "set"))
    path.write_bytes(b"no archive")
    with pytest.raises(UserError, match="damaged"):
        locate(settings)
    with tarfile.open(path, "w:gz"):
        pass
    with pytest.raises(UserError, match=r"there is no train\.tags\.de-en\.de in it"):
        locate(settings)
    archive(path, english=45)
    with pytest.raises(UserError, match=r"train\.tags has 48 German but 47 English lines"):
        locate(settings)


def test_parts_of_the_extraction() -> None:
    assert talk_lines(["<talkid>1</talkid>", "<title>Tea</title>", "hot"]) == ["Tea", "hot"]
    assert segments(["<doc>", '<seg id="12"> It\u2019s hot. </seg>']) == ["It's hot."]
    assert fits("a b c", "a b")
    assert not fits("a b c d", "a b")
    assert not fits("", "")
    assert not fits("a " * 176, "a " * 176)
    assert fits("a " * 175, "a " * 175)


# Data sets of the Hugging Face hub, from folders in their format.

HUB_PAIRS = [{"de": "die Katze\nschläft", "en": "the cat sleeps"}, {"de": "ein Hund", "en": "a dog"}]


@pytest.fixture
def hub(tmp_path: Path) -> Data:
    """Settings for a data set as `save_to_disk` writes it, without a test split."""
    datasets = pytest.importorskip("datasets", reason="needs the extra hub")
    table = datasets.Dataset.from_dict({"translation": HUB_PAIRS, "id": [1, 2], "domain": ["cats", None]})
    datasets.DatasetDict({"train": table, "validation": table}).save_to_disk(tmp_path / "pets")
    return Data(hub=str(tmp_path / "pets"), dataset=str(tmp_path / "set"), source="de", target="en")


def test_a_data_set_of_the_hub_becomes_files(hub: Data, tmp_path: Path) -> None:
    files = locate(hub)
    assert files["test"] == ()
    assert files["train"] == (tmp_path / "hub-pets" / "train.de", tmp_path / "hub-pets" / "train.en")
    assert files["train"][0].read_text() == "die Katze schläft\nein Hund\n"
    assert files["valid"][1].read_text() == "the cat sleeps\na dog\n"
    named = replace(hub, train=("validation",), test=("train",), hub_columns=("domain", "translation.en"))
    assert locate(named)["test"][0].read_text() == "cats\n\n"
    prepare(replace(hub, units="word"))


def test_a_data_set_with_training_text_only(hub: Data, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "pets" / "validation")
    (tmp_path / "pets" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(UserError, match=r"data\.valid: .* no split 'validation', only train; .*data\.held_out"):
        locate(hub)
    files = locate(replace(hub, held_out=1))
    assert (len(files["train"]), files["valid"], files["test"]) == (2, (), ())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"valid": ("dev",)}, r"data\.valid: .*pets has no split 'dev', only train, validation; name one"),
        ({"source": "fr"}, "data.hub_columns: .*pets has the columns translation.de, translation.en, domain"),
        ({"hub_columns": ("id", "domain")}, r"data\.hub_columns: .*pets has the columns"),
        ({"hub": "/no/such/folder"}, r"^data\.hub: /no/such/folder: [^\n]*$"),
        ({"corpus": "toy"}, r"data\.hub: data\.corpus=toy names its files itself"),
    ],
)
def test_data_sets_that_do_not_fit(hub: Data, settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        locate(replace(hub, **settings))


def test_a_data_set_of_the_hub_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"datasets is not installed: pip install 'whilst\[hub\]'"):
        locate(Data(hub="pets"))
