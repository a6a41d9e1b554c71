"""The page as people use it, in a real browser, served by `whilst serve`."""

import itertools
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.browser import Browser, Tab, chromium
from tests.helpers.serving import Serving, serving, write_run_without_agent
from tests.live.test_terminal import expected
from whilst.core.settings import Data
from whilst.data.dataset import Dataset

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium here to test the page in: install it, or name one in WHILST_CHROMIUM"
)

OPEN = "document.body.dataset.state === 'open'"
LIVE = "document.querySelector('#written').innerText.trim()"
PAST = "[...document.querySelectorAll('#past .row')].map(row => row.querySelector('.target').innerText)"
NARROW = """
    [...document.querySelectorAll('body :not(.unseen *)')]
        .filter(node => node.getBoundingClientRect().right > innerWidth + 0.5)
        .map(node => node.id || node.className || node.tagName)
"""
SOURCES = "[...document.querySelectorAll('#past .row')].map(row => row.querySelector('.source').innerText)"


@pytest.fixture(scope="module")
def run(toy_dataset: Dataset, toy_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """low is wait-1, medium wait-3, high wait-5."""
    return write_run_without_agent(tmp_path_factory.mktemp("served") / "run", toy_dataset, toy_data)


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Serving]:
    with serving(run) as server:
        yield server


@pytest.fixture(scope="module")
def lines(toy_dataset: Dataset) -> list[str]:
    """Sentences of at least six words without a full stop in them."""
    return [line for line in toy_dataset.text("test")[0] if len(line.split()) > 6][:4]


def begin(tab: Tab, server: Serving, path: str = "/") -> None:
    tab.open(server.address + path)
    tab.wait(OPEN)
    tab.click("#live .source")


def shown(translation: str) -> str:
    """As the page shows it: punctuation stands close to the word before."""
    for mark in ",.!?;:":
        translation = translation.replace(f" {mark}", mark)
    return translation


def test_words_appear_before_the_sentence_ends_and_never_change(
    tab: Tab, server: Serving, run: Path, lines: list[str]
) -> None:
    begin(tab, server)
    tab.ask("""
        seen = [];
        new MutationObserver(() => seen.push(document.querySelector('#written').textContent))
            .observe(document.querySelector('#written'), {childList: true});
    """)
    words = lines[0].split()
    tab.type(" ".join(words[:3]))
    assert tab.text("#written") == "", "the third word may go on"
    tab.type(" ")
    wanted = shown(expected(run, [lines[0]], "wait-3")[0])
    assert tab.wait(LIVE) == wanted.split()[0], "after three words, one"
    assert tab.ask("document.querySelectorAll('#said .word.read').length") == 3
    tab.type(" ".join(words[3:5]) + " ")
    tab.wait("document.querySelectorAll('#written .word').length === 3")
    assert tab.ask(PAST) == []
    assert tab.text("#behind") == "2"
    tab.type(" ".join(words[5:]) + "\n")
    tab.wait(f"{PAST}.length === 1")
    assert tab.ask(PAST) == [wanted]
    assert tab.ask(SOURCES) == [shown(lines[0])]
    assert tab.ask("document.querySelector('#lag').innerText") != "–"  # noqa: RUF001
    grown = [text for text in tab.ask("seen") if text]
    assert len(grown) >= 2
    assert all(after.startswith(before) for before, after in itertools.pairwise(grown))
    assert wanted.startswith(grown[-1])
    tab.wait("document.querySelector('#log').textContent.trim().length > 0")  # a screen reader is told


def test_another_latency_by_keyboard(tab: Tab, server: Serving, run: Path, lines: list[str]) -> None:
    begin(tab, server)
    tab.type(lines[0] + "\n")
    tab.wait(f"{PAST}.length === 1")
    tab.ask("document.querySelector('#latency input:checked').focus()")
    tab.press("ArrowLeft")
    assert tab.ask("document.querySelector('#latency input:checked').value") == "low"
    tab.wait("document.querySelector('#latency input:checked').parentElement.title === 'wait-1'")
    tab.click("#live .source")
    tab.type(lines[1].split()[0] + " ")
    tab.wait(LIVE)  # after one word
    tab.type(" ".join(lines[1].split()[1:]) + "\n")
    tab.wait(f"{PAST}.length === 2")
    wanted = expected(run, lines[:1], "wait-3") + expected(run, lines[1:2], "wait-1")
    assert tab.ask(PAST) == [shown(text) for text in wanted]


def test_a_server_that_is_killed_and_comes_back(tab: Tab, server: Serving, run: Path, lines: list[str]) -> None:
    begin(tab, server, "/?latency=low")
    tab.type(lines[0] + "\n")
    tab.wait(f"{PAST}.length === 1")
    words = lines[1].split()
    tab.type(" ".join(words[:4]) + " ")
    before = tab.wait(f"document.querySelectorAll('#written .word').length >= 4 && {LIVE}")
    server.stop(signal.SIGKILL)
    tab.wait("document.body.dataset.state === 'waiting'")
    assert "Reconnecting" in tab.text("#state")
    assert "is kept" in tab.text("#note")
    tab.resize(360, 740, mobile=True)
    assert tab.ask(NARROW) == []
    tab.type(" ".join(words[4:]) + "\n")
    assert tab.text("#written") == before, "what is written stays"
    server.start()
    tab.wait(f"{PAST}.length === 2")
    assert tab.text("#note") == ""
    assert tab.ask(PAST) == [shown(text) for text in expected(run, lines[:2], "wait-1")]
    assert tab.ask(SOURCES) == [shown(line) for line in lines[:2]]


def test_a_server_that_is_stopped_ends_the_sentence(tab: Tab, server: Serving, run: Path, lines: list[str]) -> None:
    begin(tab, server, "/?latency=low")
    words = lines[1].split()
    tab.type(" ".join(words[:4]) + " ")
    tab.wait(LIVE)
    server.stop()
    tab.wait("document.querySelector('#note').innerText.startsWith('The connection is lost. What you say is kept')")
    server.start()
    tab.wait(OPEN)
    assert tab.text("#note") == ""
    tab.type(" ".join(words[4:]) + "\n")
    tab.wait(f"{PAST}.length === 2")
    parts = [" ".join(words[:4]), " ".join(words[4:])]
    assert tab.ask(PAST) == [shown(text) for text in expected(run, parts, "wait-1")]


PASTE = """
    data = new DataTransfer();
    data.setData('text/plain', TEXT);
    document.querySelector('#input').dispatchEvent(
        new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
"""


def test_paste_at_pace_and_at_once(tab: Tab, server: Serving, run: Path, lines: list[str]) -> None:
    begin(tab, server, "/?pace=10")
    text = json.dumps("\n\n".join(lines[:3]))
    tab.ask(PASTE.replace("TEXT", text))
    upcoming = tab.wait("document.querySelector('#upcoming').innerText")
    assert shown(lines[0]).endswith(upcoming.strip())
    tab.wait(LIVE)
    assert tab.text("#play") == "Pause"
    tab.click("#play")
    tab.wait("document.querySelector('#play').innerText === 'Go on'")
    tab.ask("document.querySelector('#pace').value = 'Infinity'")
    tab.ask("document.querySelector('#pace').dispatchEvent(new Event('change'))")
    tab.click("#play")
    tab.wait(f"{PAST}.length === 3")
    assert tab.ask(PAST) == [shown(text) for text in expected(run, lines[:3], "wait-3")]
    assert tab.text("#play") == "Play a sample"


def test_the_sample_plays(tab: Tab, server: Serving) -> None:
    begin(tab, server, "/?latency=low&pace=20")
    tab.click("#play")
    tab.wait(f"{LIVE} && !{PAST}.length")
    tab.wait(f"{PAST}.length >= 2")
    assert tab.ask(SOURCES)[0].startswith("ros honus monar")  # in the language of the model
    tab.click("#clear")
    tab.wait(f"{PAST}.length === 0 && document.querySelector('#said').innerText === ''")


def test_copy_and_subtitles(tab: Tab, chrome: Browser, server: Serving, lines: list[str], tmp_path: Path) -> None:
    chrome.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    chrome.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    begin(tab, server)
    assert tab.ask("document.querySelector('#srt').disabled")
    tab.type(f"{lines[0]}\n{lines[1]}\n")
    tab.wait(f"{PAST}.length === 2")
    translations = tab.ask(PAST)
    tab.click("#copy")
    tab.wait("document.querySelector('#note').innerText === 'Copied.'")
    assert tab.ask("navigator.clipboard.readText()") == "".join(f"{line}\n" for line in translations)
    for name in ("srt", "vtt"):
        tab.click(f"#{name}")
        tab.until(lambda name=name: (tmp_path / f"whilst.{name}").is_file())  # type: ignore[misc]
    srt = (tmp_path / "whilst.srt").read_text(encoding="utf-8")
    assert srt.startswith("1\n00:00:00,")
    spoken = [line for line in srt.split("\n") if line and "-->" not in line and not line.isdecimal()]
    assert shown(" ".join(spoken)) == " ".join(translations)
    assert (tmp_path / "whilst.vtt").read_text(encoding="utf-8").startswith("WEBVTT\n\n00:00:00.")


def test_captions(tab: Tab, chrome: Browser, server: Serving, lines: list[str]) -> None:
    begin(tab, server)
    tab.type(f"{lines[0]}\n")
    tab.wait(f"{PAST}.length === 1")
    other = chrome.tab()
    other.open(server.address + "/captions?size=40&background=none")
    text = "document.querySelector('#captions').innerText.trim()"
    assert other.wait(text) == tab.ask(PAST)[0], "it follows the other window"
    style = "getComputedStyle(document.querySelector('#captions'))"
    assert other.ask(f"{style}.fontSize") == "40px"
    assert other.ask("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert other.ask("getComputedStyle(document.querySelector('header')).display") == "none"
    assert other.ask("document.body.dataset.state") == "asleep", "a window that follows takes no session"
    tab.type(f"{lines[1]}\n")
    tab.wait(f"{PAST}.length === 2")
    other.wait(f"{text}.endsWith({json.dumps(tab.ask(PAST)[1][-20:])})")
    other.open(server.address + "/captions?latency=low")
    other.ask("document.querySelector('#play').focus()")
    other.press("Enter", "\r")
    other.wait(f"{OPEN} && {LIVE}")  # it plays by itself
    other.close()
    tab.ask("document.querySelector('#captioned').focus()")
    tab.press("Enter", "\r")
    tab.wait("document.body.dataset.view === 'captions'")
    assert tab.ask("getComputedStyle(document.body).backgroundColor") == "rgb(0, 0, 0)"
    tab.press("Escape")
    tab.wait("document.body.dataset.view === 'talk'")


def test_the_staircase_of_a_sentence_that_is_chosen(tab: Tab, server: Serving, lines: list[str]) -> None:
    begin(tab, server)
    tab.type(f"{lines[0]}\n{lines[1]}\n")
    tab.wait(f"{PAST}.length === 2")
    label = "document.querySelector('#staircase').getAttribute('aria-label')"
    tab.wait(f"{label}.startsWith('Sentence 2: {len(lines[1].split())} words read')")
    tab.click("#past .row:first-child .lagged")
    tab.wait(f"{label}.startsWith('Sentence 1: {len(lines[0].split())} words read')")
    assert tab.ask("document.querySelector('#staircase .steps').getAttribute('d').length") > 40
    tab.point("#past .row:first-child .target .word:nth-child(2)")
    assert tab.ask("document.querySelectorAll('#past .row:first-child .had').length") == 4, "what wait-3 had read"


def test_phone_width_colours_and_motion(tab: Tab, server: Serving, lines: list[str]) -> None:
    begin(tab, server)
    tab.type(f"{lines[0]}\n{lines[1]}")
    tab.wait(f"{PAST}.length === 1")
    colours = []
    for scheme in ("light", "dark"):
        tab.prefer(prefers_color_scheme=scheme)
        colours.append(tab.ask("getComputedStyle(document.body).backgroundColor"))
    tab.click("#theme")
    colours.append(tab.ask("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] == colours[2] != colours[1]
    tab.prefer(prefers_reduced_motion="reduce")
    assert tab.ask("getComputedStyle(document.querySelector('#said .word')).animationName") == "none"
    tab.resize(360, 740, mobile=True)
    assert tab.ask("innerWidth") == 360
    assert tab.ask(NARROW) == []
    place = "document.querySelector('#live .{}').getBoundingClientRect()".format
    assert tab.ask(f"{place('source')}.bottom <= {place('target')}.top"), "one below the other"


NAME = "node => node.id || node.className || node.value"
CONTROLS = f"""
    [...document.querySelectorAll('button, select, textarea, #latency input:checked')]
        .filter(node => !node.disabled && node.checkVisibility()).map({NAME})
"""
RING = """
    (node => getComputedStyle(node.type === 'radio' ? node.nextElementSibling : node))(document.activeElement)
"""


def test_keyboard_and_screen_reader(tab: Tab, server: Serving, lines: list[str]) -> None:
    begin(tab, server)
    tab.type(f"{lines[0]}\n")
    tab.wait(f"{PAST}.length === 1")
    nodes = [node for node in tab.command("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    for role, name in roles:
        if role in {"button", "radio", "textbox", "combobox", "image", "log", "complementary", "region"}:
            assert name, f"a {role} without a name"
    assert ("log", "Translation") in roles
    wanted, reached = set(tab.ask(CONTROLS)), set[str]()
    for _ in range(2 * len(wanted)):
        tab.press("Tab")
        name = tab.ask(f"({NAME})(document.activeElement)")
        if name in wanted:
            reached.add(name)
            seen = tab.ask(f"{RING}.outlineStyle") != "none" or tab.ask(f"{RING}.boxShadow") != "none"
            assert seen, f"{name}: the focus is not seen"
    assert reached == wanted


def test_tab_reaches_one_past_sentence_and_arrows_the_others(tab: Tab, server: Serving, lines: list[str]) -> None:
    tab.open(server.address)
    tab.wait(OPEN)
    tab.type("".join(f"{line}\n" for line in lines[:3]))  # without a click: the text field has the focus
    tab.wait(f"{PAST}.length === 3")
    focus = "document.activeElement.ariaLabel ?? document.activeElement.id"
    tab.ask("document.querySelector('#theme').focus()")
    for key, wanted in (("Tab", "Sentence 3,"), ("ArrowUp", "Sentence 2,"), ("ArrowUp", "Sentence 1,")):
        tab.press(key)
        assert tab.ask(focus).startswith(wanted)
    tab.press("Tab")
    assert tab.ask("document.activeElement.id") == "input"
    assert tab.ask("document.activeElement.placeholder"), "what ended is no reason not to go on"


def test_a_token_is_asked_for(chrome: Browser, tab: Tab, run: Path) -> None:
    with serving(run, "--token", "secret") as server:
        tab.open(server.address)
        tab.wait("!document.querySelector('#identify').hidden")
        tab.type("wrong\n")
        tab.wait("document.querySelector('#note').innerText === 'The server does not know this token.'")
        tab.ask("document.querySelector('#token').select()")
        tab.type("secret\n")
        tab.wait(OPEN)
        assert tab.ask("document.querySelector('#identify').hidden && !document.querySelector('#note').innerText")
        other = chrome.tab()
        other.open(server.address + "/#token=secret")
        other.wait(OPEN)
        other.close()


def test_nothing_may_come_from_elsewhere(tab: Tab, server: Serving) -> None:
    """The policy is sent, the browser enforces it, and the page works under it (every test asks for complaints)."""
    begin(tab, server)
    inline = "document.body.append(Object.assign(document.createElement('script'), {textContent: 'ran = true'}))"
    assert tab.ask(f"{inline}; typeof ran") == "undefined"
    assert any("Content Security Policy" in text for text in tab.complaints)
    tab.complaints.clear()
    for path in ("/static/..%2Fapp.py", "/static/%00", "/static/", "/static/none.js"):
        assert tab.ask(f"fetch('{path}').then(answer => answer.status)") == 404
    tab.complaints.clear()


def test_a_latency_that_there_is_not(tab: Tab, server: Serving) -> None:
    begin(tab, server, "/?latency=lwo")
    assert "lwo" in tab.text("#note")
    assert tab.ask("document.querySelector('#latency input:checked').value") == "medium"
    begin(tab, server, "/?latency=wait-2")
    assert tab.text("#note") == ""
    assert tab.ask("document.querySelector('#latency input:checked').value") == "wait-2"
