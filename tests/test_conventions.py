"""What the code promises about itself: imports go one way, files stay short, nothing is guessed or unpickled."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

# The way data flows. A module imports only from those before it; a package (policy) is one entry.
LAYERS = (
    "errors",
    "files",
    "console",
    "signals",
    "aside",
    "settings",
    "config",
    "names",
    "processes",
    # text -> tokens
    "text",
    "segment",
    "vocab",
    "toy",
    "corpora",
    "dataset",
    "prepare",
    "folders",
    # batches -> model under reads
    "reads",
    "attention",
    "tiles",
    "shapes",
    "data",
    "chances",
    "chances_triton",
    "mma",
    "cache",
    "layers",
    "model",
    "objectives",
    "search",
    "beginnings",
    "looks",
    "packing",
    "agent",
    "draw",
    "labels",
    "capture",
    "optim",
    "checkpoint",
    "graph",
    "graphs",
    "buffers",
    "engine",
    "export",
    # policy -> decode -> trace -> metrics
    "policy",
    "loop",
    "steady",
    "decode",
    "beam",
    "outliers",
    "distil",
    "prefixes",
    "walk",
    "reference",
    "trace",
    "alignment",
    "metrics",
    "scoring",
    # report
    "paper",
    "seeds",
    "compare",
    "tables",
    "families",
    "lines",
    "placing",
    "figure",
    "chart",
    "report",
    "report_screen",
    "titles",
    "evaluate",
    "measured",
    # live
    "familiar",
    "casing",
    "boundaries",
    "live",
    "eager",
    "engine_steps",
    "kept",
    "loading",
    "one_by_one",
    "simuleval_agent",
    "bundle",
    "incoming",
    "displays",
    "marks",
    "translate",
    "subtitles",
    "terminal",
    "server",
    "sufficiency",
    "analyse",
    "explain",
    "landscape",
    # what drives all of it
    "validate",
    "tasks",
    "stages",
    "trainer",
    "times",
    "train",
    # the paper beside what was kept
    "document",
    "provenance",
    "shelf",
    "paper_tables",
    "paper_ablations",
    "paper_studies",
    "paper_doc",
    "kernels",
    "bench",
    "growth",
    "limits",
    "losses",
    "engine_bench",
    "serve_bench",
    "walkthrough",
    "flicker",
    "demo",
    "options",
    "studies",
    "streams",
    "deploy",
    "benches",
    "__main__",
)
LONGEST = 350  # lines
FORBIDDEN = {
    "hasattr": "say with types what a thing is",
    "pickle": "loading it runs code: use safetensors or JSON",
    "torch.load": "loading it may run code: use safetensors",
    "torch.save": "use safetensors",
}

PACKAGE = Path(__file__).parent.parent / "whilst"
MODULES = sorted(PACKAGE.rglob("*.py"))
FILES = MODULES + sorted(Path(__file__).parent.rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix()


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), path)))


def _layer(path: Path) -> str | None:
    """The entry of LAYERS that a module belongs to; the package's own __init__ has none."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def _imported_layers(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and layer of every import from the package, those inside functions too."""
    for node in nodes:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the whole name, whilst.…"
            module = node.module or ""
            names = [f"whilst.{name}" for name in names] if module == "whilst" else [module]
        for name in names:
            parts = name.split(".")
            if parts[0] == "whilst" and len(parts) > 1 and parts[1] != "__version__":
                yield node.lineno, parts[1]


def _uses(node: ast.AST) -> set[str]:
    """What a name, an attribute or an import refers to; nothing for any other node."""
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


def test_layers_are_named_once() -> None:
    assert len(set(LAYERS)) == len(LAYERS)


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_go_one_way(path: Path) -> None:
    layer = _layer(path)
    imported = list(_imported_layers(_nodes(path)))
    if layer is None:
        assert not imported, f"{_name(path)} imports its own package: it must stay empty but for the version"
        return
    assert layer in LAYERS, f"{_name(path)} has no place yet: put {layer!r} into LAYERS, in the order of the flow"
    for line, other in imported:
        assert other in LAYERS, f"{_name(path)}:{line} imports whilst.{other}, which LAYERS does not name"
        assert LAYERS.index(other) <= LAYERS.index(layer), (
            f"{_name(path)}:{line} imports whilst.{other}, which comes later in the flow: "
            "move what both need to an earlier module, or change the order of LAYERS"
        )


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_files_stay_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{_name(path)} has {lines} lines, more than {LONGEST}: split it by what it knows"


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_nothing_forbidden_is_used(path: Path) -> None:
    for node in _nodes(path):
        for name in _uses(node) & FORBIDDEN.keys():
            assert isinstance(node, ast.expr | ast.stmt)  # which have a line
            pytest.fail(f"{_name(path)}:{node.lineno} uses {name}: {FORBIDDEN[name]}")
        if isinstance(node, ast.FunctionDef):
            assert node.args.kwarg is None, f"{_name(path)}:{node.lineno} takes **kwargs: name the arguments"


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_says_what_it_does(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{_name(path)} has no docstring"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import whilst.model", ["model"]),
        ("from whilst.policy.full import Full", ["policy"]),
        ("def f():\n    from whilst import toy, __version__", ["toy"]),
        ("import torch\nfrom whilst import __version__", []),
    ],
)
def test_the_check_sees_every_form_of_import(code: str, expected: list[str]) -> None:
    assert [layer for _, layer in _imported_layers(list(ast.walk(ast.parse(code))))] == expected


@pytest.mark.parametrize(
    "code",
    ["hasattr(x, 'y')", "import pickle", "from pickle import loads", "torch.load(f)", "from torch import load"],
)
def test_the_check_sees_what_is_forbidden(code: str) -> None:
    assert any(_uses(node) & FORBIDDEN.keys() for node in ast.walk(ast.parse(code)))
