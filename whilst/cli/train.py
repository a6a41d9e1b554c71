"""Commands: prepare, train."""

from pathlib import Path
from typing import Annotated

import typer

from whilst.cli.options import Device, Set


def prepare(
    recipe: Annotated[Path, typer.Argument(help="TOML file such as recipes/toy/bs-simt.toml.", metavar="RECIPE")],
    set_: Set = [],  # noqa: B006
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace one made with other settings.")] = False,
) -> None:
    """Turn parallel text into a dataset folder.

    The text is cleaned and divided into sub-word units, which are learnt from it or given.

    \b
    Examples:
        whilst prepare recipes/toy/bs-simt.toml
        whilst prepare recipes/iwslt15.en-vi/bs-simt.toml --set data.folder=~/corpora/iwslt15.en-vi
        whilst prepare mine.toml --set 'data.train=["train.de.gz", "train.en.gz"]' --set data.units=sentencepiece
    """
    from whilst.core.config import load_recipe
    from whilst.data.prepare import prepare

    prepare(load_recipe(recipe, set_).data, overwrite)


def train(
    recipes: Annotated[
        list[Path], typer.Argument(help="TOML files such as recipes/toy/bs-simt.toml.", metavar="RECIPE")
    ],
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    restart: Annotated[bool, typer.Option("--restart", help="Train from the beginning, not resume.")] = False,
    text: Annotated[bool, typer.Option(help="Keep source and reference in the traces.")] = True,
    only: Annotated[
        list[str], typer.Option(help="Of a sweep, train these runs only: 0.4, 3-7/1 or '3-7/*'. May be repeated.")
    ] = [],  # noqa: B006
) -> None:
    """Train a recipe, or resume where training was stopped.

    The stages are the translator (RUN), its fine-tuning on searched reads (RUN/search), the agent that learns
    those reads (RUN/search/agent), and the evaluation of all of them (RUN/evaluations, RUN/report). Several recipes
    are trained one after the other, those that others start from first. What is trained already is not trained
    again, and what was evaluated with the same weights and settings is not evaluated again.

    \b
    Examples:
        whilst train recipes/toy/bs-simt.toml
        whilst train recipes/iwslt15.en-vi/bs-simt.toml --set train.steps=500 --set run=runs/short
        whilst train recipes/german.de-en/bs-simt.toml recipes/german.de-en/ablations/*.toml --no-text
        whilst train recipes/iwslt15.en-vi/mma.toml --only 0.2 --only 0.4
        torchrun --nproc-per-node 2 -m whilst train recipes/iwslt15.en-vi/bs-simt.toml --set train.accumulate=2
    """
    from whilst.core.config import load_sweep
    from whilst.core.distributed import pick_device
    from whilst.training.train import train_all

    loaded = [run for recipe in recipes for run in load_sweep(recipe, set_, only)]
    train_all(loaded, pick_device(device), restart, text)
