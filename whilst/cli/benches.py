"""The commands that time training and decoding; __main__ adds them to the others.

As there, everything heavy is imported inside: a command that only prints its help must not wait for torch.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from whilst.cli.options import Device, Set
from whilst.core.policy_spec import PolicySpec


def bench_train(
    recipe: Annotated[Path | None, typer.Argument(help="Default: the paper's model on random text.")] = None,
    stage: Annotated[Literal["translate", "search", "agent"], typer.Option(help="What to train.")] = "translate",
    steps: Annotated[int, typer.Option(help="Updates to time, after as many to warm up.", min=1)] = 20,
    kernels: Annotated[bool, typer.Option("--kernels", help="Profile some more: what takes the time?")] = False,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
) -> None:
    """Time training updates: target tokens/s, sentences/s, peak memory.

    Examples:

        whilst bench train

        whilst bench train recipes/iwslt15.en-vi/bs-simt.toml --steps 100 --set train.batch_tokens=32768

        whilst bench train --stage agent --set agent.train.batch_tokens=65536
    """
    from whilst.research.bench.train_decode import train_bench

    train_bench(recipe, stage, steps, set_, device, json, kernels)


def bench_losses(
    recipe: Annotated[Path | None, typer.Argument(help="Default: the paper's model on random text.")] = None,
    stage: Annotated[
        Literal["translate", "search", "agent"],
        typer.Option(help="What to train; search and agent begin with the translator of the recipe's run."),
    ] = "translate",
    steps: Annotated[int, typer.Option(help="Updates of each.", min=1)] = 200,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Write OUT.json, OUT.png and OUT.svg too.")] = None,
) -> None:
    """Train the fast and the simple way on the same batches: are the losses the same?

    Simple is padded, in 32 bits, one operation after the other. On a CPU there is only that way: both are it.

    Examples:

        whilst bench losses recipes/iwslt15.en-vi/bs-simt.toml --set train.batch_tokens=4096 --out losses

        whilst bench losses recipes/iwslt15.en-vi/bs-simt.toml --stage agent
    """
    from whilst.research.bench.losses import losses_bench

    losses_bench(recipe, stage, steps, set_, device, out)


def bench_decode(
    recipe: Annotated[Path | None, typer.Argument(help="Default: the paper's model on random text.")] = None,
    sentences: Annotated[
        int | None,
        typer.Option(
            help="Sentences to decode together. Default: 64; with --run its test text, which is cut or repeated to"
            " have so many. With several thousand it does not matter much which of them are last.",
            min=1,
        ),
    ] = None,
    length: Annotated[int, typer.Option(help="Source length of the cached/recomputed comparison.", min=2)] = 30,
    run: Annotated[Path | None, typer.Option("--run", help="Time this run on its test text.", metavar="R")] = None,
    policy: Annotated[str, typer.Option(help="With --run: agent-L, wait-K or full.")] = "agent-3",
    batch: Annotated[int, typer.Option(help="With --run: sentences at a time.", min=1)] = 250,
    precision: Annotated[
        Literal["single", "half"], typer.Option(help="With --run: of model and agent; half is for GPUs.")
    ] = "single",
    kernels: Annotated[
        bool, typer.Option("--kernels", help="With --run: profile one more pass: what takes the time?")
    ] = False,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
) -> None:
    """Time decoding: in batches, one by one with caches, and one by one recomputing everything.

    With --run: a first pass, in which a GPU records its steps, and a second one; then 20 sentences one by one.

    Examples:

        whilst bench decode

        whilst bench decode --length 100 --device cpu

        whilst bench decode --run runs/toy --policy agent-1

        whilst bench decode --run runs/toy --policy agent-1 --sentences 5000 --precision half --kernels
    """
    from whilst.research.bench.train_decode import Texts, decode_bench, run_bench

    if run is not None:
        run_bench(run, PolicySpec.parse(policy), Texts(sentences, batch, precision, kernels), set_, device, json)
    else:
        decode_bench(recipe, sentences or 64, length, set_, device, json)


def bench_growth(
    recipe: Annotated[Path | None, typer.Argument(help="Default: the paper's model on random text.")] = None,
    length: Annotated[int, typer.Option(help="Tokens of the sentence.", min=2)] = 200,
    repeats: Annotated[int, typer.Option(help="Sentences to time; medians are shown.", min=1)] = 5,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Write OUT.json, OUT.png and OUT.svg too.")] = None,
) -> None:
    """Time reading and writing one token against its position, with caches and recomputing everything.

    Examples:

        whilst bench growth

        whilst bench growth --length 400 --device cpu --out growth
    """
    from whilst.research.bench.growth import growth_bench

    growth_bench(recipe, length, repeats, set_, device, out)


def bench_limits(
    scale: Annotated[int, typer.Option(help="Divide all sizes by this, on a slow machine.", min=1)] = 1,
    device: Device = "auto",
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
) -> None:
    """Time what the machine itself can do: products of matrices, copies, launches.

    The other figures are to be held against these.

    Examples:

        whilst bench limits --json limits.json

        whilst bench limits --device cpu --scale 8
    """
    from whilst.research.bench.limits import limits_bench

    limits_bench(device, scale, json)
