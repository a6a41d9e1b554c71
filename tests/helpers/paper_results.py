"""A results folder of evaluations that never took place, and what to look at in the document that is made of it."""

import dataclasses
import re
from pathlib import Path

from tests.helpers.evaluations import SIGNATURE
from whilst.core.config import load_recipe, override, to_table
from whilst.evaluation.metrics import Scores
from whilst.evaluation.record import Record, record_path, write_record
from whilst.research.paper import write_paper
from whilst.training.train import stages

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"


def add_record(
    folder: Path,
    recipe: str,
    system: str,
    policy: str,
    al: float,
    bleu: float,
    *sets: str,
    stage: int = 0,
    seed: int = 1,
) -> Path:
    """The record and trace of an evaluation that never took place, by a recipe (of a folder: bs-simt.toml)."""
    path = RECIPES / recipe / "bs-simt.toml" if (RECIPES / recipe).is_dir() else RECIPES / f"{recipe}.toml"
    made = override(stages(load_recipe(path, []))[stage], list(sets))
    made = dataclasses.replace(made, train=dataclasses.replace(made.train, seed=seed))
    data = made.data
    pair = (data.corpus or Path(data.dataset).name).removesuffix(f".{data.source}-{data.target}")
    trace = folder / f"test.{policy}.jsonl.xz"
    record = Record(
        system,
        policy,
        f"{pair}.{data.source}-{data.target}",
        made.evaluate.split,
        Scores(100, 0, al, 1.4, al, al, 0.6, al, bleu, bleu, bleu, SIGNATURE, 0.97),
        trace.name,
        "a" * 64,
        "b" * 64,
        to_table(made),
        str(seed) * 64,
        f"whilst evaluate {made.run} --policy {policy}",
        1.5,
        "a machine",
        {"torch": "2.0"},
    )
    folder.mkdir(parents=True, exist_ok=True)
    trace.write_bytes(b"")
    write_record(record_path(trace), record)
    return record_path(trace)


def section(text: str, name: str) -> str:
    found = re.search(rf"^## {name}\b.*?(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None, f"no section {name}"
    return found[0]


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in Markdown, headings too, but not their rules."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [line[2:-2].split(" | ") for line in lines]


def write(results: Path, out: Path) -> str:
    """The document of a results folder, in Markdown."""
    write_paper(results, out)
    return (out / "paper.md").read_text(encoding="utf-8")
