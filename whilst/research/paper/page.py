"""Pieces of Markdown, and a Markdown document as one HTML file with its pictures in it."""

import base64
import html
import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt

from whilst.evaluation.tables import Column, Grid

_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem; font: 16px/1.55 system-ui, sans-serif; }
table { display: block; overflow-x: auto; border-collapse: collapse; font-size: .875rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #8884; white-space: nowrap; }
img { max-width: 100%; height: auto; background: #fff; }
"""


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[str] = ()) -> str:
    """`texts`: headings of the columns that are aligned left."""
    columns = [Column(heading, is_text=heading in texts) for heading in headings]
    return "\n".join(Grid(columns, rows).to_markdown())


def bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def details(summary: str, text: str) -> str:
    return f"<details>\n<summary>{html.escape(summary)}</summary>\n\n{text}\n\n</details>"


def link(text: str, path: Path, folder: Path) -> str:
    """To a file, from a document in this folder."""
    return f"[{text}]({Path(os.path.relpath(path, folder)).as_posix()})"


def picture(stem: Path, text: str, folder: Path) -> str:
    """The .svg or .png of this name, or nothing."""
    files = [stem.with_name(stem.name + suffix) for suffix in _TYPES]
    return next((f"!{link(text, file, folder)}" for file in files if file.is_file()), "")


def anchor(heading: str) -> str:
    """The same as on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def to_html(title: str, markdown: str, folder: Path) -> str:
    """One file, with style and pictures in it. `folder`: of the Markdown file, for its links."""
    parser = MarkdownIt("commonmark", {"html": True, "xhtmlOut": False}).enable("table")
    tokens = parser.parse(markdown)
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(tokens[number + 1].content))
        for image in [child for child in token.children or [] if child.type == "image"]:
            file = folder / unquote(str(image.attrs["src"]))
            data = base64.b64encode(file.read_bytes()).decode()
            image.attrSet("src", f"data:{_TYPES[file.suffix]};base64,{data}")
    body = parser.renderer.render(tokens, parser.options, {})
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
