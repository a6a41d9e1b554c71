"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

RecipeFile = Annotated[
    Path, typer.Argument(help="Recipe, a TOML file such as recipes/toy/bs-simt.toml.", metavar="RECIPE")
]
Run = Annotated[Path, typer.Argument(help="Folder of a trained model, as `whilst train` makes it.", metavar="RUN")]
Set = Annotated[
    list[str], typer.Option("--set", help="Change a setting, such as train.steps=100. Repeatable.", metavar="A.B=C")
]
Model = Annotated[
    str,
    typer.Option(help="A run folder, one made by `whilst export`, or a model of the package.", metavar="MODEL"),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        help="full, wait-K, diagonal-K, mma, agent-L or oracle-L, where L is the first read of a search interval;"
        " agent-L.threshold-0.6 WRITEs when it is so sure. Repeatable. Default: the recipe's.",
        metavar="POLICY",
    ),
]
