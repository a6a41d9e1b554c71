"""Documents of blocks: Markdown and HTML say the same, and nothing in a text can break either."""

import base64
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.pages import Reader
from whilst.evaluation.tables import Column, Grid
from whilst.research.paper.document import (
    Block,
    Code,
    Details,
    Heading,
    Items,
    Picture,
    Table,
    Text,
    to_html,
    to_markdown,
)

CHARACTERS = st.characters(codec="utf-8", exclude_characters="`*[]|", exclude_categories=("Cc", "Cs"))


@given(st.text(CHARACTERS, min_size=1))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    grid = Grid([Column("a", is_text=True)], [[text]])
    blocks: list[Block] = [Heading(2, text), Text(text), Items([text]), Code([text]), Table(grid)]
    reader = Reader()
    reader.feed(to_html("title", [*blocks, Details(text, blocks)]))
    assert reader.open == []
    assert {name: found[0] for name, found in reader.found.items() if found} == dict.fromkeys(reader.found, text)
    assert to_markdown([Text(text)]) == f"{text}\n"


def test_marks_become_tags() -> None:
    page = to_html("t", [Text("a `b<c` **d `e`** [f & `g`](h.json)")])
    wanted = "a <code>b&lt;c</code> <strong>d <code>e</code></strong>"
    assert f'<p>{wanted} <a href="h.json">f &amp; <code>g</code></a></p>' in page


def test_pictures_are_in_the_page_and_beside_the_markdown(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"\x89PNG")
    picture = Picture(file, "sub/a.png", 'what "it" shows')
    data = base64.b64encode(b"\x89PNG").decode()
    assert f'<img alt="what &quot;it&quot; shows" src="data:image/png;base64,{data}">' in to_html("t", [picture])
    assert to_markdown([picture]) == '![what "it" shows](sub/a.png)\n'


def test_contents_lead_to_headings() -> None:
    heading = Heading(2, "Table 1: What's [3,7], really?")
    assert heading.anchor == "table-1-whats-37-really"
    assert f'<h2 id="{heading.anchor}">' in to_html("t", [heading])
