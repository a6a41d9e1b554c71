"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Run = Annotated[Path, typer.Argument(help="Folder of a trained model, written by `whilst train`.", metavar="RUN")]
Set = Annotated[
    list[str],
    typer.Option("--set", help="Change a setting, such as train.steps=100. May be repeated.", metavar="A.B=C"),
]
Model = Annotated[
    str,
    typer.Option(
        help="A run folder, a folder written by `whilst export`, or the name of a model of the package.",
        metavar="MODEL",
    ),
]
Latency = Annotated[
    str,
    typer.Option(help="low, medium or high; or a policy: agent-L, wait-K, diagonal-K, full.", metavar="LATENCY"),
]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda or cuda:N.", metavar="DEVICE")]
Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        help="full, wait-K, diagonal-K, mma, agent-L or oracle-L. L is the first read of a search interval."
        " agent-L.threshold-0.6 WRITEs at a probability of 0.6. May be repeated. Default: those of the recipe.",
        metavar="POLICY",
    ),
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.", metavar="FILE")]
Keep = Annotated[int, typer.Option(help="Hypotheses in a row that must agree on a word.", min=1)]
Engine = Annotated[
    str,
    typer.Option(
        help="batch: sessions share the model's steps; single: one by one; onnx: exported graphs."
        " Default: batch if PyTorch is installed, else onnx."
    ),
]
Precision = Annotated[
    str, typer.Option(help="fp32 or fp16 (faster); of onnx: int8 or fp32. Default: that of the model file.")
]
Workers = Annotated[int, typer.Option(help="Worker processes, each with the model.", min=1)]
Threads = Annotated[int, typer.Option(help="Threads of the model in each worker.", min=1)]
Stage = Literal["translate", "search", "agent"]
