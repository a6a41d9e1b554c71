"""A document of a few kinds of blocks, and two ways to write it: Markdown, and one HTML file with everything in it.

Both come from the same blocks, so they say the same. Text may have `code`, **strong words** and [links](to). Knows
nothing of what the document is about.
"""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whilst.evaluation.tables import Grid

_INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
STYLE = """
:root { color-scheme: light dark; --text: #1c1f23; --soft: #5c6570; --line: #d9dee4; --back: #fff; --tint: #f5f7f9;
  --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7eb; --soft: #9aa4af; --line: #363c44; --back: #15181c;
  --tint: #1e2227; --link: #7ab8f5; } }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 3rem; padding-top: .8rem; border-top: 1px solid var(--line); }
h3 { margin-top: 2rem; }
a { color: var(--link); }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: separate; border-spacing: 0; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { background: var(--tint); vertical-align: bottom; white-space: normal; }
td:first-child { position: sticky; left: 0; background: var(--back); }
th:first-child { position: sticky; left: 0; }
.figure { text-align: right; }
tr:hover td { background: var(--tint); }
code { font-size: .875em; background: var(--tint); padding: .1em .3em; border-radius: .2em; }
pre { background: var(--tint); padding: .8rem; overflow-x: auto; border-radius: .3rem; }
pre code { padding: 0; background: none; }
img { display: block; max-width: 100%; height: auto; margin: 1rem 0; background: #fff; border-radius: .3rem; }
details { margin: 1rem 0; padding: .2rem .8rem; border-left: 3px solid var(--line); }
summary { cursor: pointer; color: var(--soft); }
"""


@dataclass(frozen=True)
class Heading:
    level: int
    text: str

    @property
    def anchor(self) -> str:
        """As GitHub makes it, so that one list of contents serves both."""
        return re.sub(r"[^\w\- ]", "", self.text.lower()).replace(" ", "-")


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Items:
    """A list; each item is a line of text."""

    items: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Commands, as they are typed."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    grid: Grid


@dataclass(frozen=True)
class Picture:
    file: Path
    link: str  # to the file, from where the document lies
    text: str  # for those who do not see it


@dataclass(frozen=True)
class Details:
    """Blocks that stay folded until someone asks."""

    summary: str
    blocks: Sequence["Block"]


Block = Heading | Text | Items | Code | Table | Picture | Details


def to_markdown(blocks: Sequence[Block]) -> str:
    """Pictures stay files of their own."""
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(level=level, text=text):
            return f"{'#' * level} {text}"
        case Text(text=text):
            return text
        case Items(items=items):
            return "\n".join(f"- {item}" for item in items)
        case Code(lines=lines):
            return "\n".join(["```sh", *lines, "```"])
        case Table(grid=grid):
            return "\n".join(grid.to_markdown())
        case Picture(link=link, text=text):
            return f"![{text}]({link})"
        case Details(summary=summary, blocks=inner):
            inside = "\n\n".join(map(_markdown, inner))
            return f"<details>\n<summary>{html.escape(summary)}</summary>\n\n{inside}\n\n</details>"


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """One file: style and pictures are in it."""
    body = "\n".join(map(_html, blocks))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n"
        "</main>\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(level=level, text=text, anchor=anchor):
            return f'<h{level} id="{html.escape(anchor)}">{_inline(text)}</h{level}>'
        case Text(text=text):
            return f"<p>{_inline(text)}</p>"
        case Items(items=items):
            return "\n".join(["<ul>", *(f"<li>{_inline(item)}</li>" for item in items), "</ul>"])
        case Code(lines=lines):
            return f"<pre><code>{html.escape(chr(10).join(lines))}</code></pre>"
        case Table(grid=grid):
            return _table(grid)
        case Picture(file=file, text=text):
            data = base64.b64encode(file.read_bytes()).decode()
            return f'<img alt="{html.escape(text)}" src="data:{_TYPES[file.suffix]};base64,{data}">'
        case Details(summary=summary, blocks=inner):
            inside = "\n".join(map(_html, inner))
            return f"<details>\n<summary>{html.escape(summary)}</summary>\n{inside}\n</details>"


def _table(grid: Grid) -> str:
    marks = ["" if column.is_text else ' class="figure"' for column in grid.columns]
    headings = [column.heading.replace("-\n", "-").replace("\n", " ") for column in grid.columns]
    lines = ['<div class="wide"><table>', "<thead>", _row("th", marks, headings), "</thead>", "<tbody>"]
    lines += [_row("td", marks, row) for row in grid.rows]
    return "\n".join([*lines, "</tbody>", "</table></div>"])


def _row(tag: str, marks: Sequence[str], cells: Sequence[str]) -> str:
    inside = "".join(f"<{tag}{mark}>{_inline(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr>{inside}</tr>"


def _inline(text: str) -> str:
    """Text with its marks as HTML; whatever else stands in it is shown as it is."""
    parts, end = [], 0
    for match in _INLINE.finditer(text):
        parts.append(html.escape(text[end : match.start()]))
        code, strong, label, link = match.groups()
        if code is not None:
            parts.append(f"<code>{html.escape(code)}</code>")
        elif strong is not None:
            parts.append(f"<strong>{_inline(strong)}</strong>")
        else:
            parts.append(f'<a href="{html.escape(link)}">{_inline(label)}</a>')
        end = match.end()
    return "".join([*parts, html.escape(text[end:])])
