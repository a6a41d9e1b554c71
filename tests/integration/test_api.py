"""The public API: light to import, and every example of its page works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import whilst
from tests.helpers.random_runs import make_varied_run
from whilst.core.settings import Data
from whilst.data.dataset import Dataset

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), flags=re.DOTALL)


HEAVY = {"torch", "numpy", "onnxruntime", "matplotlib"}


@pytest.mark.parametrize(
    "code",
    ["import whilst", "sys.argv[1:] = ['--help']\nfrom whilst.cli.main import main\nmain()"],
    ids=["import", "help"],
)
def test_import_and_help_are_light(code: str) -> None:
    checked = f"import sys, atexit; atexit.register(lambda: print(*sys.modules))\n{code}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", checked], check=True, env=environment, capture_output=True, text=True
    )
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


def test_open_model_loads_no_torch() -> None:
    code = "import sys, whilst; whilst.open_model('en-vi').translate(['Hello.']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


def test_every_public_name_is_documented() -> None:
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("api.md", "policies.md"))
    for name in whilst.__all__:
        assert getattr(whilst, name).__doc__ or name == "Event", name
    functions = ("open_model", "evaluate", "score", "register_policy", "PolicySpec", "PolicyKind", "UserError")
    assert all(f"whilst.{name}" in page for name in functions)
    assert set(whilst.__all__) <= set(dir(whilst))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        whilst.nothing  # noqa: B018


def test_the_examples_of_the_page_work(
    tmp_path: Path,
    toy_data: Data,
    toy_dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_varied_run(tmp_path / "runs" / "toy", toy_data, toy_dataset)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    for block in BLOCKS:
        exec(compile(block, "docs/api.md", "exec"), namespace)
    said = capsys.readouterr().out
    assert said.startswith("Cảm ơn rất nhiều.\n['Cảm', 'ơn', 'rất', 'nhiều.']\n")
    assert "wait-1" in said
    assert "tok:13a" in said


def test_translating_keeps_lines_apart() -> None:
    model = whilst.open_model("en-vi")
    lines = ["Thank you.", "", "Hello."]
    sentences = model.translate(lines, policy="full", references=["Cảm ơn.", "", "Xin chào."])
    assert [sentence.index for sentence in sentences] == [0, 1, 2]
    assert [bool(sentence.prediction) for sentence in sentences] == [True, False, True]
    assert sentences[0].delays == (2,) * len(sentences[0].words)
    assert whilst.score(sentences).empty == 1


def test_mistakes_are_user_errors() -> None:
    with pytest.raises(whilst.UserError, match="no such folder"):
        whilst.open_model("nowhere")
    with pytest.raises(whilst.UserError, match="oracle"):
        whilst.open_model("en-vi").session("oracle-1")
