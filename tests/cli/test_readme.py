"""What the documents tell people to type must work: the README's commands are run as they stand, only smaller."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from whilst.core.config import build, to_table
from whilst.core.settings import Recipe
from whilst.data import toy

ROOT = Path(__file__).parents[2]
SMALLER = [
    "data.toy_pairs=300",
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


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(line: str, folder: Path) -> None:
    program, *words = shlex.split(line)
    assert program == "whilst"
    if words[0] in ("prepare", "train"):
        words += [word for setting in SMALLER for word in ("--set", setting)]
    # The README's toy corpus has its size in the folder's name.
    words = [word.replace("toy-20000-1", "toy-300-1") for word in words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "whilst", *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def write_pairs(folder: Path, names: dict[str, tuple[str, str]]) -> None:
    """Toy sentences under other names, 60 for each pair of files."""
    folder.mkdir(parents=True)
    for seed, (source, target) in enumerate(names.values()):
        pairs = list(toy.pairs(60, seed))
        if source == target:
            rows = "".join(f"{' '.join(p.source)}\t{' '.join(p.target)}\n" for p in pairs)
            (folder / source).write_text(rows, encoding="utf-8")
            continue
        (folder / source).write_text("".join(f"{' '.join(p.source)}\n" for p in pairs), encoding="utf-8")
        (folder / target).write_text("".join(f"{' '.join(p.target)}\n" for p in pairs), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_commands_of_the_readme_run(number: int, tmp_path: Path) -> None:
    commands = blocks("sh")
    assert len(commands) == 3, "a block was added or removed: run it here too"
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    write_pairs(
        tmp_path / "corpora" / "iwslt15.en-vi",
        {name: (f"{name}.en", f"{name}.vi") for name in ("train", "tst2012", "tst2013")},
    )
    write_pairs(
        tmp_path / "texts",
        {"train": ("train.de", "train.en"), "valid": ("valid.de", "valid.en"), "test": ("test.tsv", "test.tsv")},
    )
    (tmp_path / "mine.toml").write_text(blocks("toml")[0], encoding="utf-8")
    for line in commands[number].strip().splitlines():
        run(line, tmp_path)


def test_configuration_page_lists_every_setting_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    block = re.search(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    assert block is not None
    table = tomllib.loads(block[1])
    assert build(Recipe, table) == Recipe()
    for section, settings in to_table(Recipe()).items():
        names = settings if isinstance(settings, dict) else {}
        for name, value in names.items():
            listed = name in table[section] if value is not None else f"# {name} = " in block[1]
            assert listed, f"{section}.{name} is missing in docs/configuration.md"


def test_links_of_the_documents_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results/README.md", *ROOT.glob("docs/*.md")):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"
