"""The wheel in an empty environment: what `pip install whilst` brings is enough to translate live."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from whilst.core.errors import EXTRAS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
MAX_BYTES = 45_000_000  # of the wheel
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def run_command(*words: str | Path, folder: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """In `folder`, without the modules of this checkout."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        list(map(str, words)), cwd=folder, env=environment, input=stdin, capture_output=True, encoding="utf-8"
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "whilst", folder / "whilst", ignore=shutil.ignore_patterns("__pycache__"))
    options = "-q", "--no-deps", "--no-build-isolation", "-w", folder
    built = run_command(sys.executable, "-m", "pip", "wheel", *options, folder, folder=folder)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a program of an environment that has the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("installed")
    if run_command(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "rich", folder=folder).returncode:
        pytest.skip("pip cannot download packages here")
    (folder / "recipe.toml").touch()
    programs = folder / "venv" / "bin"
    for command in ((sys.executable, "-m", "venv", "venv"), (programs / "pip", "install", "-q", wheel)):
        done = run_command(*command, folder=folder)
        assert done.returncode == 0, done.stderr

    def run(program: str, *words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return run_command(programs / program, *words, folder=folder, stdin=stdin)

    return run


def test_the_wheel_holds_the_models_and_is_small(wheel: Path) -> None:
    models = [path for path in (ROOT / "whilst" / "models").rglob("*") if path.is_file()]
    names = zipfile.ZipFile(wheel).namelist()
    assert {path.relative_to(ROOT).as_posix() for path in models} <= set(names)
    assert "whilst/py.typed" in names
    assert wheel.stat().st_size < MAX_BYTES


def test_packages_of_extras_are_not_installed(installed: Run) -> None:
    packages = [package for packages in EXTRAS.values() for package in packages]
    code = f"import importlib.util as u; print([name for name in {packages} if u.find_spec(name)])"
    assert installed("python", "-c", code).stdout == "[]\n"


def test_help_lists_the_commands(installed: Run) -> None:
    done = installed("whilst", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f" {command} " in done.stdout for command in ("live", "train", "evaluate", "serve"))


def test_the_model_of_the_package_translates(installed: Run) -> None:
    done = installed("whilst", "live", "--latency", "high", stdin="Thank you very much.\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Cảm ơn rất nhiều.\n", "")
    code = "import pathlib; print(list(pathlib.Path('cache').rglob('*.onnx')))"
    assert installed("python", "-c", code).stdout == "[]\n", "nothing is converted"


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("train recipe.toml", "torch", "train"),
        ("translate run", "torch", "train"),
        ("live --engine torch", "torch", "train"),
        ("live --precision fp32", "torch", "train"),
        ("export run out", "torch", "train"),
        ("bench decode", "torch", "train"),
        ("serve", "uvicorn", "serve"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(installed: Run, command: str, package: str, extra: str) -> None:
    done = installed("whilst", *command.split())
    message = f"whilst: {package} is not installed: pip install 'whilst[{extra}]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_the_api_translates(installed: Run) -> None:
    code = """
import whilst
model = whilst.open_model()
[sentence] = model.translate(["Thank you very much."], policy="high")
print(sentence.prediction, sentence.delays, whilst.score([sentence]).al_word)
try:
    whilst.evaluate("run")
except whilst.UserError as error:
    print(error)
"""
    expected = "Cảm ơn rất nhiều. (4, 4, 4, 4) 4.0\ntorch is not installed: pip install 'whilst[train]'\n"
    assert installed("python", "-c", code).stdout == expected


SERVE = """
import json, re, subprocess, sys, urllib.request
command = sys.executable, "-m", "whilst", "serve", "--port", "0"
server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
address = re.search(r"http://[\\d.:]+", server.stderr.readline())[0]
body = json.dumps({"text": "Thank you very much.", "latency": "high"}).encode()
try:
    print(urllib.request.urlopen(f"{address}/v1/translate", body).read().decode())
finally:
    server.terminate()
"""


def test_a_server_needs_no_torch(installed: Run, wheel: Path) -> None:
    """The last test: it adds the extra `serve` to the environment."""
    done = installed("pip", "install", "-q", f"{wheel}[serve]")
    assert done.returncode == 0, done.stderr
    done = installed("python", "-c", SERVE)
    assert "nhiều." in done.stdout, done.stderr
