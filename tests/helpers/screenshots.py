"""Take the screenshots in docs/images, with the model of the package or another that translates English:

    python -m tests.helpers.screenshots
    python -m tests.helpers.screenshots runs/iwslt15.en-vi data.moses=true

Arguments after the model are settings, as of `whilst serve --set`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tests.helpers.browser import Browser, Tab, browser
from tests.helpers.serving import local_server
from whilst.core.settings import DEFAULT_MODEL
from whilst.server.served import EngineOptions, serve_model

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MAX_BYTES = 200_000


@dataclass(frozen=True)
class Screenshot:
    name: str
    size: tuple[int, int]
    path: str = "/?pace=4"
    scheme: str = "light"
    past: int = 3  # sentences that have ended
    written: int = 7  # words of the current one


SCREENSHOTS = (
    Screenshot("page", (1280, 760)),
    Screenshot("page-dark", (1280, 760), scheme="dark", past=4, written=5),
    Screenshot("page-phone", (360, 740), past=1),
    Screenshot("captions", (1280, 720), "/captions?pace=4", past=3, written=10),
)


def share(chrome: Browser, address: str, folder: Path) -> None:
    """The speaker's dialog, and a phone of the audience."""
    speaker, phone = chrome.tab(), chrome.tab()
    speaker.resize(900, 620)
    speaker.open(f"{address}/?pace=6&publish=talk")
    phone.resize(360, 640, scale=2, mobile=True)
    phone.open(f"{address}/watch/talk")
    speaker.evaluate("document.querySelector('#play').click()")
    phone.wait("document.querySelectorAll('#sentences li').length >= 4", timeout=100)
    speaker.evaluate("document.querySelector('#share').click()")
    speaker.evaluate("document.querySelector('#share-local').hidden = true")
    speaker.wait("document.querySelector('#share-code').naturalWidth > 0")
    for name, tab in (("share", speaker), ("watch-phone", phone)):
        save(tab, folder / f"{name}.png")


def play(tab: Tab, shot: Screenshot, address: str) -> None:
    """Play the sample up to the state of the screenshot."""
    tab.resize(*shot.size, scale=2, mobile=shot.size[0] < 640)
    tab.set_media(prefers_color_scheme=shot.scheme)
    tab.open(address + shot.path)
    tab.evaluate("document.activeElement.blur()")  # hide the caret
    tab.evaluate("document.querySelector('#play').click()")  # not with the mouse, which would hover
    count = "document.querySelectorAll('{}').length".format
    tab.wait(
        f"{count('#finished .row')} >= {shot.past} && {count('#target-words .word')} >= {shot.written}", timeout=100
    )


def take(chrome: Browser, shot: Screenshot, address: str, folder: Path) -> None:
    tab = chrome.tab()
    play(tab, shot, address)
    save(tab, folder / f"{shot.name}.png")


def save(tab: Tab, path: Path) -> None:
    tab.screenshot(path)
    assert not tab.errors, tab.errors
    tab.close()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    assert size <= MAX_BYTES, f"{path}: {size} bytes"
    print(f"{path}: {size} bytes")


def main(model: str = DEFAULT_MODEL, *settings: str, folder: Path = IMAGES) -> None:
    with local_server(serve_model(model, settings, EngineOptions())) as server, browser() as chrome:
        for shot in SCREENSHOTS:
            take(chrome, shot, server.address, folder)
        share(chrome, server.address, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
