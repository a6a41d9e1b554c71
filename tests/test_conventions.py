"""Conventions of the code: imports go one way between packages, folders and files stay small, no unsafe loading."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# A module imports only from its own package and from those before it.
PACKAGES = (
    "core",
    "data",
    "model",
    "policy",
    "search",
    "decoding",
    "evaluation",
    "training",
    "engine",
    "live",
    "speech",
    "server",
    "research",
    "cli",
)
MAX_LINES = 600  # of a file
MAX_ENTRIES = 15  # of a folder
FORBIDDEN = {
    "hasattr": "say with types what a thing is",
    "pickle": "loading it runs code: use safetensors or JSON",
    "torch.load": "loading it may run code: use safetensors",
    "torch.save": "use safetensors",
}

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "whilst"
MODULES = {path: ast.parse(path.read_text(encoding="utf-8"), path) for path in sorted(PACKAGE.rglob("*.py"))}


def imported_packages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and package of every import from whilst, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "whilst":
            names = [f"whilst.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the whole name, whilst.…"
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "whilst" and len(parts) > 1:
                yield node.lineno, parts[1]


def used_names(node: ast.AST) -> set[str]:
    """What a name, an attribute or an import refers to."""
    match node:
        case ast.Name(id=name):
            return {name}
        case ast.Attribute():
            return {ast.unparse(node)}
        case ast.Import(names=names):
            return {alias.name.split(".")[0] for alias in names}
        case ast.ImportFrom(module=str(module), names=names):
            return {module.split(".")[0], *(f"{module}.{alias.name}" for alias in names)}
    return set()


def test_every_package_is_listed() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(PACKAGES)
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    for path, tree in MODULES.items():
        if path.is_relative_to(PACKAGE / package):
            for line, other in imported_packages(tree):
                assert other in allowed, f"{path}:{line}: {package} imports {other}, which comes after it"


def test_files_and_folders_stay_small() -> None:
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        lines = path.read_text(encoding="utf-8").count("\n")
        assert lines <= MAX_LINES, f"{path} has {lines} lines: split it by what it knows"
    for folder in [*PACKAGE.glob("*/**"), *(ROOT / "tests").glob("*/**")]:
        entries = [path for path in folder.iterdir() if path.name != "__pycache__"]
        entries *= folder.name != "__pycache__"
        assert len(entries) <= MAX_ENTRIES, f"{folder} has {len(entries)} entries"


def test_nothing_forbidden_is_used() -> None:
    for path, tree in MODULES.items():
        for node in ast.walk(tree):
            for name in used_names(node) & FORBIDDEN.keys():
                assert isinstance(node, ast.expr | ast.stmt)
                pytest.fail(f"{path}:{node.lineno} uses {name}: {FORBIDDEN[name]}")
            if isinstance(node, ast.FunctionDef):
                assert node.args.kwarg is None, f"{path}:{node.lineno} takes **kwargs: name the arguments"


def test_every_module_has_a_docstring() -> None:
    assert [path for path, tree in MODULES.items() if not ast.get_docstring(tree)] == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import whilst.model.cache", ["model"]),
        ("from whilst.policy.fixed import Full", ["policy"]),
        ("def f():\n    from whilst import data, __version__", ["data"]),
        ("import torch\nfrom whilst import __version__", []),
    ],
)
def test_the_check_sees_every_form_of_import(code: str, expected: list[str]) -> None:
    assert [package for _, package in imported_packages(ast.parse(code))] == expected


@pytest.mark.parametrize(
    "code",
    ["hasattr(x, 'y')", "import pickle", "from pickle import loads", "torch.load(f)", "from torch import load"],
)
def test_the_check_sees_what_is_forbidden(code: str) -> None:
    assert any(used_names(node) & FORBIDDEN.keys() for node in ast.walk(ast.parse(code)))
