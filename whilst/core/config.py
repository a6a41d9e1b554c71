"""Settings from TOML plus `--set a.b=c`, checked against the dataclasses: an unknown key is an error.

Knows how to build any frozen dataclass of plain fields; what the fields are stands in settings.py.
"""

import dataclasses
import difflib
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from whilst.core.errors import UserError
from whilst.core.settings import Recipe

T = TypeVar("T")
LATER = "search", "agent"  # stages with a [train] of their own


def load_recipe(path: Path, overrides: list[str]) -> Recipe:
    """Read a recipe file, with what it is based on, and apply `a.b=c` overrides."""
    table = _read_table(path)
    try:
        recipe = build(Recipe, table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    recipe = override(recipe, overrides)
    # Whoever writes another seed means that of all stages, unless they name their own.
    given = {item.partition("=")[0].strip() for item in overrides}
    given |= {f"{stage}.train.seed" for stage in LATER if "seed" in table.get(stage, {}).get("train", {})}
    names = [f"{stage}.train.seed" for stage in LATER]
    return override(recipe, [f"{name}={recipe.train.seed}" for name in names if name not in given])


def _read_table(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe as it stands in its file, put over the one that its `base` names; `above`: who is based on it."""
    if path.resolve() in above:
        raise UserError(f"{above[-1]}: base: {path} is based on this recipe in turn; one of them must stand alone")
    if not path.is_file():
        raise UserError(f"{above[-1]}: base: {path}: no such recipe" if above else f"{path}: no such recipe")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML ({error})") from None
    base = table.pop("base", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise UserError(f"{path}: base: must be text in quotes, not {base!r}")
    return _merged(_read_table(path.parent / base, (*above, path.resolve())), table)


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Section by section; a list is replaced whole."""
    both = dict(under)
    for name, value in over.items():
        below = under.get(name)
        both[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both


def override(recipe: T, overrides: list[str]) -> T:
    """Apply `a.b=c`; the value is TOML, or a bare string where TOML would want quotes."""
    table = to_table(recipe)
    for item in overrides:
        key, equals, text = item.partition("=")
        if not equals:
            raise UserError(f"--set {item}: write it as section.key=value")
        *sections, name = key.strip().split(".")
        place = table
        for depth, section in enumerate(sections):
            where = ".".join(sections[: depth + 1])
            if section not in place:
                raise UserError(f"--set {item}: {_unknown(where, place, section)}")
            if not isinstance(place[section], dict):
                raise UserError(f"--set {item}: {where!r} is no section but a setting; write {where}=value")
            place = place[section]
        if name not in place:
            raise UserError(f"--set {item}: {_unknown(key.strip(), place, name)}")
        place[name] = _parse_value(text.strip())
    return build(type(recipe), table)


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _unknown(key: str, valid: typing.Iterable[str], name: str) -> str:
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    prefix = key[: len(key) - len(name)]
    return f"unknown setting {key!r}" + (f"; did you mean {prefix + near[0]!r}?" if near else "")


def build(kind: type[T], table: dict[str, Any], where: str = "") -> T:
    """Build a dataclass from a table, checking every name and type on the way."""
    return _change(kind(), table, where)


def _change(settings: T, table: dict[str, Any], where: str) -> T:
    """The settings with what the table says; a section keeps its own defaults for the rest."""
    hints = typing.get_type_hints(type(settings))
    values = {}
    for name, value in table.items():
        key = f"{where}{name}"
        if name not in hints:
            raise UserError(_unknown(key, hints, name))
        if not dataclasses.is_dataclass(hints[name]):
            values[name] = _convert(hints[name], value, key)
        elif isinstance(value, dict):
            values[name] = _change(getattr(settings, name), value, f"{key}.")
        else:
            raise UserError(f"{key}: is a section, write [{key}]")
    return typing.cast(T, dataclasses.replace(typing.cast(Any, settings), **values))


def _convert(hint: Any, value: Any, key: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UserError(f"{key}: must be one of {', '.join(map(str, choices))}, not {value!r}")
        return value
    if origin is types.UnionType:  # only `X | None` is used
        inner = next(arm for arm in typing.get_args(hint) if arm is not types.NoneType)
        return None if value is None or value == "none" else _convert(inner, value, key)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise UserError(f"{key}: must be a list, not {value!r}")
        return tuple(_convert(inner, item, key) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise UserError(f"{key}: must be {_NAMES[hint]}, not {value!r}")
    return value


_NAMES = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}


def to_table(settings: Any) -> dict[str, Any]:
    """The settings as plain data, for JSON; `build` takes it back."""
    return dataclasses.asdict(settings)
