"""Speak on the page, in a headless Chromium whose microphone is a WAV file made by espeak-ng."""

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.helpers.browser import Browser, Tab, browser, chromium
from tests.helpers.serving import LocalServer, local_server, make_served
from tests.helpers.speech import program
from tests.server.test_page_browser import NARROW, OPEN, PAST, SOURCES
from tests.speech.test_recogniser import needs_moonshine
from whilst.core.settings import DEFAULT_MODEL
from whilst.model.transformer import Translator
from whilst.server.protocol import Limits
from whilst.server.served import EngineOptions, Served, serve_model

pytestmark = [
    pytest.mark.skipif(chromium() is None, reason="Chromium is not installed; WHILST_CHROMIUM may name one"),
    pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed"),
]

TALK = (
    "Thank you very much. My father gave me an old radio when I was ten years old."
    " I took it apart on the kitchen table."
)
LIMITS = Limits(sessions=8, speakers=1)
# Each quarter of a second that is not silent is a word.
LOUD = program("""
import array
count = 0
while block := sys.stdin.buffer.read(8000):
    loud = max(map(abs, array.array("h", block))) > 1000
    count = count + 1 if loud else 0
    print(*(f"w{n}" for n in range(1, count + 1)), flush=True)
""")
SPEAK = "document.querySelector('#speak')"
CHOICE = "document.querySelector('#recogniser')"
NO_RECOGNITION = "delete globalThis.SpeechRecognition; delete globalThis.webkitSpeechRecognition"
NOTE = "document.querySelector('#note').innerText"


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    talk = tmp_path_factory.mktemp("speech") / "talk.wav"
    subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-w", talk, TALK], check=True)
    device = f"--use-file-for-fake-audio-capture={talk}%noloop"
    with browser("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream", device) as chrome:
        yield chrome


@pytest.fixture
def tab(chrome: Browser) -> Iterator[Tab]:
    tab = chrome.tab()
    yield tab
    errors = [text for text in tab.errors if "WebSocket" not in text]
    tab.close()
    assert not errors


@pytest.fixture(scope="module")
def served(model: Translator) -> Served:
    return make_served(model)


@pytest.fixture(scope="module")
def server(served: Served) -> Iterator[LocalServer]:
    with local_server(served, LIMITS, recogniser=LOUD) as server:
        yield server


def open_page(tab: Tab, server: LocalServer) -> None:
    tab.open(server.address)
    tab.wait(OPEN)


def test_speech_is_recognised_on_the_server(tab: Tab, server: LocalServer) -> None:
    open_page(tab, server)
    assert tab.evaluate(f"{CHOICE}.value") == "server"
    tab.click("#speak")
    assert tab.text("#speak") == "Stop"
    upcoming = tab.wait("document.querySelector('#upcoming').innerText.trim()")
    assert re.fullmatch(r"w\d+( w\d+)*", upcoming), "words that may still change are shown"
    tab.wait(f"{PAST}.length >= 1")
    tab.click("#speak")
    tab.wait(f"!{SPEAK}.disabled")
    assert tab.text("#speak") == "Speak"
    assert tab.evaluate(SOURCES)[0].startswith("w1 w2 w3")
    tab.wait("!document.querySelector('#upcoming').innerText")  # is drawn later
    assert tab.text("#note") == ""
    assert not server.manager.speech.streams
    for width in (320, 360, 700):
        tab.resize(width, 740, mobile=True)
        assert tab.evaluate(NARROW) == []


def test_a_lost_connection_while_speaking(tab: Tab, server: LocalServer) -> None:
    open_page(tab, server)
    tab.click("#speak")
    tab.wait("document.querySelector('#upcoming').innerText.trim()")
    server.kill()
    tab.wait(f"{NOTE}.startsWith('The connection is lost. What you say is kept')")
    assert tab.text("#speak") == "Stop"
    server.start()
    tab.wait(f"{OPEN} && !{NOTE}")
    tab.wait(f"{PAST}.length >= 1")
    assert tab.evaluate(SOURCES)[0].startswith("w1 w2 w3")
    server.kill()
    tab.click("#speak")
    assert tab.evaluate(f"{SPEAK}.disabled"), "the last words are not recognised yet"
    server.start()
    tab.wait(f"!{SPEAK}.disabled")


def test_one_speaker_too_many(chrome: Browser, tab: Tab, server: LocalServer) -> None:
    open_page(tab, server)
    tab.click("#speak")
    tab.wait("document.querySelector('#upcoming').innerText.trim()")
    other = chrome.tab()
    open_page(other, server)
    other.click("#speak")
    other.wait(f"{NOTE}.startsWith('The server recognises no more speakers at a time than 1')")
    assert other.text("#speak") == "Speak"
    tab.click("#speak")
    tab.wait(f"!{SPEAK}.disabled")
    other.click("#speak")
    other.wait("document.querySelector('#upcoming').innerText.trim()")
    assert other.text("#note") == ""
    other.close()


def test_the_microphone_is_forbidden(server: LocalServer) -> None:
    with browser("--use-fake-device-for-media-stream") as chrome:
        chrome.command("Browser.setPermission", permission={"name": "microphone"}, setting="denied")
        tab = chrome.tab()
        open_page(tab, server)
        tab.click("#speak")
        tab.wait(f"{NOTE} === 'The browser may not use the microphone: allow it in the address bar.'")
        tab.wait(f"{SPEAK}.innerText === 'Speak' && !{SPEAK}.disabled")


def test_the_browser_recognises_if_the_server_does_not(tab: Tab, served: Served) -> None:
    with local_server(served) as server:
        open_page(tab, server)
        assert tab.evaluate(f"{CHOICE}.value") == "browser"
        assert not tab.evaluate(f"{CHOICE}.checkVisibility()"), "there is no choice"
        assert "may send your speech to its maker" in tab.evaluate(f"{SPEAK}.title")
        tab.command("Page.addScriptToEvaluateOnNewDocument", source=NO_RECOGNITION)
        open_page(tab, server)
        tab.click("#speak")
        about = "this server recognises English speech only, and the source language is src."
        assert tab.text("#note") == f"This browser has no speech recognition, and {about}"
        assert tab.text("#speak") == "Speak"


@needs_moonshine
@pytest.mark.slow
def test_a_talk_is_recognised_and_translated(tab: Tab) -> None:
    """All of it, although the connection is lost in the middle."""
    with local_server(serve_model(DEFAULT_MODEL, [], EngineOptions()), LIMITS) as server:
        open_page(tab, server)
        tab.click("#speak")
        tab.wait("document.querySelector('#source-words').innerText.includes('father')", timeout=100)
        server.kill()
        tab.wait("document.body.dataset.state === 'reconnecting'")
        server.start()
        tab.wait(f"{SOURCES}.some(text => text.includes('kitchen'))", timeout=100)
        tab.click("#speak")
        tab.wait(f"!{SPEAK}.disabled", timeout=100)
        words = re.findall(r"\w+", " ".join(tab.evaluate(SOURCES)).lower())
        for word in ("thank", "father", "ten", "years", "kitchen", "table"):
            assert words.count(word) == 1, words
        assert tab.evaluate(PAST)[0] == "Cảm ơn rất nhiều."
