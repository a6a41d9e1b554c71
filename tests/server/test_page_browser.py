"""The page in a headless Chromium, with a server in the tests' process."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.browser import Browser, Tab, chromium
from tests.helpers.serving import LocalServer, local_server, wait_until, write_run_without_agent
from tests.live.test_terminal import expected
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.server.served import EngineOptions, Served, serve_model
from whilst.server.sessions import AccessControl

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="Chromium is not installed; WHILST_CHROMIUM may name one"
)

OPEN = "document.body.dataset.state === 'open'"
LIVE = "document.querySelector('#target-words').innerText.trim()"
PAST = "[...document.querySelectorAll('#finished .row')].map(row => row.querySelector('.target').innerText)"
NARROW = """
    [...document.querySelectorAll('body :not(.visually-hidden *)')]
        .filter(node => node.getBoundingClientRect().right > innerWidth + 0.5)
        .map(node => node.id || node.className || node.tagName)
"""
SOURCES = "[...document.querySelectorAll('#finished .row')].map(row => row.querySelector('.source').innerText)"


@pytest.fixture(scope="module")
def run(toy_dataset: Dataset, toy_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """low is wait-1, medium wait-3, high wait-5."""
    return write_run_without_agent(tmp_path_factory.mktemp("served") / "run", toy_dataset, toy_data)


@pytest.fixture(scope="module")
def served(run: Path) -> Served:
    return serve_model(str(run), [], EngineOptions("torch"))


@pytest.fixture(scope="module")
def server(served: Served) -> Iterator[LocalServer]:
    with local_server(served) as server:
        yield server


@pytest.fixture(scope="module")
def lines(toy_dataset: Dataset) -> list[str]:
    """Sentences of at least six words without a full stop in them."""
    return [line for line in toy_dataset.text("test")[0] if len(line.split()) > 6][:4]


def open_page(tab: Tab, server: LocalServer, path: str = "/") -> None:
    tab.open(server.address + path)
    tab.wait(OPEN)
    tab.click("#current .source")


def detokenised(text: str) -> str:
    """As the page shows it: without a space before punctuation."""
    for mark in ",.!?;:":
        text = text.replace(f" {mark}", mark)
    return text


def test_words_appear_before_the_sentence_ends_and_never_change(
    tab: Tab, server: LocalServer, run: Path, lines: list[str]
) -> None:
    open_page(tab, server)
    tab.evaluate("""
        seen = [];
        new MutationObserver(() => seen.push(document.querySelector('#target-words').textContent))
            .observe(document.querySelector('#target-words'), {childList: true});
    """)
    words = lines[0].split()
    tab.type(" ".join(words[:3]))
    assert tab.text("#target-words") == "", "the third word is not complete"
    tab.type(" ")
    wanted = detokenised(expected(run, [lines[0]], "wait-3")[0])
    assert tab.wait(LIVE) == wanted.split()[0], "wait-3"
    assert tab.evaluate("document.querySelectorAll('#source-words .word.read').length") == 3
    tab.type(" ".join(words[3:5]) + " ")
    tab.wait("document.querySelectorAll('#target-words .word').length === 3")
    assert tab.evaluate(PAST) == []
    assert tab.text("#behind") == "2"
    tab.type(" ".join(words[5:]) + "\n")
    tab.wait(f"{PAST}.length === 1")
    assert tab.evaluate(PAST) == [wanted]
    assert tab.evaluate(SOURCES) == [detokenised(lines[0])]
    assert tab.evaluate("document.querySelector('#lag').innerText") != "–"  # noqa: RUF001
    grown = [text for text in tab.evaluate("seen") if text]
    assert len(grown) >= 2
    assert all(after.startswith(before) for before, after in itertools.pairwise(grown))
    assert wanted.startswith(grown[-1])
    tab.wait("document.querySelector('#log').textContent.trim().length > 0")  # for screen readers


def test_another_latency_by_keyboard(tab: Tab, server: LocalServer, run: Path, lines: list[str]) -> None:
    open_page(tab, server)
    tab.type(lines[0] + "\n")
    tab.wait(f"{PAST}.length === 1")
    tab.evaluate("document.querySelector('#latency input:checked').focus()")
    tab.press("ArrowLeft")
    assert tab.evaluate("document.querySelector('#latency input:checked').value") == "low"
    tab.wait("document.querySelector('#latency input:checked').parentElement.title === 'wait-1'")
    tab.click("#current .source")
    tab.type(lines[1].split()[0] + " ")
    tab.wait(LIVE)  # after one word
    tab.type(" ".join(lines[1].split()[1:]) + "\n")
    tab.wait(f"{PAST}.length === 2")
    wanted = expected(run, lines[:1], "wait-3") + expected(run, lines[1:2], "wait-1")
    assert tab.evaluate(PAST) == [detokenised(text) for text in wanted]


def test_a_killed_server_that_is_started_again(tab: Tab, server: LocalServer, run: Path, lines: list[str]) -> None:
    open_page(tab, server, "/?latency=low")
    tab.type(lines[0] + "\n")
    tab.wait(f"{PAST}.length === 1")
    words = lines[1].split()
    tab.type(" ".join(words[:4]) + " ")
    before = tab.wait(f"document.querySelectorAll('#target-words .word').length >= 4 && {LIVE}")
    server.kill()
    tab.wait("document.body.dataset.state === 'reconnecting'")
    assert "Reconnecting" in tab.text("#state")
    assert "is kept" in tab.text("#note")
    tab.resize(360, 740, mobile=True)
    assert tab.evaluate(NARROW) == []
    tab.type(" ".join(words[4:]) + "\n")
    assert tab.text("#target-words") == before, "it does not change"
    server.start()
    tab.wait(f"{PAST}.length === 2")
    assert tab.text("#note") == ""
    assert tab.evaluate(PAST) == [detokenised(text) for text in expected(run, lines[:2], "wait-1")]
    assert tab.evaluate(SOURCES) == [detokenised(line) for line in lines[:2]]


def test_stopping_the_server_ends_the_sentence(tab: Tab, server: LocalServer, run: Path, lines: list[str]) -> None:
    open_page(tab, server, "/?latency=low")
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
    assert tab.evaluate(PAST) == [detokenised(text) for text in expected(run, parts, "wait-1")]


PASTE = """
    data = new DataTransfer();
    data.setData('text/plain', TEXT);
    document.querySelector('#input').dispatchEvent(
        new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
"""


def test_pasted_text_at_a_rate_and_at_once(tab: Tab, server: LocalServer, run: Path, lines: list[str]) -> None:
    open_page(tab, server, "/?pace=10")
    text = json.dumps("\n\n".join(lines[:3]))
    tab.evaluate(PASTE.replace("TEXT", text))
    upcoming = tab.wait("document.querySelector('#upcoming').innerText")
    assert detokenised(lines[0]).endswith(upcoming.strip())
    tab.wait(LIVE)
    assert tab.text("#play") == "Pause"
    tab.click("#play")
    tab.wait("document.querySelector('#play').innerText === 'Resume'")
    tab.evaluate("document.querySelector('#pace').value = 'Infinity'")
    tab.evaluate("document.querySelector('#pace').dispatchEvent(new Event('change'))")
    tab.click("#play")
    tab.wait(f"{PAST}.length === 3")
    assert tab.evaluate(PAST) == [detokenised(text) for text in expected(run, lines[:3], "wait-3")]
    assert tab.text("#play") == "Play a sample"


def test_the_sample_plays(tab: Tab, server: LocalServer) -> None:
    open_page(tab, server, "/?latency=low&pace=20")
    tab.click("#play")
    tab.wait(f"{LIVE} && !{PAST}.length")
    tab.wait(f"{PAST}.length >= 2")
    assert tab.evaluate(SOURCES)[0].startswith("ros honus monar")  # in the language of the model
    tab.click("#clear")
    tab.wait(f"{PAST}.length === 0 && document.querySelector('#source-words').innerText === ''")


def test_copy_and_subtitles(
    tab: Tab, chrome: Browser, server: LocalServer, lines: list[str], tmp_path: Path
) -> None:
    chrome.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    chrome.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    open_page(tab, server)
    assert tab.evaluate("document.querySelector('#srt').disabled")
    tab.type(f"{lines[0]}\n{lines[1]}\n")
    tab.wait(f"{PAST}.length === 2")
    translations = tab.evaluate(PAST)
    tab.click("#copy")
    tab.wait("document.querySelector('#note').innerText === 'Copied.'")
    assert tab.evaluate("navigator.clipboard.readText()") == "".join(f"{line}\n" for line in translations)
    for name in ("srt", "vtt"):
        tab.click(f"#{name}")
        wait_until((tmp_path / f"whilst.{name}").is_file, "download")
    srt = (tmp_path / "whilst.srt").read_text(encoding="utf-8")
    assert srt.startswith("1\n00:00:00,")
    spoken = [line for line in srt.split("\n") if line and "-->" not in line and not line.isdecimal()]
    assert detokenised(" ".join(spoken)) == " ".join(translations)
    assert (tmp_path / "whilst.vtt").read_text(encoding="utf-8").startswith("WEBVTT\n\n00:00:00.")


def test_captions(tab: Tab, chrome: Browser, server: LocalServer, lines: list[str]) -> None:
    open_page(tab, server)
    tab.type(f"{lines[0]}\n")
    tab.wait(f"{PAST}.length === 1")
    other = chrome.tab()
    other.open(server.address + "/captions?size=40&background=none")
    text = "document.querySelector('#captions').innerText.trim()"
    assert other.wait(text) == tab.evaluate(PAST)[0], "the text of the other window"
    style = "getComputedStyle(document.querySelector('#captions'))"
    assert other.evaluate(f"{style}.fontSize") == "40px"
    assert other.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert other.evaluate("getComputedStyle(document.querySelector('header')).display") == "none"
    assert other.evaluate("document.body.dataset.state") == "idle", "it opens no session"
    tab.type(f"{lines[1]}\n")
    tab.wait(f"{PAST}.length === 2")
    other.wait(f"{text}.endsWith({json.dumps(tab.evaluate(PAST)[1][-20:])})")
    other.open(server.address + "/captions?latency=low")
    other.evaluate("document.querySelector('#play').focus()")
    other.press("Enter", "\r")
    other.wait(f"{OPEN} && {LIVE}")  # a session of its own
    other.close()
    tab.evaluate("document.querySelector('#toggle-captions').focus()")
    tab.press("Enter", "\r")
    tab.wait("document.body.dataset.view === 'captions'")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(0, 0, 0)"
    tab.press("Escape")
    tab.wait("document.body.dataset.view === 'transcript'")


def test_the_staircase_of_a_selected_sentence(tab: Tab, server: LocalServer, lines: list[str]) -> None:
    open_page(tab, server)
    tab.type(f"{lines[0]}\n{lines[1]}\n")
    tab.wait(f"{PAST}.length === 2")
    label = "document.querySelector('#staircase').getAttribute('aria-label')"
    tab.wait(f"{label}.startsWith('Sentence 2: {len(lines[1].split())} words read')")
    tab.click("#finished .row:first-child .lag-button")
    tab.wait(f"{label}.startsWith('Sentence 1: {len(lines[0].split())} words read')")
    assert tab.evaluate("document.querySelector('#staircase .steps').getAttribute('d').length") > 40
    tab.point("#finished .row:first-child .target .word:nth-child(2)")
    assert tab.evaluate("document.querySelectorAll('#finished .row:first-child .was-read').length") == 4, (
        "source words read, with wait-3"
    )


def test_phone_width_colour_scheme_and_motion(tab: Tab, server: LocalServer, lines: list[str]) -> None:
    open_page(tab, server)
    tab.type(f"{lines[0]}\n{lines[1]}")
    tab.wait(f"{PAST}.length === 1")
    colours = []
    for scheme in ("light", "dark"):
        tab.set_media(prefers_color_scheme=scheme)
        colours.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    tab.click("#theme")
    colours.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] == colours[2] != colours[1]
    tab.set_media(prefers_reduced_motion="reduce")
    assert tab.evaluate("getComputedStyle(document.querySelector('#source-words .word')).animationName") == "none"
    tab.resize(360, 740, mobile=True)
    assert tab.evaluate("innerWidth") == 360
    assert tab.evaluate(NARROW) == []
    place = "document.querySelector('#current .{}').getBoundingClientRect()".format
    assert tab.evaluate(f"{place('source')}.bottom <= {place('target')}.top"), "one below the other"


NAME = "node => node.id || node.className || node.value"
CONTROLS = f"""
    [...document.querySelectorAll('button, select, textarea, #latency input:checked')]
        .filter(node => !node.disabled && node.checkVisibility()).map({NAME})
"""
RING = """
    (node => getComputedStyle(node.type === 'radio' ? node.nextElementSibling : node))(document.activeElement)
"""


def test_keyboard_and_screen_reader(tab: Tab, server: LocalServer, lines: list[str]) -> None:
    open_page(tab, server)
    tab.type(f"{lines[0]}\n")
    tab.wait(f"{PAST}.length === 1")
    nodes = [node for node in tab.command("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    for role, name in roles:
        if role in {"button", "radio", "textbox", "combobox", "image", "log", "complementary", "region"}:
            assert name, f"a {role} without a name"
    assert ("log", "Translation") in roles
    wanted, reached = set(tab.evaluate(CONTROLS)), set[str]()
    for _ in range(2 * len(wanted)):
        tab.press("Tab")
        name = tab.evaluate(f"({NAME})(document.activeElement)")
        if name in wanted:
            reached.add(name)
            seen = tab.evaluate(f"{RING}.outlineStyle") != "none" or tab.evaluate(f"{RING}.boxShadow") != "none"
            assert seen, f"{name}: the focus is not seen"
    assert reached == wanted


def test_tab_reaches_one_past_sentence_and_arrow_keys_the_others(
    tab: Tab, server: LocalServer, lines: list[str]
) -> None:
    tab.open(server.address)
    tab.wait(OPEN)
    tab.type("".join(f"{line}\n" for line in lines[:3]))  # without a click: the text field has the focus
    tab.wait(f"{PAST}.length === 3")
    focus = "document.activeElement.ariaLabel ?? document.activeElement.id"
    tab.evaluate("document.querySelector('#theme').focus()")
    for key, wanted in (("Tab", "Sentence 3,"), ("ArrowUp", "Sentence 2,"), ("ArrowUp", "Sentence 1,")):
        tab.press(key)
        assert tab.evaluate(focus).startswith(wanted)
    tab.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "input"
    assert tab.evaluate("document.activeElement.placeholder"), "it can be used"


def test_the_page_asks_for_a_token(chrome: Browser, tab: Tab, served: Served) -> None:
    with local_server(served, access=AccessControl("secret")) as server:
        tab.open(server.address)
        tab.wait("!document.querySelector('#token-form').hidden")
        tab.type("wrong\n")
        tab.wait("document.querySelector('#note').innerText === 'The server expects another token.'")
        tab.evaluate("document.querySelector('#token').select()")
        tab.type("secret\n")
        tab.wait(OPEN)
        assert tab.evaluate(
            "document.querySelector('#token-form').hidden && !document.querySelector('#note').innerText"
        )
        other = chrome.tab()
        other.open(server.address + "/#token=secret")
        other.wait(OPEN)
        other.close()


def test_the_content_security_policy_is_enforced(tab: Tab, server: LocalServer) -> None:
    """That the page works under it is checked by every test: errors are in `tab.errors`."""
    open_page(tab, server)
    inline = "document.body.append(Object.assign(document.createElement('script'), {textContent: 'ran = true'}))"
    assert tab.evaluate(f"{inline}; typeof ran") == "undefined"
    assert any("Content Security Policy" in text for text in tab.errors)
    tab.errors.clear()
    for path in ("/static/..%2Fapp.py", "/static/%00", "/static/", "/static/none.js"):
        assert tab.evaluate(f"fetch('{path}').then(answer => answer.status)") == 404
    tab.errors.clear()


def test_an_unknown_latency(tab: Tab, server: LocalServer) -> None:
    open_page(tab, server, "/?latency=lwo")
    assert "lwo" in tab.text("#note")
    assert tab.evaluate("document.querySelector('#latency input:checked').value") == "medium"
    open_page(tab, server, "/?latency=wait-2")
    assert tab.text("#note") == ""
    assert tab.evaluate("document.querySelector('#latency input:checked').value") == "wait-2"
