"""Reading and cleaning text; errors name file and line."""

import gzip
import lzma
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.core.settings import Data
from whilst.data.text import cleaner, moses, read_lines, read_pairs, unescape

LINES = ["the kettle sings", "two cups , please", "phở nóng"]


def test_plain_gz_and_xz_read_alike(tmp_path: Path) -> None:
    content = "".join(f"{line}\n" for line in LINES).encode()
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    (tmp_path / "a.xz").write_bytes(lzma.compress(content))
    for name in ("a", "a.gz", "a.xz"):
        assert read_lines(tmp_path / name) == LINES


def test_only_newline_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("\ufeffone\u2028still one\r\ntwo\x0cstill two".encode())
    lines = read_lines(tmp_path / "a")
    assert len(lines) == 2
    assert [cleaner(Data(), "en")(line) for line in lines] == ["one still one", "two still two"]


def test_invalid_utf8_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.en"
    path.write_bytes(b"fine\nalso fine\ncaf\xe9 here\n")
    with pytest.raises(UserError, match=re.escape(f"{path}:3: not valid UTF-8 (byte 0xe9)")):
        read_lines(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_empty_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match="the file is empty"):
        read_lines(tmp_path / "a")


@pytest.mark.parametrize("name", ["a.gz", "a.xz"])
def test_damaged_compression(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not compressed at all")
    with pytest.raises(UserError, match="cannot be read"):
        read_lines(tmp_path / name)


def test_cut_off_compression(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"words and more words\n" * 50)[:-12])
    with pytest.raises(UserError, match="cannot be read"):
        read_lines(tmp_path / "a.gz")


def test_unequal_line_counts(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "b").write_text("eins\nzwei\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a has 3 lines but .*b has 2"):
        read_pairs((tmp_path / "a", tmp_path / "b"))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_pairs((tmp_path / "a", tmp_path / "b"))


def test_tsv(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\teins\ntwo\tzwei\n", encoding="utf-8")
    assert read_pairs((tmp_path / "a.tsv",)) == (["one", "two"], ["eins", "zwei"])


@pytest.mark.parametrize(("line", "columns"), [("two", "1 column "), ("two\tzwei\tdeux", "3 columns ")])
def test_tsv_with_wrong_columns(tmp_path: Path, line: str, columns: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"one\teins\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(f"{path}:2: {columns}")):
        read_pairs((path,))


def test_unescape_needs_the_semicolon() -> None:
    assert unescape("&#91; a &amp; b &#x5D; &apos;s &quot;") == "[ a & b ] 's \""
    assert unescape("R&D &copy2 &nothing; AT&T;") == "R&D &copy2 &nothing; AT&T;"


def test_cleaner_applies_the_settings() -> None:
    raw = " Cafe\u0301\u00a0 &#91;AU LAIT&#93; "
    assert cleaner(Data(), "fr")(raw) == "Café &#91;AU LAIT&#93;"
    assert cleaner(Data(unescape=True, lowercase=True), "fr")(raw) == "café [au lait]"


def test_moses_leaves_entities_to_unescape() -> None:
    pytest.importorskip("sacremoses")
    clean = cleaner(Data(moses=True, unescape=True), "en")
    assert clean("It&apos;s late, isn't it?") == "It 's late , isn 't it ?"
    assert moses("en", escape=True)("it's [so]") == "it &apos;s &#91; so &#93;"


def test_moses_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UserError, match=r"whilst\[moses\]"):
        cleaner(Data(moses=True), "en")


@given(st.text())
def test_clean_lines_stay_clean(raw: str) -> None:
    clean = cleaner(Data(lowercase=True), "en")
    line = clean(raw)
    assert unicodedata.is_normalized("NFC", line)
    assert line == " ".join(line.split())
    assert clean(line) == line


def test_detokenising() -> None:
    pytest.importorskip("sacremoses")
    settings = Data(unescape=True, detokenise=True)
    line = "we didn &apos;t say : &quot; no tea , please &quot; ."
    assert cleaner(settings, "en", from_corpus=True)(line) == 'we didn\'t say: "no tea, please".'
    treebank = "they do n't say `` no tea '' ."
    assert cleaner(settings, "en", from_corpus=True)(treebank) == 'they don\'t say "no tea".'
    assert cleaner(settings, "vi", from_corpus=True)("xin chào , các bạn !") == "xin chào, các bạn!"
    assert cleaner(settings, "en")("say : no") == "say : no", "what people say is no corpus"
