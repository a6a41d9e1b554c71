"""Command: toy."""

import shlex
from pathlib import Path

RECIPE = Path(__file__).with_name("toy.toml")  # recipes/toy/bs-simt.toml is a link to it
POLICIES = "wait-1", "wait-3", "wait-5", "agent-1", "agent-2", "agent-4", "oracle-1"
SENTENCES = 3  # translated word by word


def toy() -> None:
    """Go from text to a curve on an invented language.

    Runs prepare, train, evaluate, report and translate, and prints each command before it runs. It takes about five
    minutes on two CPU cores.

    \b
    Example:
        whilst toy
    """
    from whilst.cli.main import app
    from whilst.core.config import load_recipe
    from whilst.core.console import notes
    from whilst.core.files import read_text, write_lines

    recipe = load_recipe(RECIPE, [])
    data, run = recipe.data, f"{recipe.run}/search"
    text, sample = Path(f"{data.dataset}-{data.toy_pairs}-{data.toy_seed}/test.src"), Path(recipe.run, "sample.src")
    policies = [word for policy in POLICIES for word in ("--policy", policy)]
    commands = [
        ["prepare", str(RECIPE)],
        ["train", str(RECIPE), "--device", "cpu"],
        ["evaluate", run, *policies, "--device", "cpu"],
        ["report", f"{run}/evaluations", "--out", f"{recipe.run}/report"],
        ["translate", run, str(sample), "--policy", "agent-1", "--show", "--device", "cpu"],
    ]
    for command in commands:
        notes.print(f"\n$ whilst {shlex.join(command)}")
        if command[0] == "translate":
            write_lines(sample, read_text(text).splitlines()[:SENTENCES])
        app(command, standalone_mode=False)
