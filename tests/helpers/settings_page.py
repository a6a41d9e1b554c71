"""Tables of all settings for docs/configuration.md, from the classes and comments of whilst/core/settings.py.

`python -m tests.helpers.settings_page` updates the page; a test fails if it is out of date.
"""

import ast
import dataclasses
import io
import json
import tokenize
import typing
from pathlib import Path
from typing import Any

from whilst.core import settings
from whilst.core.settings import Recipe, Role, names_with

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BEGIN, END = "<!-- generated from whilst/core/settings.py -->\n", "<!-- end of generated part -->\n"


def comments() -> dict[tuple[str, str], str]:
    """Class and field -> the comment above its definition and the one at its end."""
    source = Path(settings.__file__).read_text(encoding="utf-8")
    above: dict[int, str] = {}
    beside: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = token.line.lstrip().startswith("#")
            (above if alone else beside)[token.start[0]] = token.string.removeprefix("#").strip()
    found = {}
    for group in [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]:
        for field in [node for node in group.body if isinstance(node, ast.AnnAssign)]:
            first = field.lineno
            while first - 1 in above:
                first -= 1
            lines = range(first, (field.end_lineno or field.lineno) + 1)
            parts = [above.get(line, "") + beside.get(line, "") for line in lines]
            found[group.name, ast.unparse(field.target)] = " ".join(filter(None, parts))
    return found


def values(kind: Any) -> str:
    """Which values a field of this type takes."""
    names = {str: "text", int: "whole number", float: "number", bool: "true, false"}
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(choice or "empty" for choice in arguments)
    if typing.get_origin(kind) is tuple:
        inner = values(arguments[0])
        return "list of lists" if inner.startswith("list") else f"list of {inner}"
    if type(None) in arguments:
        return values(arguments[0])
    return names[kind]


def toml(value: Any) -> str:
    """A default as TOML."""
    return json.dumps(value, ensure_ascii=False)


def sentence(comment: str) -> str:
    """A comment as the text of a table's cell. It may begin with a value, which stays as it is."""
    escaped = comment.replace("|", "\\|").replace("<", "&lt;").replace("&apos;", "&amp;apos;")
    first = escaped.split(" ")[0]
    start = escaped[:1] if len(first) == 1 or first.endswith(":") else escaped[:1].upper()
    return f"{start}{escaped[1:].removesuffix('.')}." if escaped else ""


def sections(kind: type = Recipe, name: str = "") -> typing.Iterator[tuple[str, type]]:
    """Section names and classes, in the order of a recipe."""
    yield name, kind
    for field, inner in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(inner):
            yield from sections(inner, f"{name}.{field}" if name else field)  # type: ignore[arg-type]


def default(section: str) -> Any:
    """The part of the default recipe that is a section."""
    part: Any = Recipe()
    for name in filter(None, section.split(".")):
        part = getattr(part, name)
    return part


def differences(section: str, kind: type) -> list[str]:
    """What a section's defaults change in those of its class."""
    part, plain = default(section), kind()
    names = [field.name for field in dataclasses.fields(kind)]
    return [
        f"{name} = {toml(getattr(part, name))}" for name in names if getattr(part, name) != getattr(plain, name)
    ]


def tables() -> str:
    """The generated part of the page."""
    texts, lines = comments(), [BEGIN]
    seen: dict[type, str] = {}
    for section, kind in sections():
        title = f"[{section}]" if section else "Recipe"
        lines.append(f"\n### {title}\n")
        if kind in seen:
            settings_ = "\n".join(differences(section, kind))
            lines.append(f"\nAs [{seen[kind]}], with these defaults:\n\n```toml\n{settings_}\n```\n")
            continue
        seen[kind] = section
        lines.append(f"\n{kind.__doc__}\n\n| setting | default | values | |\n|---|---|---|---|\n")
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if not dataclasses.is_dataclass(hints[field.name]):
                value = getattr(default(section), field.name)
                cells = (
                    f"`{field.name}`",
                    "preset" if value is None else f"`{toml(value)}`",
                    values(hints[field.name]),
                    sentence(texts[kind.__name__, field.name]),
                )
                lines.append(f"| {' | '.join(cells)} |\n")
    names = [
        name for name in sorted(names_with(Role.RESUME)) if not name.startswith(("agent", "evaluate", "search"))
    ]
    resume = ", ".join(f"`{name}`" for name in names)
    lines.append(f"\n### When a run is resumed\n\nThese may differ: all of [evaluate], and {resume}.\n")
    return "".join([*lines, END])


def updated(page: str) -> str:
    """The page with its generated part made anew."""
    before, rest = page.split(BEGIN)
    return before + tables() + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
