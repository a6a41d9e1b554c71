"""Subtitles: cues are short, in order, do not overlap, and lose no word."""

import itertools
import re
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.live.output import (
    LINE_WIDTH,
    LINGER,
    MAX_LINES,
    MAX_PAUSE,
    MIN_DURATION,
    Cue,
    CueBuilder,
    SubtitleFile,
    format_time,
)
from whilst.live.session import SentenceEnd, Word

# A word and the milliseconds since the last one; an empty word ends a sentence.
spoken = st.lists(
    st.tuples(st.text(st.sampled_from("ab-<>&→好"), max_size=12) | st.just("x" * 100), st.integers(0, 9_000)),
    max_size=60,
)


def collect(words: list[tuple[str, int]]) -> list[Cue]:
    builder, cues, now = CueBuilder(), list[Cue](), 0
    for word, pause in words:
        now += pause
        cues += builder.add(word, now) if word else builder.flush()
    return cues + builder.flush()


@given(spoken)
def test_cues_of_any_words(words: list[tuple[str, int]]) -> None:
    cues = collect(words)
    for cue in cues:
        assert 1 <= len(cue.lines) <= MAX_LINES
        assert all(0 < len(line) <= LINE_WIDTH for line in cue.lines)
        assert cue.end - cue.begin >= MIN_DURATION
    for before, after in itertools.pairwise(cues):
        assert before.end <= after.begin
    shown = "".join(line for cue in cues for line in cue.lines).replace(" ", "")
    assert shown == "".join(word for word, _ in words), "no word is lost"


def test_times_are_those_of_the_words() -> None:
    cues = collect([("one", 500), ("two", 400), ("", 0), ("three", 5_000), ("four", MAX_PAUSE + 1)])
    assert cues == [
        Cue(500, 900 + LINGER, ("one two",)),
        Cue(5_900, 5_900 + LINGER, ("three",)),
        Cue(5_901 + MAX_PAUSE, 5_901 + MAX_PAUSE + LINGER, ("four",)),
    ]


def test_a_full_cue_ends_when_the_next_begins() -> None:
    cues = collect([(letter * 20, 300) for letter in "abcdefg"])
    assert [cue.lines for cue in cues] == [
        ("a" * 20 + " " + "b" * 20, "c" * 20 + " " + "d" * 20),
        ("e" * 20 + " " + "f" * 20, "g" * 20),
    ]
    assert (cues[0].begin, cues[0].end) == (300, 1500)
    assert cues[1].begin == 1500


def test_times() -> None:
    assert format_time(0, ",") == "00:00:00,000"
    assert format_time(3_600_000 * 101 + 62_045, ".") == "101:01:02.045"


def fill(file: SubtitleFile, words: list[tuple[str, float]]) -> None:
    for word, time in words:
        if word:
            file.target_word(Word(word, 0, 1, 1), time, time + 0.1)
        else:
            file.sentence_end(SentenceEnd(0, 1, 1), time)


def test_files_are_valid_after_every_cue(tmp_path: Path) -> None:
    words = [("a-->b", 0.5), ("<unk>", 1.0), ("", 1.0), ("c", 3.0)]
    srt, vtt = SubtitleFile(tmp_path / "new" / "a.srt", "srt"), SubtitleFile(tmp_path / "a.vtt", "vtt")
    assert (tmp_path / "a.vtt").read_text() == "WEBVTT\n\n"
    for file in (srt, vtt):
        fill(file, words)
    first = "1\n00:00:00,500 --> 00:00:02,000\na→b <unk>\n\n"
    assert (tmp_path / "new" / "a.srt").read_text(encoding="utf-8") == first, (
        "written before the next sentence ends"
    )
    for file in (srt, vtt):
        file.close()
    second = "2\n00:00:03,000 --> 00:00:04,000\nc\n\n"
    assert (tmp_path / "new" / "a.srt").read_text(encoding="utf-8") == first + second
    assert (tmp_path / "a.vtt").read_text(encoding="utf-8") == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:02.000\na--&gt;b &lt;unk&gt;\n\n00:00:03.000 --> 00:00:04.000\nc\n\n"
    )


def test_a_full_disk_leaves_whole_cues_and_the_session_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)  # makes writing fail
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60, limits[1]))
    try:
        file = SubtitleFile(tmp_path / "a.srt", "srt")
        fill(file, [("one", 1.0), ("", 1.0), ("two", 5.0), ("", 5.0), ("three", 9.0), ("", 9.0)])
        with pytest.raises(UserError, match=r"a\.srt: ends after 1 subtitles \("):
            file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "a.srt").read_text() == "1\n00:00:01,000 --> 00:00:02,000\none\n\n"
    assert capsys.readouterr().err.count("the translation goes on") == 1


@given(spoken)
def test_files_parse_again(words: list[tuple[str, int]]) -> None:
    from tempfile import TemporaryDirectory

    cues = collect(words)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.srt"
        file, now = SubtitleFile(path, "srt"), 0
        for word, pause in words:
            now += pause
            fill(file, [(word, now / 1000)])
        file.close()
        blocks = path.read_text(encoding="utf-8").split("\n\n")[:-1]
    assert len(blocks) == len(cues)
    for number, (block, cue) in enumerate(zip(blocks, cues, strict=True), start=1):
        count, times, *lines = block.split("\n")
        assert int(count) == number
        assert re.fullmatch(r"\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}", times)
        assert lines == [line.replace("-->", "→") for line in cue.lines]
