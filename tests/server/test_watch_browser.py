"""The speaker's page and those of the audience in a headless Chromium; contrast and widths of both."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from tests.helpers.browser import Browser, Tab, chromium
from tests.helpers.serving import LocalServer, local_server, make_served, wait_until
from tests.server.test_page_browser import NARROW, OPEN, PASTE
from whilst.core.settings import Data, Recipe
from whilst.model.transformer import Translator

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="Chromium is not installed; WHILST_CHROMIUM may name one"
)
WORDS = "[...document.querySelectorAll('#sentences .word')].map(word => word.textContent)"
SPOKEN = """
    [...document.querySelectorAll('#finished .target .word, #target-words .word')].map(word => word.textContent)
"""

# Texts whose contrast with their background is below WCAG AA: 4.5, or 3 for large text. Disabled ones need none.
LOW_CONTRAST = """
(() => {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return colour.startsWith('color(srgb') ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
  };
  const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3])).concat(1);
  const background = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    return layers.reverse().reduce((below, layer) => over(layer, below), dark ? [0, 0, 0, 1] : [255, 255, 255, 1]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((value) => value / 255)
      .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walker.nextNode()); ) {
    const node = text.parentElement;
    const unseen = node.closest('noscript, script, .visually-hidden, :disabled') || !node.checkVisibility();
    if (unseen || !text.textContent.trim()) continue;
    const style = getComputedStyle(node);
    const behind = background(node);
    let opacity = 1;
    for (let at = node; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const colour = parse(style.color);
    const shown = over([...colour.slice(0, 3), colour[3] * opacity], behind);
    const [low, high] = [luminance(shown), luminance(behind)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: ${text.textContent.trim()}`);
  }
  return found;
})()
"""
CUT = """
    [...document.querySelectorAll('button')]
        .filter(node => node.checkVisibility() && node.scrollWidth > node.clientWidth)
        .map(node => node.textContent)
"""


@pytest.fixture(scope="module")
def server(model: Translator) -> Iterator[LocalServer]:
    with local_server(make_served(model)) as server:
        yield server


def open_talk(tab: Tab, server: LocalServer, name: str) -> None:
    tab.open(f"{server.address}/?latency=low&publish={name}")
    tab.wait(OPEN)
    tab.click("#current .source")


def same(speaker: Tab, watcher: Tab) -> bool:
    return bool(watcher.evaluate(WORDS) == speaker.evaluate(SPOKEN))


def test_an_audience(tab: Tab, chrome: Browser, server: LocalServer) -> None:
    early, late, obs = (chrome.tab() for _ in range(3))
    early.open(f"{server.address}/watch/talk")
    early.wait("document.querySelector('#state').innerText === 'Not live'")
    open_talk(tab, server, "talk")
    early.wait(OPEN)
    tab.type("a b cm\nd e ")
    tab.wait("document.querySelectorAll('#finished .row').length === 1")
    tab.wait("document.querySelectorAll('#target-words .word').length")
    late.open(f"{server.address}/watch/talk")
    obs.open(f"{server.address}/watch/talk?style=obs&size=80&lines=2")
    for watcher in (early, late):
        wait_until(partial(same, tab, watcher), "the same words")
    obs.wait("document.querySelectorAll('#captions .word').length")
    assert obs.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert obs.evaluate("getComputedStyle(document.querySelector('#captions')).fontSize") == "80px"
    assert not obs.evaluate("document.querySelector('footer').checkVisibility()")
    assert (
        early.evaluate("[...document.querySelectorAll('#sentences time')].map(node => node.textContent)")[0]
        == "0:00"
    )
    server.kill()
    early.wait("document.querySelector('#state').innerText === 'Reconnecting…'")
    server.start()
    tab.type("fm\n")
    early.wait(OPEN)
    early.wait(f"{WORDS}.length")  # of the current sentence: the server has lost those before
    for watcher in (early, late, obs):
        assert not [error for error in watcher.errors if "WebSocket" not in error]
        watcher.close()
    tab.errors.clear()


def test_sharing(tab: Tab, server: LocalServer) -> None:
    tab.open(server.address)
    tab.wait(OPEN)
    tab.click("#share")
    address = tab.evaluate("document.querySelector('#share-link').href")
    assert address.startswith(f"{server.address}/watch/")
    tab.wait("document.querySelector('#share-code').naturalWidth > 0")
    assert tab.evaluate("document.querySelector('#share-local').checkVisibility()"), "127.0.0.1"
    tab.wait(f"{OPEN} && document.querySelector('#share').ariaPressed === 'true'")
    publications = {session.publication for session in server.manager.sessions}
    assert None not in publications
    tab.click("#share-stop")
    tab.wait("document.querySelector('#share').ariaPressed === 'false'")
    wait_until(
        lambda: {session.publication for session in server.manager.sessions} == {None}, "it is not published"
    )


def test_two_speakers_of_one_name(tab: Tab, chrome: Browser, server: LocalServer) -> None:
    other = chrome.tab()  # a browser's tabs have sessions of their own
    open_talk(tab, server, "mine")
    other.open(f"{server.address}/?publish=mine")
    other.wait("document.querySelector('#note').innerText.startsWith('Another session has the name mine')")
    other.wait(f"{OPEN} && document.querySelector('#share').ariaPressed === 'false'")
    other.close()
    open_talk(tab, server, "mine")  # the same tab may


def test_another_pair_of_languages(tab: Tab, model: Translator) -> None:
    first, second = make_served(model), make_served(model)
    other = replace(second, model=replace(second.model, recipe=Recipe(data=Data(source="en", target="vi"))))
    with local_server([first, other]) as server:
        open_talk(tab, server, "pairs")
        tab.type("a b ")
        tab.wait("document.querySelectorAll('#target-words .word').length")
        assert not tab.evaluate("document.querySelector('#pair').checkVisibility()")
        tab.evaluate("document.querySelector('#model').value = 'en-vi'")
        tab.evaluate("document.querySelector('#model').dispatchEvent(new Event('change'))")
        tab.wait("document.querySelectorAll('#finished .row').length === 1")
        tab.wait("document.querySelector('#target-words').lang === 'vi'")
        tab.click("#current .source")
        tab.type("c dm\n")
        tab.wait("document.querySelectorAll('#finished .row').length === 2")
        tab.open(f"{server.address}/?model=en-vi")
        tab.wait(f"{OPEN} && document.querySelector('#model').value === 'en-vi'")


def test_a_long_paste_keeps_both_columns_in_view(tab: Tab, server: LocalServer) -> None:
    open_talk(tab, server, "paste")
    tab.evaluate("document.querySelector('#pace').value = 'Infinity'")
    tab.evaluate("document.querySelector('#pace').dispatchEvent(new Event('change'))")
    tab.resize(1280, 760)
    text = " ".join(["abcd efgh"] * 1000)  # no sentence ends
    tab.evaluate(PASTE.replace("TEXT", json.dumps(text)))
    tab.wait("document.querySelectorAll('#target-words .word').length > 3")
    for column in ("source", "target"):
        place = f"document.querySelector('#current .{column}').getBoundingClientRect()"
        top, bottom = tab.evaluate(f"[{place}.top, {place}.bottom]")
        assert 0 <= top < bottom <= 760
    assert tab.evaluate("document.querySelector('#upcoming').innerText").endswith(" words")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_narrow_screens(tab: Tab, chrome: Browser, server: LocalServer, scheme: str) -> None:
    audience = chrome.tab()
    for page in (tab, audience):
        page.set_media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    open_talk(tab, server, f"{scheme}-talk")
    tab.type("a b cm\nd e f")
    audience.open(f"{server.address}/watch/{scheme}-talk")
    audience.wait(f"{WORDS}.length > 3")
    tab.wait("document.querySelectorAll('#target-words .word').length")
    tab.evaluate("document.querySelector('#upcoming').textContent = 'words to come'")
    for page in (tab, audience):
        assert page.evaluate(LOW_CONTRAST) == []
        page.resize(320, 640, mobile=True)
        assert page.evaluate("innerWidth") == 320
        assert page.evaluate(NARROW) == []
        assert page.evaluate(CUT) == []
        page.resize(1280, 760)
    tab.evaluate("document.querySelector('#note').textContent = 'A note.'")
    tab.click("#share")
    assert tab.evaluate(LOW_CONTRAST) == []
    tab.resize(320, 640, mobile=True)
    assert tab.evaluate(NARROW) == []
    audience.close()


def test_the_measure_of_contrast_sees_grey_on_grey(tab: Tab, server: LocalServer) -> None:
    tab.open(f"{server.address}/watch/grey")
    assert tab.evaluate(LOW_CONTRAST) == []
    tab.evaluate("document.querySelector('#hint').style.opacity = 0.5")
    assert len(tab.evaluate(LOW_CONTRAST)) == 1
