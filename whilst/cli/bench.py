"""Commands that measure speed: `whilst bench train`, `decode`, `engine`, …"""

from pathlib import Path
from typing import Annotated

import typer

from whilst.cli.options import (
    Device,
    Engine,
    Glossary,
    Json,
    Keep,
    Latency,
    Model,
    PolicyFile,
    Precision,
    Set,
    Stage,
    Threads,
    Workers,
    register_policies,
    with_glossary,
)
from whilst.core.settings import DEFAULT_MODEL
from whilst.live.input import DEFAULT_AGREEMENT

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure speed: training, decoding, CPU engine, server, speech; and count mistakes.",
)


@app.command()
def train(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            help="Recipe to time. Default: the paper's model on random text.", metavar="RECIPE", show_default=False
        ),
    ] = None,
    stage: Annotated[Stage, typer.Option("--stage", help="Stage to time.")] = "translate",
    steps: Annotated[int, typer.Option("--steps", help="Updates to time, after as many for warm-up.", min=1)] = 20,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    json: Json = None,
) -> None:
    """Time training updates: target tokens/s, sentences/s, peak memory.

    \b
    Examples:
        whilst bench train
        whilst bench train recipes/iwslt15.en-vi/bs-simt.toml --steps 100 --set train.batch_tokens=32768
        whilst bench train --stage agent --set agent.train.batch_tokens=65536
    """
    from whilst.research.bench import train_bench

    train_bench(recipe, stage, steps, set_, device, json)


@app.command()
def decode(
    sentences: Annotated[
        int | None,
        typer.Option(
            "--sentences",
            help="Sentences to decode. Default: 64. With --run: the test text, cut or repeated to this number; with"
            " several thousand, the half-empty batches at the end hardly matter.",
            min=1,
        ),
    ] = None,
    length: Annotated[
        int, typer.Option("--length", help="Source length of random sentences, without --run.", min=2)
    ] = 30,
    run: Annotated[Path | None, typer.Option("--run", help="Time this run on its test text.", metavar="R")] = None,
    policy: Annotated[str, typer.Option("--policy", help="With --run: agent-L, wait-K or full.")] = "agent-3",
    policy_file: PolicyFile = [],  # noqa: B006
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    json: Json = None,
) -> None:
    """Time decoding: in batches and one by one.

    Without --run, the model is the paper's, with random weights. All sentences are decoded twice in batches, since
    a GPU captures CUDA graphs in the first pass, and 20 sentences are also decoded one by one.

    \b
    Examples:
        whilst bench decode
        whilst bench decode --length 100 --device cpu
        whilst bench decode --run runs/toy --policy agent-1
        whilst bench decode --run runs/toy --sentences 5000 --set evaluate.batch=250 --set evaluate.precision=half
    """
    from whilst.core.policy_spec import PolicySpec
    from whilst.research.bench import decode_bench, random_work, work_of_run

    register_policies(policy_file)
    if run is not None:
        work = work_of_run(run, PolicySpec.parse(policy), sentences, set_, device)
    else:
        work = random_work(sentences or 64, length, set_, device)
    decode_bench(work, json)


@app.command()
def engine(
    lengths: Annotated[
        list[int] | None,
        typer.Option("--length", help="Source length. May be repeated. Default: 30, 100.", min=2),
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="Sentences to time; medians are shown.", min=1)] = 5,
    threads: Annotated[
        int, typer.Option("--threads", help="Threads of PyTorch; exported graphs use one.", min=1)
    ] = 1,
    set_: Set = [],  # noqa: B006
    json: Json = None,
) -> None:
    """Time a READ and a WRITE on the CPU: PyTorch, exported graphs.

    The model has the paper's size and random weights.

    \b
    Examples:
        whilst bench engine
        whilst bench engine --length 30 --threads 2 --json engine.json
    """
    from whilst.research.bench import engine_bench

    engine_bench(lengths or [30, 100], repeats, threads, set_, json)


@app.command()
def checks(
    model: Model = DEFAULT_MODEL,
    latencies: Annotated[
        list[str] | None,
        typer.Option(
            "--latency", help="Latency to check. May be repeated. Default: low, medium, high.", metavar="LATENCY"
        ),
    ] = None,
    glossary: Glossary = None,
    show: Annotated[bool, typer.Option("--show", help="Print the sentences with mistakes.")] = False,
    set_: Set = [],  # noqa: B006
    json: Json = None,
) -> None:
    """Count mistakes without a reference: lost negations, numbers and names, repetitions.

    200 English, 61 German or 61 Vietnamese sentences are translated as by `whilst live`.

    \b
    Examples:
        whilst bench checks
        whilst bench checks --latency low --show
        whilst bench checks --set 'evaluate.guards=[]'
    """
    from whilst.live.checks import check_model
    from whilst.live.loading import ModelOptions, open_model

    chosen = latencies or ["low", "medium", "high"]
    opened = open_model(ModelOptions(model, chosen[0], overrides=tuple(with_glossary(set_, glossary))))
    check_model(opened, chosen, json, show)


@app.command()
def serve(
    model: Model = DEFAULT_MODEL,
    streams: Annotated[
        int | None,
        typer.Option("--streams", help="Streams to measure. Default: search for the largest number.", min=1),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="Words per second of each stream.", min=0.1)] = 3.0,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Seconds of each measurement, after two of warm-up.", min=1)
    ] = 10.0,
    latency: Latency = "medium",
    policy_file: PolicyFile = [],  # noqa: B006
    limit: Annotated[
        float, typer.Option("--limit", help="Delay in milliseconds that 99 of 100 words must stay below.")
    ] = 300.0,
    most: Annotated[int, typer.Option("--most", help="Largest number of streams to try.", min=1)] = 400,
    workers: Workers = None,
    threads: Threads = 1,
    engine: Engine = "auto",
    precision: Precision = "",
    json: Json = None,
) -> None:
    """Count the live streams that a server can carry.

    WebSocket clients on this machine send words at a fixed rate.

    \b
    Examples:
        whilst bench serve
        whilst bench serve --model runs/mine --streams 100 --seconds 30 --threads 2 --json serve.json
    """
    from whilst.research.bench_serve import Load, serve_bench

    options = ["--threads", str(threads), "--engine", engine]
    options += ["--workers", str(workers)] if workers else []
    options += ["--precision", precision] if precision else []
    options += [text for file in policy_file for text in ("--policy-file", str(file))]
    load = Load(streams or 1, rate, seconds, latency)
    serve_bench(model, streams, load, limit, most, options, json)


@app.command()
def speech(
    model: Model = DEFAULT_MODEL,
    latency: Latency = "medium",
    interval: Annotated[
        list[float] | None,
        typer.Option("--interval", help="Seconds of speech between updates. May be repeated. Default: 0.5, 1, 2."),
    ] = None,
    keep: Keep = DEFAULT_AGREEMENT,
    json: Json = None,
) -> None:
    """Measure captions of speech: word errors, lag, computing time.

    Two talks are spoken by espeak-ng, the third is read by a person. Audio arrives at the pace of speech according
    to a simulated clock, which skips the time of waiting.

    \b
    Examples:
        whilst bench speech
        whilst bench speech --interval 0.5 --keep 3 --latency low --json speech.json
    """
    from whilst.live.loading import ModelOptions
    from whilst.research.bench_speech import speech_bench

    speech_bench(ModelOptions(model, latency), interval or [0.5, 1.0, 2.0], keep, json)


@app.command()
def watch(
    model: Model = DEFAULT_MODEL,
    watchers: Annotated[
        list[int] | None,
        typer.Option(
            "--watchers", help="Size of the audience. May be repeated. Default: 1, 1000.", min=1, show_default=False
        ),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="Words per second of the speaker.", min=0.1)] = 3.0,
    seconds: Annotated[float, typer.Option("--seconds", help="Length of the talk in seconds.", min=1)] = 20.0,
    latency: Latency = "medium",
    workers: Workers = None,
    json: Json = None,
) -> None:
    """Measure the delay of words for the audience of one speaker.

    WebSocket clients on this machine watch a published session.

    \b
    Examples:
        whilst bench watch
        whilst bench watch --watchers 1000 --watchers 3000 --workers 2 --json watch.json
    """
    from whilst.research.bench_serve import Load, watch_bench

    chosen = ["--workers", str(workers)] if workers else []
    watch_bench(model, watchers or [1, 1000], Load(1, rate, seconds, latency), chosen, json)


@app.command()
def peers(
    folder: Annotated[
        Path,
        typer.Option(
            "--venv", help="Virtual environment of the other toolkits; made if it is missing.", metavar="FOLDER"
        ),
    ] = Path("build/peers"),
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            help="paper (6 + 6 layers, 512 / 1024) or small (2 + 2, 256 / 512). May be repeated. Default: both.",
            metavar="SIZE",
        ),
    ] = None,
    turns: Annotated[int, typer.Option("--turns", help="Measurements of each system; shows medians.", min=1)] = 3,
    threads: Annotated[int, typer.Option("--threads", help="Threads of each system.", min=1)] = 1,
    set_: Set = [],  # noqa: B006
    json: Json = None,
) -> None:
    """Compare speed with other toolkits on this CPU: training, decoding, wait-3, the agent loop.

    nn.Transformer, Joey NMT and CTranslate2 run in a separate virtual environment, with the same model and text.
    SimulEval is measured if `make test` has installed it.

    \b
    Examples:
        whilst bench peers
        whilst bench peers --size small --threads 2 --json peers.json
    """
    from whilst.research.peers.bench import Amount, peers_bench

    peers_bench(folder, sizes or ["paper", "small"], Amount(turns=turns, threads=threads), set_, json)
