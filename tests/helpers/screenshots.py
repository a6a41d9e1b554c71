"""Takes the pictures of the page in docs/, with the model of the package or another that translates English:

    python -m tests.screenshots
    python -m tests.screenshots runs/iwslt15.en-vi --set data.moses=true

Words after the model are options of `whilst serve`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tests.helpers.browser import Browser, Tab, browser
from tests.helpers.serving import serving
from whilst.core.settings import DEFAULT_MODEL

DOCS = Path(__file__).parents[2] / "docs"
LARGEST = 200_000  # bytes of a picture


@dataclass(frozen=True)
class Shot:
    name: str
    size: tuple[int, int]
    path: str = "/?pace=4"
    scheme: str = "light"
    past: int = 3  # sentences that have ended
    written: int = 7  # words of the one under way


SHOTS = (
    Shot("page", (1280, 760)),
    Shot("page-dark", (1280, 760), scheme="dark", past=4, written=5),
    Shot("page-phone", (360, 740), past=1),
    Shot("captions", (1280, 720), "/captions?pace=4", past=3, written=10),
)


def play(tab: Tab, shot: Shot, address: str) -> None:
    """Until the moment that the picture shows."""
    tab.resize(*shot.size, scale=2, mobile=shot.size[0] < 640)
    tab.prefer(prefers_color_scheme=shot.scheme)
    tab.open(address + shot.path)
    tab.ask("document.activeElement.blur()")  # a caret blinks
    tab.ask("document.querySelector('#play').click()")  # not with the mouse, which would be over something
    count = "document.querySelectorAll('{}').length".format
    tab.wait(f"{count('#past .row')} >= {shot.past} && {count('#written .word')} >= {shot.written}", patience=100)


def take(chrome: Browser, shot: Shot, address: str) -> None:
    tab = chrome.tab()
    play(tab, shot, address)
    path = DOCS / f"{shot.name}.png"
    tab.picture(path)
    assert not tab.complaints, tab.complaints
    tab.close()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    assert size <= LARGEST, f"{path}: {size} bytes"
    print(f"{path}: {size} bytes")


def main(model: str = DEFAULT_MODEL, *options: str) -> None:
    with serving(model, *options) as server, browser() as chrome:
        for shot in SHOTS:
            take(chrome, shot, server.address)


if __name__ == "__main__":
    main(*sys.argv[1:])
