"""Commands and links of the documents work: shell blocks are run as they stand, with smaller models and corpora."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from tests.helpers import settings_page
from whilst import __version__
from whilst.cli.main import app
from whilst.core.config import flatten
from whilst.data import toy

ROOT = Path(__file__).parents[2]
SMALLER = [
    "data.toy_pairs=300",
    "data.size=100",
    "model.width=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=16",
    "train.steps=4",
    "train.validate_every=4",
    "train.warmup=1",
    "train.batch_tokens=512",
    "search.train.steps=2",
    "search.train.validate_every=2",
    "agent.hidden=8",
    "agent.train.steps=2",
    "agent.train.validate_every=2",
]
SIZES = {"toy-20000-1": "toy-300-1"}
WHILST = """#!/bin/sh
case $1 in prepare|train) exec {python} -m whilst "$@" {smaller};; esac
exec {python} -m whilst "$@"
"""
PAGES = "README.md", "CONTRIBUTING.md", "results/README.md"
DOCUMENTS = [*(ROOT / name for name in PAGES), *ROOT.glob("docs/*.md")]


def commands(command: TyperGroup | TyperCommand, name: str) -> dict[str, set[str]]:
    """Full names of the commands of a group, with their options."""
    if isinstance(command, TyperCommand):
        options = [option for part in command.params for option in [*part.opts, *part.secondary_opts]]
        return {name: {"--help", *options}}
    found: dict[str, set[str]] = {name: {"--help"}}
    for key, part in command.commands.items():
        assert isinstance(part, TyperGroup | TyperCommand)
        found |= commands(part, f"{name} {key}")
    return found


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(script: str, folder: Path) -> None:
    """Run a shell block in `folder`, with a `whilst` that trains tiny models."""
    program = folder / "bin" / "whilst"
    program.parent.mkdir(exist_ok=True)
    smaller = " ".join(f"--set {setting}" for setting in SMALLER)
    program.write_text(WHILST.format(python=sys.executable, smaller=smaller), encoding="utf-8")
    program.chmod(0o755)
    for size, less in SIZES.items():
        script = script.replace(size, less)
    environment = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def write_pairs(folder: Path, names: dict[str, tuple[str, str]]) -> None:
    """Toy sentences under other names, 240 for each pair of files."""
    folder.mkdir(parents=True)
    for seed, (source, target) in enumerate(names.values()):
        pairs = list(toy.pairs(240, seed))
        (folder / source).write_text("".join(f"{' '.join(p.source)}\n" for p in pairs), encoding="utf-8")
        (folder / target).write_text("".join(f"{' '.join(p.target)}\n" for p in pairs), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_commands_of_the_readme_run(number: int, tmp_path: Path) -> None:
    commands = blocks("README.md", "sh")
    assert len(commands) == 3, "a block was added or removed: run it here too"
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    write_pairs(
        tmp_path / "corpora" / "iwslt15.en-vi",
        {name: (f"{name}.en", f"{name}.vi") for name in ("train", "tst2012", "tst2013")},
    )
    write_pairs(tmp_path / "texts", {"train": ("train.de", "train.en")})
    run(commands[number], tmp_path)


@pytest.mark.slow
def test_the_toy_pipeline_runs_and_does_not_train_twice(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    script = (ROOT / "recipes" / "toy" / "run.sh").read_text(encoding="utf-8")
    weights, trained = tmp_path / "runs" / "toy" / "model.safetensors", set()
    for _ in range(2):
        run(script, tmp_path)
        trained.add(weights.stat().st_mtime_ns)
    assert len(trained) == 1
    assert all((tmp_path / "runs/toy/report" / name).is_file() for name in ("report.md", "curve.png", "curve.svg"))


@pytest.mark.slow
def test_commands_of_the_tutorial_run(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    run("\n".join(blocks("docs/tutorial.md", "sh")), tmp_path)
    made = "report/report.md", "report/curve.svg", "agent/model.safetensors", "evaluations/test.agent-5.json"
    assert all((tmp_path / "runs/texts" / name).is_file() for name in made)
    [shown] = blocks("docs/tutorial.md", "toml")
    written = (tmp_path / "texts.toml").read_text(encoding="utf-8")
    assert flatten(tomllib.loads(written)).keys() == flatten(tomllib.loads(shown)).keys()


def test_configuration_page_is_up_to_date() -> None:
    page = settings_page.PAGE.read_text(encoding="utf-8")
    assert settings_page.updated(page) == page, "run python -m tests.helpers.settings_page"


def test_every_setting_has_a_description() -> None:
    assert [row for row in settings_page.tables().splitlines() if row.endswith("|  |")] == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("whilst/policy/fixed.py", "view.read >= fixed_reads(view.written, self.k)"),
        ("whilst/policy/learnt.py", "odds[:, 0] >= self.policy.bound"),
        ("whilst/decoding/state.py", "def step"),
    ],
)
def test_readme_points_to_the_code_that_decides(path: str, code: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert path in text
    assert code in text or code.startswith("def ")
    assert code in (ROOT / path).read_text(encoding="utf-8")


def test_commands_in_the_documents_exist() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    known = commands(group, "whilst")
    command = re.compile(r"(?:^ {4}|`|^)(?:echo .*\| |\w+=\S+ )?(whilst [^`\n|#]*)", flags=re.MULTILINE)
    for page in DOCUMENTS:
        for line in command.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
            name = max((name for name in known if f"{line} ".startswith(f"{name} ")), key=len)
            rest, is_group = line.removeprefix(name).split(), any(other.startswith(f"{name} ") for other in known)
            assert not (is_group and rest and rest[0].isalpha()), f"{page.name}: {line}"
            options = set(re.findall(r"(?<= )--[a-z][a-z-]*", line))
            assert options <= known[name], f"{page.name}: {line}"


def test_make_targets_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in DOCUMENTS:
        for target in re.findall(
            r"(?:^ {4}|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE
        ):
            assert f"\n{target}:" in makefile, f"{page.name}: make {target}"


def test_citation_has_the_version_of_the_package() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_links_of_the_documents_lead_somewhere() -> None:
    for page in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"
