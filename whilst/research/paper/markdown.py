"""Pieces of Markdown as GitHub shows it."""

import html
import os
import re
from collections.abc import Sequence
from pathlib import Path


def bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def details(summary: str, text: str) -> str:
    return f"<details>\n<summary>{html.escape(summary)}</summary>\n\n{text}\n\n</details>"


def link(text: str, path: Path, folder: Path) -> str:
    """To a file, from a document in this folder."""
    return f"[{text}]({Path(os.path.relpath(path, folder)).as_posix()})"


def picture(stem: Path, text: str, folder: Path) -> str:
    """The .svg or .png of this name, or nothing."""
    files = [stem.with_name(stem.name + suffix) for suffix in (".svg", ".png")]
    return next((f"!{link(text, file, folder)}" for file in files if file.is_file()), "")


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
