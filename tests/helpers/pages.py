"""A reader of HTML pages, for the tests of what writes them."""

from html.parser import HTMLParser


class Reader(HTMLParser):
    """Cells, headings, code and items of a page, and what it would have to fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: dict[str, list[str]] = {"td": [], "h2": [], "pre": [], "li": [], "p": []}
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag in self.found:
            self.found[tag].append("")
        self.fetched += [value or "" for name, value in attrs if name == "src"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "tags must close in order"

    def handle_data(self, data: str) -> None:
        for tag in self.found:
            if tag in self.open:
                self.found[tag][-1] += data
