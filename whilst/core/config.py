"""Build settings from TOML and from `--set a.b=c`, and check names, types and values against the dataclasses.

Works for any frozen dataclass of plain fields; settings.py defines those of a recipe.
"""

import contextlib
import dataclasses
import difflib
import functools
import itertools
import json
import re
import tomllib
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, TypeVar

from whilst.core.errors import UserError
from whilst.core.files import read_json, require_folder, resolve_model
from whilst.core.settings import RENAMED, RETIRED, Agent, Check, Recipe, Role, names_with

T = TypeVar("T")
FORMAT = 1  # of recipe.json in a run folder
LARGEST = 1e15  # limit of numbers in settings, records and traces; larger ones are mistakes and could overflow


def load_recipe(path: Path, overrides: list[str]) -> Recipe:
    """Read a recipe file, merged over its `base` (one file or several), and apply `a.b=c` overrides."""
    table = {name: value for name, value in _read_table(path).items() if name not in ("sweep", "ladder")}
    try:
        recipe = build(Recipe, table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    recipe = override(dataclasses.replace(recipe, file=path.as_posix()), overrides)
    explicit = flatten(table).keys() | {item.partition("=")[0].strip() for item in overrides}
    # The seeds of the later stages follow train.seed unless they are set.
    recipe = override(recipe, [f"{name}={recipe.train.seed}" for name in names_with(Role.SEED) - explicit])
    recipe = _with_filled_paths(recipe, path)
    for name, role in (("data.like", Role.LIKE), ("start", Role.START)):
        recipe = _with_settings_of(recipe, name, names_with(role) - explicit)
    require_folder(Path(recipe.run), "run")
    return recipe


def read_recipe(folder: Path) -> Recipe:
    """Read the recipe that is stored in a run folder."""
    if not (folder / "recipe.json").is_file():
        raise UserError(f"{folder}: not a run folder (no recipe.json); `whilst train` makes one")
    record = read_json(folder / "recipe.json")
    if not isinstance(record, dict) or not isinstance(record.get("recipe"), dict):
        raise UserError(f"{folder}: recipe.json is damaged; begin the run anew with `whilst train --restart`")
    if record.get("format") != FORMAT:
        raise UserError(f"{folder}: written by another version of whilst (format {record.get('format')})")
    try:
        return build(Recipe, record["recipe"])
    except UserError as error:
        raise UserError(f"{folder}: recipe.json: {error}") from None


def _with_filled_paths(recipe: Recipe, path: Path) -> Recipe:
    """Replace {section.key} in paths with that setting's value, so that sweeps and language pairs share recipes."""
    values = flatten(to_table(recipe))

    def fill(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UserError(f"{path}: {match[0]}: there is no setting {match[1]!r}")
        return _folder_name(values[match[1]])

    paths = {name: values[name] for name in names_with(Role.PLACE | Role.ORIGIN) if isinstance(values[name], str)}
    filled = {name: re.sub(r"\{([\w.]+)\}", fill, text) for name, text in paths.items() if "{" in text}
    return override(recipe, [f"{name}={json.dumps(text)}" for name, text in filled.items()])


def _with_settings_of(recipe: Recipe, origin: str, names: frozenset[str]) -> Recipe:
    """Take the settings `names` from the run whose path is the setting `origin`, if that run exists."""
    run = resolve_model(flatten(to_table(recipe))[origin])
    if not run or not (Path(run) / "recipe.json").is_file():
        return recipe
    values = flatten(to_table(read_recipe(Path(run)))) | {origin: run}
    return override(recipe, [f"{name}={json.dumps(values[name])}" for name in sorted(names | {origin})])


def load_sweep(path: Path, overrides: list[str], only: Sequence[str] = ()) -> list[Recipe]:
    """Read a recipe file as one recipe for each point of its `[sweep]`; without a sweep, as one recipe.

    The lists of a sweep have the same length; point i has value i of each list and the run folder RUN/VALUE, named
    by the first list. Several sweeps (`[[sweep]]`) are multiplied: RUN/VALUE/VALUE. A `[ladder]` maps names to
    settings; the run RUN/NAME has the settings of NAME and of all names before it. `only`: patterns of the folders
    to return, matched from the right: "7" and "3-7/*".
    """
    recipe, table = load_recipe(path, overrides), _read_table(path)
    sweeps = table.get("sweep", [])
    levels = [_ladder_level(table["ladder"], path)] if "ladder" in table else []
    levels += [_sweep_level(sweep, path, overrides) for sweep in (sweeps if isinstance(sweeps, list) else [sweeps])]
    if not levels:
        return [recipe]
    points = {}
    for level_points in itertools.product(*(level.items() for level in levels)):
        names, settings = zip(*level_points, strict=True)
        name = "/".join(names)
        points[name] = [*overrides, *itertools.chain(*settings), f"run={recipe.run}/{name}"]
    for pattern in only:
        if not any(PurePath(name).match(pattern) for name in points):
            raise UserError(f"--only {pattern}: {path} has the runs {', '.join(points)}")
    chosen = [name for name in points if any(PurePath(name).match(pattern) for pattern in only or ["*"])]
    return [load_recipe(path, points[name]) for name in chosen]


def _ladder_level(ladder: Any, path: Path) -> dict[str, tuple[str, ...]]:
    """Name -> overrides of each rung of a ladder: its own and those of the rungs before it."""
    if not isinstance(ladder, dict) or not all(isinstance(changes, dict) for changes in ladder.values()):
        raise UserError(f'{path}: [ladder]: write it as NAME = {{ "section.key" = VALUE }}')
    rungs, settings = {}, dict[str, Any]()
    for name, changes in ladder.items():
        settings |= changes
        rungs[name] = tuple(f"{key}={json.dumps(value)}" for key, value in (settings | {"rung": name}).items())
    return rungs


def _sweep_level(sweep: Any, path: Path, overrides: list[str]) -> dict[str, tuple[str, ...]]:
    """Folder name -> overrides of each point of one sweep."""
    if not isinstance(sweep, dict) or not sweep or not all(isinstance(own, list) and own for own in sweep.values()):
        raise UserError(f'{path}: [sweep]: write it as "section.key" = [VALUE, …]')
    if len({len(values) for values in sweep.values()}) != 1:
        raise UserError(f"{path}: [sweep]: the lists must have the same length")
    if given := sorted(sweep.keys() & {item.partition("=")[0].strip() for item in overrides}):
        raise UserError(f"--set {given[0]}: {path} sets it in [sweep]; choose a value with --only")
    names = [_folder_name(value) for value in next(iter(sweep.values()))]
    for name in names:
        if names.count(name) > 1 or not re.fullmatch(r"[\w.-]*\w", name):
            raise UserError(f"{path}: [sweep]: the first list names the folders, but {name} is invalid or repeated")
    # In the syntax of `--set`: TOML writes numbers, strings, booleans and lists as JSON does.
    settings = [[f"{key}={json.dumps(value)}" for value in values] for key, values in sweep.items()]
    return dict(zip(names, zip(*settings, strict=True), strict=True))


def _folder_name(value: Any) -> str:
    """The folder name of a setting's value; for search intervals such as [[1, 5], [3, 7]] it is 1-5_3-7."""
    if isinstance(value, list | tuple):
        return "_".join("-".join(map(str, item)) if isinstance(item, list | tuple) else str(item) for item in value)
    return str(value)


def _read_table(path: Path, derived: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a recipe file, merged over its `base`. `derived`: the files based on this one, the direct one last."""
    if path.resolve() in derived:
        raise UserError(f"{derived[-1]}: base: {path} is itself based on this recipe")
    if not path.is_file():
        raise UserError(f"{derived[-1]}: base: {path}: no such recipe" if derived else f"{path}: no such recipe")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML ({error})") from None
    except RecursionError:
        raise UserError(f"{path}: not a recipe: its lists are nested too deeply") from None
    base = table.pop("base", [])
    merged: dict[str, Any] = {}
    for name in base if isinstance(base, list) else [base]:
        if not isinstance(name, str):
            raise UserError(f"{path}: base: must be text in quotes or a list of texts, not {base!r}")
        merged = _merged(merged, _read_table(path.parent / name, (*derived, path.resolve())))
    return _merged(merged, table)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge section by section; other values, lists too, are replaced."""
    merged = dict(base)
    for name, value in changes.items():
        old = base.get(name)
        merged[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def override(recipe: T, overrides: list[str]) -> T:
    """Apply overrides such as `a.b=c`. The value is TOML; strings need no quotes."""
    table: dict[str, Any] = {}
    for item in overrides:
        key, equals, text = item.partition("=")
        if not equals:
            raise UserError(f"--set {item}: write it as section.key=value")
        value: Any = text.strip()
        with contextlib.suppress(tomllib.TOMLDecodeError, RecursionError):
            value = tomllib.loads(f"value = {value}")["value"]
        for name in reversed(key.strip().split(".")):
            value = {name: value}
        table = _merged(table, value)
    return _change(recipe, table, "")


def build(kind: type[T], table: dict[str, Any], where: str = "") -> T:
    """Build a dataclass from a table and check all names and types. `where`: prefix of names in messages."""
    return _change(kind(), table, where)


def _change(settings: T, table: dict[str, Any], where: str) -> T:
    """Apply a table; settings that it does not name keep their values."""
    kind: Any = type(settings)
    hints, values = _hints(kind), {}
    for name, value in table.items():
        key = f"{where}{name}"
        if (kind, name) in RETIRED:
            allowed = RETIRED[kind, name]
            if allowed is not None and value not in allowed:
                raise UserError(f"{key}: {value!r} is no longer supported; commit c396658 has it")
            continue
        if (kind, name, value) == (Agent, "agreement", "lasting") and table.get("labels") != "translation":
            continue  # the default in old files; it does not affect searched labels
        if name not in hints:
            [closest] = difflib.get_close_matches(name, sorted(hints), n=1, cutoff=0.0)
            raise UserError(f"unknown setting {key!r}; did you mean {where + closest!r}?")
        current = getattr(settings, name)
        if not dataclasses.is_dataclass(current):
            values[name] = _convert(hints[name], value, key)
        elif isinstance(value, dict):
            values[name] = _change(current, value, f"{key}.")
        else:
            raise UserError(f"{key}: is a section, write [{key}]")
    return typing.cast(T, dataclasses.replace(typing.cast(Any, settings), **values))


def from_json(kind: Callable[..., T], row: dict[str, Any], where: str) -> T:
    """Build a dataclass from a JSON object that has exactly its fields, and check all names and types."""
    hints = _hints(kind)
    if wrong := sorted(row.keys() ^ hints.keys()):
        raise UserError(f"{where}: missing or unknown {', '.join(wrong)}")
    return kind(**{name: _convert(hint, row[name], f"{where}: {name}") for name, hint in hints.items()})


@functools.cache
def _hints(kind: object) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _convert(hint: Any, value: Any, key: str) -> Any:
    """Check a value and convert it to the type `hint`. `key` names the setting or field in messages."""
    if isinstance(value, int | float) and not abs(value) < LARGEST:  # `not <` also refuses NaN
        raise UserError(f"{key}: must be a number below {LARGEST:.0e}, not {value}")
    if type(value) is hint:
        return value
    origin = typing.get_origin(hint)
    if origin is Annotated:
        value = _convert(hint.__origin__, value, key)
        for check in hint.__metadata__:
            if isinstance(check, Check) and value is not None and not check.holds(value):
                raise UserError(f"{key}: must be {check.what}, not {value!r}")
        return value
    if origin is typing.Literal:
        choices = typing.get_args(hint)
        value = RENAMED.get(value, value) if isinstance(value, str) else value
        if value not in choices:
            raise UserError(f"{key}: must be one of {', '.join(map(str, choices))}, not {value!r}")
        return value
    if origin is types.UnionType:  # only `X | None` is used
        inner = next(arm for arm in typing.get_args(hint) if arm is not types.NoneType)
        is_none = value is None or (value == "none" and inner is not str)
        return None if is_none else _convert(inner, value, key)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise UserError(f"{key}: must be a list, not {value!r}")
        if {*map(type, value)} <= {inner}:  # fast path: traces have many lists
            return tuple(value)
        return tuple(_convert(inner, item, key) for item in value)
    if origin is dict:
        return _convert(dict, value, key)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise UserError(f"{key}: must be {_TYPE_NAMES.get(hint, 'a table')}, not {value!r}")


_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}


def to_table(settings: Any) -> dict[str, Any]:
    """Convert settings to the table that `build` reads: values of JSON types, with lists for tuples."""
    table: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings)))
    return table


def flatten(table: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Flatten nested sections: the keys become section.key."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        values |= flatten(value, f"{where}{name}.") if isinstance(value, dict) else {f"{where}{name}": value}
    return values


def values_with(settings: Any, role: Role) -> dict[str, Any]:
    """Dotted name -> plain value of the settings that have any of these roles, in their order."""
    names = names_with(role, type(settings))
    return {name: value for name, value in flatten(to_table(settings)).items() if name in names}
