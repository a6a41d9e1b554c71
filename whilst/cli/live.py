"""Commands: live, demo."""

from pathlib import Path
from typing import Annotated

import typer

from whilst.cli.options import Device, Latency, Model, Set
from whilst.core.settings import DEFAULT_MODEL
from whilst.live.input import DEFAULT_AGREEMENT


def demo() -> None:
    """Translate a short English talk into Vietnamese, live.

    \b
    Example:
        whilst demo
    """
    from whilst.live.terminal import demo

    demo()


def live(
    model: Model = DEFAULT_MODEL,
    latency: Latency = "medium",
    json: Annotated[bool, typer.Option("--json", help="Write JSON lines with source positions and times.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Each line is the whole hypothesis of a recogniser and may change.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            help="With --partial: lines that must agree on a word.", min=1, show_default=str(DEFAULT_AGREEMENT)
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line is a sentence, whatever its full stops.")
    ] = False,
    srt: Annotated[Path | None, typer.Option(help="Also write SubRip subtitles.", metavar="FILE")] = None,
    vtt: Annotated[Path | None, typer.Option(help="Also write WebVTT subtitles.", metavar="FILE")] = None,
    show: Annotated[bool, typer.Option("--show", help="Show every READ and WRITE, and a summary.")] = False,
    pace: Annotated[
        float, typer.Option(help="Words per second at most, such as 3 for speech. 0: no limit.", metavar="RATE")
    ] = 0.0,
    engine: Annotated[str, typer.Option(help="torch, onnx, or auto: onnx if it is installed.")] = "auto",
    precision: Annotated[str, typer.Option(help="Of onnx: int8, or fp32 (the same words as torch).")] = "int8",
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Translate words from standard input as they arrive.

    Words that were written never change. Low, medium and high are the first, middle and last latency of the
    run's agent; without an agent they are wait-1, wait-3 and wait-5. A full stop or an empty line ends a
    sentence.

    \b
    Examples:
        whilst live
        echo "My father gave me an old radio." | whilst live --latency low
        whilst live --show --pace 3 < talk.txt
        recogniser | whilst live --partial --srt talk.srt --vtt talk.vtt
        tail -f transcript.txt | whilst live --model runs/mine --latency wait-3 --json
    """
    from whilst.live.loading import ModelOptions
    from whilst.live.terminal import LiveOptions, run_live

    wanted = ModelOptions(model, latency, engine, precision, tuple(set_), device, by_lines=lines)
    run_live(wanted, LiveOptions(json, partial, keep, srt, vtt, show, pace))
