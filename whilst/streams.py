"""The commands that translate whilst the source arrives; __main__ adds them to the others.

As there, everything heavy is imported inside: a command that only prints its help must not wait for torch.
"""

from pathlib import Path
from typing import Annotated

import typer

from whilst.options import Device, Set


def live(
    model: Annotated[
        str, typer.Option(help="A run folder, one made by `whilst export`, or a model's name.", metavar="MODEL")
    ],
    latency: Annotated[
        str, typer.Option(help="low, medium, high, or a policy: agent-L, wait-K, diagonal-K, full.")
    ] = "medium",
    json: Annotated[bool, typer.Option("--json", help="JSON lines with source positions and times.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Each line is a recogniser's whole hypothesis, and may still change.")
    ] = False,
    keep: Annotated[int, typer.Option(help="With --partial: lines that must agree on a word.", min=1)] = 2,
    lines: Annotated[bool, typer.Option("--lines", help="Lines are sentences; full stops end none.")] = False,
    srt: Annotated[Path | None, typer.Option(help="Write subtitles to this file too.", metavar="FILE")] = None,
    vtt: Annotated[Path | None, typer.Option(help="The same as WebVTT.", metavar="FILE")] = None,
    show: Annotated[bool, typer.Option("--show", help="Mark every READ and WRITE; sum up at the end.")] = False,
    pace: Annotated[
        float, typer.Option(help="Take at most so many words a second: 3 is how people speak. 0: as they come.")
    ] = 0.0,
    engine: Annotated[
        str, typer.Option(help="torch, onnx (fast on a CPU), or auto: onnx where its packages are installed.")
    ] = "auto",
    precision: Annotated[str, typer.Option(help="Of the engine: int8, or fp32 (PyTorch's words).")] = "int8",
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Translate words from standard input as they come. What is written is never taken back.

    Low, medium and high are the first, the middle and the last of the latencies that the run's agent learnt;
    without an agent wait-1, wait-3 and wait-5. An empty line ends a sentence, as does a full stop.

    Examples:

        whilst live --model runs/toy --latency low

        recogniser | whilst live --model runs/toy --partial --srt talk.srt --vtt talk.vtt

        tail -f transcript.txt | whilst live --model runs/toy --latency wait-3 --json

        whilst live --model runs/toy --show --pace 3 < talk.txt
    """
    from whilst.loading import Wanted
    from whilst.terminal import Options, run_live

    wanted = Wanted(model, latency, engine, precision, tuple(set_), device, by_lines=lines)
    run_live(wanted, Options(json, partial, keep, srt, vtt, show, pace))
