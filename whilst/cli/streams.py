"""The commands that translate whilst the source arrives; __main__ adds them to the others.

As there, everything heavy is imported inside: a command that only prints its help must not wait for torch.
"""

from pathlib import Path
from typing import Annotated

import typer

from whilst.cli.options import Device, Model, Set
from whilst.core.settings import DEFAULT_MODEL
from whilst.live.input import DEFAULT_AGREEMENT


def live(
    model: Model = DEFAULT_MODEL,
    latency: Annotated[
        str, typer.Option(help="low, medium, high, or a policy: agent-L, wait-K, diagonal-K, full.")
    ] = "medium",
    json: Annotated[bool, typer.Option("--json", help="JSON lines with source positions and times.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Each line is a recogniser's whole hypothesis, and may still change.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            help="With --partial: lines that must agree on a word.", min=1, show_default=str(DEFAULT_AGREEMENT)
        ),
    ] = None,
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

        whilst live

        echo "My father gave me an old radio." | whilst live --latency low

        whilst live --show --pace 3 < talk.txt

        recogniser | whilst live --partial --srt talk.srt --vtt talk.vtt

        tail -f transcript.txt | whilst live --model runs/mine --latency wait-3 --json
    """
    from whilst.live.loading import Wanted
    from whilst.live.terminal import LiveOptions, run_live

    wanted = Wanted(model, latency, engine, precision, tuple(set_), device, by_lines=lines)
    run_live(wanted, LiveOptions(json, partial, keep, srt, vtt, show, pace))


def serve(
    model: Model = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any that is free.", min=0, max=65535)] = 8000,
    token: Annotated[
        str, typer.Option(help="Clients must send it: Authorization: Bearer TOKEN.", envvar="WHILST_TOKEN")
    ] = "",
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Web pages of this origin may connect too (https://example.org). Repeatable."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes, each with the model.", min=1)] = 1,
    threads: Annotated[int, typer.Option(help="Threads of the model in each worker.", min=1)] = 1,
    sessions: Annotated[int, typer.Option(help="Sessions at once in each worker.", min=1)] = 100,
    words: Annotated[int, typer.Option(help="Source words of a session.", min=1)] = 100_000,
    idle: Annotated[float, typer.Option(help="Seconds without a message until a session is ended.")] = 300.0,
    engine: Annotated[
        str, typer.Option(help="batch: the steps of all together; single: one by one; onnx: exported graphs.")
    ] = "batch",
    precision: Annotated[
        str, typer.Option(help="Of the weights: fp32, fp16 (faster); onnx: int8. Usual: as in the file.")
    ] = "",
    ray: Annotated[bool, typer.Option("--ray", help="Workers are replicas of Ray Serve (extra `ray`).")] = False,
    set_: Set = [],  # noqa: B006
    device: Device = "cpu",
) -> None:
    """Serve live translation: WebSocket, HTTP, a web page. Words of many sessions share the model's steps.

    Ctrl-C finishes what was fed, then ends.

    Examples:

        whilst serve

        whilst serve --host 0.0.0.0 --port 80 --workers 2 --origin https://example.org

        WHILST_TOKEN=secret whilst serve --model runs/mine --sessions 50 --idle 60
    """
    from whilst.server.protocol import Limits
    from whilst.server.run import ServeOptions, serve
    from whilst.server.served import How
    from whilst.server.sessions import AccessControl

    limits = Limits(words=words, sessions=sessions, idle=idle)
    access = AccessControl(token, tuple(origin or ()))
    how = How(engine, precision, device, threads)
    options = ServeOptions(model, host, port, workers, limits, access, tuple(set_), how)
    if ray:
        from whilst.server.ray import serve_ray

        serve_ray(options)
    else:
        serve(options)


def bench_serve(
    model: Model = DEFAULT_MODEL,
    streams: Annotated[
        int | None, typer.Option(help="Measure so many; default: search for how many it carries.", min=1)
    ] = None,
    rate: Annotated[float, typer.Option(help="Words a second of each stream.", min=0.1)] = 3.0,
    seconds: Annotated[float, typer.Option(help="Of each probe, after two to warm up.", min=1)] = 10.0,
    latency: Annotated[str, typer.Option(help="low, medium, high, or a policy.")] = "medium",
    limit: Annotated[float, typer.Option(help="Milliseconds that 99 of 100 words must stay below.")] = 300.0,
    most: Annotated[int, typer.Option(help="Streams at most.", min=1)] = 400,
    workers: Annotated[int, typer.Option(help="Processes of the server.", min=1)] = 1,
    threads: Annotated[int, typer.Option(help="Threads of the model in each.", min=1)] = 1,
    engine: Annotated[
        str, typer.Option(help="batch: the steps of all together; single: one by one; onnx: exported graphs.")
    ] = "batch",
    precision: Annotated[str, typer.Option(help="fp32 or fp16; onnx: int8 or fp32.")] = "",
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
) -> None:
    """Count the live streams that a server carries: WebSocket clients on loopback, each at a steady pace.

    Examples:

        whilst bench serve

        whilst bench serve --model runs/mine --streams 100 --seconds 30 --threads 2 --json serve.json
    """
    from whilst.research.bench.serve import Load, serve_bench

    options = ["--workers", str(workers), "--threads", str(threads), "--engine", engine, "--precision", precision]
    load = Load(streams or 1, rate, seconds, latency)
    serve_bench(model, streams, load, limit, most, options, json)


def demo() -> None:
    """A short talk in English, translated into Vietnamese whilst it is spoken, by the model of the package."""
    from whilst.live.demo import demo

    demo()


def flicker(
    file: Annotated[Path | None, typer.Argument(help="Sentences, one a line. Default: the demo's talk.")] = None,
    model: Model = DEFAULT_MODEL,
    latency: Annotated[str, typer.Option(help="As of `whilst live`.")] = "medium",
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
) -> None:
    """Measure how many words are taken back after they were shown: live, and if every beginning is translated anew.

    Examples:

        whilst flicker

        whilst flicker data/live.en-vi/test.source.txt --latency low --json flicker.json
    """
    from whilst.live.demo import TALK
    from whilst.live.flicker import flicker
    from whilst.live.loading import Wanted

    flicker(Wanted(model, latency, by_lines=True), file or TALK, json)
