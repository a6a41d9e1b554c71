"""The page without a browser: its modules in node, its subtitles and lag compared with Python's, its files."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.live.test_subtitles import spoken
from whilst.data import toy
from whilst.evaluation.metrics import average_lagging
from whilst.live.output import SubtitleFile
from whilst.live.session import SentenceEnd, Word
from whilst.speech.audio import Resampler, from_pcm, to_pcm

PAGE = Path(__file__).parents[2] / "whilst" / "server" / "page"
TESTS = Path(__file__).parent / "page"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file())
MAX_LINES, MAX_COLUMNS = 350, 116
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")

# For each line of JSON, [function, arguments...], prints the result as JSON.
CALLS = """
import readline from "node:readline";
import { lagging } from "./text/model.js";
import { Resampler, toPcm } from "./speech/recorder.js";
import { srt, vtt } from "./text/subtitles.js";
function resample(rate, pieces) {
  const resampler = new Resampler(rate);
  return [...toPcm(pieces.flatMap((piece) => resampler.feed(Float32Array.from(piece))))];
}
const functions = { lagging, resample, srt, vtt };
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [name, ...given] = JSON.parse(line);
  console.log(JSON.stringify(functions[name](...given)));
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules and their tests in one folder, with the package.json that node needs."""
    folder = Path(shutil.copytree(PAGE, tmp_path_factory.mktemp("page"), dirs_exist_ok=True))
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "calls.js").write_text(CALLS)
    for path in TESTS.glob("*.mjs"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def call(folder: Path) -> Iterator[Callable[..., Any]]:
    assert NODE is not None
    pipe = subprocess.PIPE
    with subprocess.Popen([NODE, "calls.js"], cwd=folder, stdin=pipe, stdout=pipe, encoding="utf-8") as node:
        calls, results = node.stdin, node.stdout
        assert calls is not None
        assert results is not None

        def call(*arguments: Any) -> Any:
            calls.write(json.dumps(arguments) + "\n")
            calls.flush()
            return json.loads(results.readline())

        yield call
        calls.close()


@needs_node
def test_modules(folder: Path) -> None:
    tests = sorted(path.name for path in folder.glob("*.test.mjs"))
    assert len(tests) == len(list(TESTS.iterdir()))
    done = subprocess.run([str(NODE), "--test", *tests], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def written(file: SubtitleFile, path: Path, entries: list[tuple[str, int]]) -> str:
    for word, at in entries:
        if word:
            file.target_word(Word(word, 0, 1, 1), at / 1000, at / 1000)
        else:
            file.sentence_end(SentenceEnd(0, 1, 1), at / 1000)
    file.close()
    return path.read_text(encoding="utf-8")


@needs_node
@example(words=[("just", 0), ("as", 3_000), ("long", 3_000), ("as", 1_000), ("may", 3_001), ("", 0), ("be", 0)])
@given(words=spoken)
def test_subtitles_equal_those_of_python(
    call: Callable[..., Any], folder: Path, words: list[tuple[str, int]]
) -> None:
    now, entries = 0, []
    for word, pause in words:
        now += pause
        entries.append((word, now))
    timeline = [{"text": word, "at": at} if word else None for word, at in entries]
    for name in ("srt", "vtt"):
        path = folder / f"a.{name}"
        assert call(name, timeline) == written(SubtitleFile(path, name), path, entries)


@needs_node
@given(length=st.integers(1, 20), reads=st.lists(st.integers(1, 20), min_size=1, max_size=30).map(sorted))
def test_lag_equals_the_metric(call: Callable[..., Any], length: int, reads: list[int]) -> None:
    reads = [min(read, length) for read in reads]
    assert call("lagging", reads, length) == pytest.approx(average_lagging(reads, length, len(reads)))


@needs_node
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000, 96_000])
def test_audio_is_resampled_as_in_python(call: Callable[..., Any], rate: int) -> None:
    samples = np.random.default_rng(rate).uniform(-1.2, 1.2, rate // 10).astype(np.float32)
    pieces = np.array_split(samples, rate // 10 // 128)  # as browsers cut it
    found = call("resample", rate, [piece.tolist() for piece in pieces])
    wanted = from_pcm(to_pcm(Resampler(rate).feed(samples)))
    assert abs(len(found) - 1600) <= 3
    assert from_pcm(np.asarray(found, "<i2").tobytes()) == pytest.approx(wanted[: len(found)], abs=2e-4)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_load_nothing_from_other_hosts(path: Path) -> None:
    """Nor use inline scripts and styles: the content security policy forbids both."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert max(map(len, text.splitlines())) <= MAX_COLUMNS or path.suffix == ".svg"
    hosts = set(re.findall(r"(?:https?:)?//([\w.-]+\.\w+)", text)) - {"www.w3.org"}  # a namespace
    assert not hosts
    if path.suffix == ".html":
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:", text)
    if path.suffix == ".js":
        assert not re.search(r"\beval\(|new Function|innerHTML|setAttribute\(.style", text)


def test_all_files_are_used_and_exist() -> None:
    pages = sorted(PAGE.glob("*.html"))
    html = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"(?:href|src)=\"(?:\.\./)?static/([^\"]+)\"", html)) | {page.name for page in pages}
    for module in PAGE.rglob("*.js"):
        for path in re.findall(r"from \"([^\"]+)\"", module.read_text(encoding="utf-8")):
            named.add((module.parent / path).resolve().relative_to(PAGE).as_posix())
    assert named == {path.relative_to(PAGE).as_posix() for path in FILES}, "missing or unused files"


def test_the_toy_sample_is_in_the_toy_language() -> None:
    text = re.search(
        r"const TOY = `(.*?)`", (PAGE / "text" / "sample.js").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert text is not None
    known = {word for pair in toy.pairs(2_000, seed=1) for word in pair.source}
    assert set(text[1].split()) <= known


@pytest.mark.parametrize("page", ["index.html", "watch.html"])
def test_every_control_has_a_name(page: str) -> None:
    """For screen readers; test_page_browser checks the accessibility tree of the browser."""
    html = (PAGE / page).read_text(encoding="utf-8")
    for attributes, text in re.findall(r"<button([^>]*)>(.*?)</button>", html, flags=re.DOTALL):
        assert "aria-label=" in attributes or re.sub(r"<.*?>", "", text).strip()
        assert 'type="' in attributes
