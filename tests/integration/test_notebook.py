"""The notebooks in examples/ run from top to bottom, and are stored without output."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append([len(axes.lines) for axes in plt.gcf().axes]))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    plt.switch_backend("agg")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in code:
        exec(compile("".join(cell["source"]), f"{path.name} {cell['id']}", "exec"), namespace)
        plt.close("all")
    assert shown == [[1, 1], [2]]  # two staircases, and two curves


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
