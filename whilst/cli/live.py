"""Commands: live, listen, demo."""

from pathlib import Path
from typing import Annotated

import typer

from whilst.cli.options import Device, Keep, Latency, Model, Set
from whilst.core.settings import DEFAULT_MODEL
from whilst.live.input import DEFAULT_AGREEMENT

JsonLines = Annotated[bool, typer.Option("--json", help="Write JSON lines with source positions and times.")]
Srt = Annotated[Path | None, typer.Option(help="Also write SubRip subtitles.", metavar="FILE")]
Vtt = Annotated[Path | None, typer.Option(help="Also write WebVTT subtitles.", metavar="FILE")]
Show = Annotated[bool, typer.Option("--show", help="Show every READ and WRITE.")]


def demo(
    speech: Annotated[
        bool, typer.Option("--speech", help="The talk is spoken; needs the extra `speech`, no loudspeaker.")
    ] = False,
) -> None:
    """Translate a short English talk into Vietnamese, live.

    \b
    Examples:
        whilst demo
        whilst demo --speech
    """
    if speech:
        from whilst.speech.demo import speech_demo

        speech_demo()
    else:
        from whilst.live.terminal import demo

        demo()


def live(
    model: Model = DEFAULT_MODEL,
    latency: Latency = "medium",
    json: JsonLines = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Each line is the whole hypothesis of a recogniser and may change.")
    ] = False,
    keep: Keep = DEFAULT_AGREEMENT,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line is a sentence, whatever its full stops.")
    ] = False,
    srt: Srt = None,
    vtt: Vtt = None,
    show: Show = False,
    pace: Annotated[float | None, typer.Option(help="Words per second at most, such as 3.", min=0.001)] = None,
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

    wanted = ModelOptions(model, latency, engine, precision, tuple(set_), device)
    run_live(wanted, LiveOptions(json, show, srt, vtt, partial, keep, lines, pace))


def listen(
    source: Annotated[
        str,
        typer.Argument(
            help="WAV file; mp3, mp4, … with ffmpeg; - for PCM on standard input. Default: the microphone.",
            metavar="FILE",
            show_default=False,
        ),
    ] = "",
    model: Model = DEFAULT_MODEL,
    latency: Latency = "medium",
    device: Annotated[
        str,
        typer.Option(help="Microphone: its number, or part of its name.", metavar="NAME", show_default="default"),
    ] = "",
    device_list: Annotated[bool, typer.Option("--device-list", help="List the microphones, then exit.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Read a file as fast as possible; times are those in the file.")
    ] = False,
    interval: Annotated[float, typer.Option(help="Seconds of speech between updates.")] = 1.0,
    keep: Keep = DEFAULT_AGREEMENT,
    recogniser: Annotated[
        str,
        typer.Option(
            help="A program that takes PCM and prints growing lines.", metavar="COMMAND", show_default="moonshine"
        ),
    ] = "",
    json: JsonLines = False,
    srt: Srt = None,
    vtt: Vtt = None,
    show: Show = False,
    serve: Annotated[
        str, typer.Option(help="Translate on this running `whilst serve`.", metavar="URL", show_default="here")
    ] = "",
    token: Annotated[str, typer.Option(help="Of the server.", envvar="WHILST_TOKEN", show_default=False)] = "",
    set_: Set = [],  # noqa: B006
) -> None:
    """Translate speech as it is spoken: from the microphone, or from a file.

    Speech is recognised on this machine, in English. Words that were written never change.
    PCM is mono, 16-bit, 16 kHz.

    \b
    Examples:
        whilst listen
        whilst listen --device-list
        whilst listen --device usb --srt talk.srt
        whilst listen talk.mp4 --fast --vtt talk.vtt
        whilst listen --serve http://127.0.0.1:8000
        arecord -t raw -f S16_LE -r 16000 | whilst listen -
    """
    from whilst.live.loading import ModelOptions
    from whilst.live.terminal import LiveOptions
    from whilst.speech.audio import list_microphones
    from whilst.speech.listen import ListenOptions, listen

    if device_list:
        for line in list_microphones():
            typer.echo(line)
        return
    how = LiveOptions(as_json=json, srt=srt, vtt=vtt, show=show, agreement=keep)
    options = ListenOptions(source, device, fast, interval, recogniser, serve, token, how)
    listen(ModelOptions(model, latency, overrides=tuple(set_)), options)
