"""Commands: demo, models, live, listen, serve."""

from pathlib import Path
from typing import Annotated

import typer

from whilst.cli.options import (
    Device,
    Engine,
    Glossary,
    Keep,
    Lag,
    Latency,
    Model,
    PolicyFile,
    Precision,
    Set,
    Source,
    Target,
    Threads,
    Workers,
    register_policies,
    with_glossary,
    with_lag,
    with_languages,
)
from whilst.core.errors import UserError
from whilst.core.settings import DEFAULT_MODEL
from whilst.live.input import DEFAULT_AGREEMENT

JsonLines = Annotated[bool, typer.Option("--json", help="Write JSON lines with source positions and times.")]
Srt = Annotated[Path | None, typer.Option("--srt", help="Also write SubRip subtitles.", metavar="FILE")]
Vtt = Annotated[Path | None, typer.Option("--vtt", help="Also write WebVTT subtitles.", metavar="FILE")]
Recogniser = Annotated[
    str,
    typer.Option(
        "--recogniser",
        help="Program that reads PCM from stdin and prints its growing hypothesis line by line.",
        metavar="COMMAND",
        show_default="moonshine",
    ),
]
Show = Annotated[bool, typer.Option("--show", help="Show every READ and WRITE.")]


def demo(
    speech: Annotated[
        bool, typer.Option("--speech", help="Recognise a spoken talk. Needs the extra `speech`; plays no sound.")
    ] = False,
) -> None:
    """Translate a short English talk into Vietnamese, live.

    \b
    Examples:
        whilst demo
        whilst demo --speech
    """
    if speech:
        from whilst.speech.listen import speech_demo

        speech_demo()
    else:
        from whilst.live.terminal import demo

        demo()


def models() -> None:
    """List the models that come with the package.

    The list has the policy of each latency, the scores at medium latency, and the licence.

    \b
    Examples:
        whilst models
    """
    from whilst.core.console import console
    from whilst.live.card import list_models

    console.print(list_models())


def live(
    model: Model = DEFAULT_MODEL,
    latency: Latency = "medium",
    lag: Lag = None,
    source: Source = "",
    target: Target = "",
    policy_file: PolicyFile = [],  # noqa: B006
    json: JsonLines = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Each line is the whole hypothesis of a recogniser and may change.")
    ] = False,
    keep: Keep = DEFAULT_AGREEMENT,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line is one sentence, even with full stops inside.")
    ] = False,
    srt: Srt = None,
    vtt: Vtt = None,
    show: Show = False,
    pace: Annotated[
        float | None, typer.Option("--pace", help="Words per second at most, such as 3.", min=0.001)
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="torch, onnx, or auto: onnx if it is installed.")
    ] = "auto",
    precision: Annotated[
        str, typer.Option("--precision", help="Precision of onnx: int8, or fp32 (writes the same words as torch).")
    ] = "int8",
    glossary: Glossary = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Translate words from standard input as they arrive.

    A written word never changes. The latencies low, medium and high are the first, middle and last interval of the
    model's agent; without an agent they are wait-1, wait-3 and wait-5. A full stop or an empty line ends a
    sentence.

    \b
    Examples:
        whilst live
        echo "My father gave me an old radio." | whilst live --latency low
        whilst live --lag 3 < talk.txt
        whilst live --show --pace 3 < talk.txt
        whilst live --glossary names.tsv < talk.txt
        recogniser | whilst live --partial --srt talk.srt --vtt talk.vtt
        tail -f transcript.txt | whilst live --model runs/mine --latency wait-3 --json
        whilst live --model hf:facebook/nllb-200-distilled-600M --source en --target de < talk.txt
        whilst live --policy-file mine.py --latency comma-3 < talk.txt
    """
    from whilst.live.loading import ModelOptions
    from whilst.live.terminal import LiveOptions, run_live

    register_policies(policy_file)
    settings = with_languages(with_glossary(set_, glossary), model, source, target)
    options = ModelOptions(model, with_lag(latency, lag, "medium"), engine, precision, tuple(settings), device)
    run_live(options, LiveOptions(json, show, srt, vtt, partial, keep, lines, pace))


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
    lag: Lag = None,
    policy_file: PolicyFile = [],  # noqa: B006
    device: Annotated[
        str,
        typer.Option(
            "--device", help="Microphone: its number, or part of its name.", metavar="NAME", show_default="default"
        ),
    ] = "",
    device_list: Annotated[bool, typer.Option("--device-list", help="List the microphones, then exit.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Read a file as fast as possible. Times are positions in the file.")
    ] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds of speech between updates.")] = 1.0,
    keep: Keep = DEFAULT_AGREEMENT,
    recogniser: Recogniser = "",
    json: JsonLines = False,
    srt: Srt = None,
    vtt: Vtt = None,
    show: Show = False,
    serve: Annotated[
        str,
        typer.Option(
            "--serve", help="Translate on this running `whilst serve`.", metavar="URL", show_default="here"
        ),
    ] = "",
    token: Annotated[
        str, typer.Option("--token", help="Token of that server.", envvar="WHILST_TOKEN", show_default=False)
    ] = "",
    glossary: Glossary = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Translate speech as it is spoken: from the microphone, or from a file.

    English speech is recognised on this machine. A written word never changes. PCM is mono, 16-bit, 16 kHz.

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
    output = LiveOptions(as_json=json, srt=srt, vtt=vtt, show=show, agreement=keep)
    options = ListenOptions(source, device, fast, interval, recogniser, serve, token, output)
    register_policies(policy_file)
    settings = tuple(with_glossary(set_, glossary))
    listen(ModelOptions(model, with_lag(latency, lag, "medium"), overrides=settings), options)


def serve(
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="A model as in `whilst live`. May be repeated, for several language pairs, one of which a client"
            " chooses.",
            metavar="MODEL",
        ),
    ] = [DEFAULT_MODEL],  # noqa: B006
    source: Source = "",
    target: Target = "",
    policy_file: PolicyFile = [],  # noqa: B006
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0: any free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str,
        typer.Option(
            "--token", help="Clients must send the header Authorization: Bearer TOKEN.", envvar="WHILST_TOKEN"
        ),
    ] = "",
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin", help="Allow web pages of this origin, such as https://example.org. May be repeated."
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="Name by which browsers reach this server, such as example.org; * for any. May be repeated."
            " Default: localhost if only this machine can connect, else any.",
        ),
    ] = None,
    workers: Workers = None,
    threads: Threads = 1,
    sessions: Annotated[int, typer.Option("--sessions", help="Most sessions at a time per worker.", min=1)] = 100,
    watchers: Annotated[
        int, typer.Option("--watchers", help="Most watchers of published sessions at a time per worker.", min=1)
    ] = 5_000,
    speakers: Annotated[
        int,
        typer.Option(
            "--speakers", help="Most sessions at a time per worker whose speech is recognised; 0: none.", min=0
        ),
    ] = 2,
    recogniser: Recogniser = "",
    words: Annotated[int, typer.Option("--words", help="Most source words of a session.", min=1)] = 100_000,
    idle: Annotated[
        float, typer.Option("--idle", help="Seconds without a message after which a session ends.", min=1)
    ] = 300.0,
    engine: Engine = "auto",
    precision: Precision = "",
    ray: Annotated[bool, typer.Option("--ray", help="Run workers as replicas of Ray Serve.")] = False,
    glossary: Glossary = None,
    set_: Set = [],  # noqa: B006
    device: Device = "cpu",
) -> None:
    """Serve live translation: WebSocket, HTTP, a web page.

    Ctrl-C finishes the translation of the words received so far, then exits.

    \b
    Examples:
        whilst serve
        whilst serve --model en-vi --model runs/vi-en
        whilst serve --host 0.0.0.0 --port 80 --workers 2 --origin https://example.org
        WHILST_TOKEN=secret whilst serve --model runs/mine --sessions 50 --idle 60
        whilst serve --model hf:Helsinki-NLP/opus-mt-en-de
        whilst serve --policy-file mine.py    # clients may ask for its policies by name
    """
    from whilst.server.protocol import Limits
    from whilst.server.run import ServeOptions, default_workers, serve
    from whilst.server.served import EngineOptions
    from whilst.server.sessions import AccessControl, default_hosts

    limits = Limits(words=words, sessions=sessions, watchers=watchers, speakers=speakers, idle=idle)
    access = AccessControl(token, tuple(origin or ()), tuple(allowed_host or default_hosts(host)))
    if policy_file and engine == "auto":
        engine = "torch"  # the CPU engine does not run policies of files
    engine_options = EngineOptions(engine, precision, device, threads)
    workers = workers or (1 if ray else default_workers(device))
    if len(model) > 1 and (source or target):
        raise UserError("--source and --target are for a single hf: model; serve other models separately")
    settings = tuple(with_languages(with_glossary(set_, glossary), model[0], source, target))
    options = ServeOptions(
        tuple(model), host, port, workers, limits, access, settings, engine_options, tuple(policy_file), recogniser
    )
    if ray:
        from whilst.server.ray import serve_ray

        serve_ray(options)
    else:
        serve(options)
