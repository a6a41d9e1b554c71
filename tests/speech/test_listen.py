"""`whilst listen` and `whilst demo --speech` as people run them, and what they say if something is missing."""

import contextlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import whilst
from tests.helpers.serving import local_server, make_served, make_words, translate_alone, words_of
from tests.helpers.speech import program, write_wav
from tests.speech.test_recogniser import needs_moonshine
from whilst.core.errors import UserError
from whilst.live.session import SentenceEnd
from whilst.live.terminal import TALK
from whilst.model.transformer import Translator
from whilst.server.sessions import AccessControl
from whilst.speech.audio import RATE, SECOND, WIDTH, PcmBlocks
from whilst.speech.listen import RemoteSession, speech_demo

HEARD = ["Thank you", "Thank you very mush", "Thank you very much.", "", "My", "My father", "My father gave"]
RECOGNISER = program(f"""
for line in {HEARD!r}:
    sys.stdin.buffer.read({SECOND})
    print(line, flush=True)
sys.stdin.buffer.read()
print("My father gave me an old radio.")
""")
THANKS = "Cảm ơn rất nhiều."


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "talk.wav"
    write_wav(path, RATE, WIDTH, 1, bytes(8 * SECOND))
    return path


def test_a_file_to_captions(talk: Path, tmp_path: Path) -> None:
    files = "--srt", tmp_path / "a.srt", "--vtt", tmp_path / "a.vtt"
    said = whilst("listen", talk, "--fast", "--latency", "high", "--recogniser", RECOGNISER, *files)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0] == THANKS
    assert len(said.out.splitlines()) == 2
    assert THANKS in (tmp_path / "a.srt").read_text(encoding="utf-8")
    assert (tmp_path / "a.vtt").read_text(encoding="utf-8").startswith("WEBVTT")


def test_times_of_a_file_are_those_in_the_file(talk: Path) -> None:
    said = whilst("listen", talk, "--fast", "--json", "--recogniser", RECOGNISER)
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert all(0 < row["time"] <= 8.0 for row in rows)
    assert [row["end"] for row in rows if "end" in row] == [0, 1]


def test_pcm_from_a_pipe() -> None:
    said = whilst("listen", "-", "--latency", "high", "--recogniser", RECOGNISER, stdin=bytes(8 * SECOND + 1))
    assert said.out.splitlines()[0] == THANKS


def test_an_unplugged_microphone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said before is translated."""

    def microphone(_: str) -> PcmBlocks:
        yield bytes(4 * SECOND)
        raise UserError("the microphone gives no audio any more")

    monkeypatch.setattr("whilst.speech.listen.open_microphone", microphone)
    said = whilst("listen", "--latency", "high", "--recogniser", RECOGNISER)
    assert said.code == 2
    assert said.out.splitlines()[0] == THANKS
    assert said.err.splitlines()[-1] == "whilst: the microphone gives no audio any more"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("talk.wav", "--device", "usb"), "--device usb: is for a microphone"),
        (("--fast",), "--fast: name a file"),
        (("nothing.wav", "--recogniser", "cat"), "nothing.wav: no such file"),
        (("-", "--recogniser", "no-such-program"), "--recogniser no-such-program: cannot be started"),
        (("-", "--recogniser", "cat", "--interval", "0"), "--interval 0.0: must be"),
        (("-", "--recogniser", "cat", "--serve", "localhost"), "--serve localhost: give the address"),
        (("-", "--recogniser", "cat", "--serve", "http://127.0.0.1:9"), "is `whilst serve` running there?"),
    ],
)
def test_mistakes_are_one_line(options: tuple[str, ...], message: str) -> None:
    said = whilst("listen", *options)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert message in said.err


@pytest.mark.parametrize("package", ["moonshine_voice", "sounddevice"])
def test_without_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    options = () if package == "moonshine_voice" else ("--recogniser", "cat")
    said = whilst("listen", *options)
    assert said.code == 2
    assert said.err == f"whilst: {package} is not installed: pip install 'whilst[speech]'\n"


def test_a_session_on_a_server_is_one_here(model: Translator) -> None:
    words = make_words(3, 12)
    access = AccessControl(token="secret")
    with local_server(make_served(model), access=access) as server:
        with contextlib.closing(RemoteSession(server.address, "medium", "secret")) as remote:
            events = [event for word in words for event in remote.feed(word)] + remote.finish()
            assert words_of(events) == translate_alone(model, words)
            assert isinstance(events[-1], SentenceEnd)
            server.kill()
            with pytest.raises(UserError, match="the connection is lost"):
                remote.feed("a")
        server.start()
        with pytest.raises(UserError, match="a wrong token or none"):
            RemoteSession(server.address, "medium")


@needs_moonshine
@pytest.mark.slow
@pytest.mark.parametrize("espeak", [True, False])
def test_the_spoken_demo(espeak: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if not espeak:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    elif shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is not installed")
    speech_demo(fast=True)
    rows = capsys.readouterr().out.splitlines()
    read = " ".join(" ".join(row.removeprefix("READ") for row in rows if row.startswith("READ")).split())
    assert ("thank you" if espeak else "best of times") in read
    assert len(read.split()) == pytest.approx(len(TALK.read_text().split()) if espeak else 120, rel=0.15)
