"""The commands that make a trained model ready for use elsewhere; __main__ adds them to the others.

As there, everything heavy is imported inside: a command that only prints its help must not wait for torch.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from whilst.cli.options import Run, Set


def export(
    run: Run,
    out: Annotated[Path, typer.Argument(help="New folder, or one of an earlier export.", metavar="OUT")],
    precision: Annotated[Literal["fp32", "int8"] | None, typer.Option(help="fp32 or int8. Default: both.")] = None,
) -> None:
    """Turn a run into a folder that translates fast on a CPU, without PyTorch: ONNX graphs in fp32 and int8.

    Examples:

        whilst export runs/toy/search engines/toy

        whilst export runs/iwslt15.en-vi engines/en-vi --precision int8
    """
    from whilst.core.console import notes
    from whilst.engine.export import export
    from whilst.engine.runtime import PRECISIONS
    from whilst.model.run_folder import choose_policy

    export(run, out, [precision] if precision else PRECISIONS)
    size = sum(path.stat().st_size for path in out.iterdir()) / 2**20
    notes.print(f"{out}: {size:,.1f} MiB")
    if (tuned := choose_policy(run, "medium")[0]) != run:
        notes.print(f"without an agent, which is that of {tuned}: export this one for low, medium and high")


def bundle(
    run: Run, out: Annotated[Path, typer.Argument(help="New folder, or one of an earlier bundle.", metavar="OUT")]
) -> None:
    """Turn a run into a small folder to ship: half precision, the agent inside, checksums, a model card.

    It is compared with the run on the test set, if the dataset is there. At most 25 MB.

    Examples:

        whilst bundle runs/toy models/toy

        whilst bundle runs/en-vi whilst/models/en-vi
    """
    from whilst.core.console import notes
    from whilst.engine.bundle import bundle

    size, compared = bundle(run, out)
    notes.print(f"{out}: {size / 1e6:.1f} MB; " + (str(compared) if compared else "not compared (no dataset here)"))


def bench_engine(
    recipe: Annotated[Path | None, typer.Argument(help="Default: the paper's model.")] = None,
    lengths: Annotated[
        list[int] | None, typer.Option("--length", help="Source length. Repeatable. Default: 30, 100.", min=2)
    ] = None,
    repeats: Annotated[int, typer.Option(help="Sentences to time; medians are shown.", min=1)] = 5,
    threads: Annotated[int, typer.Option(help="Threads that each way may use.", min=1)] = 1,
    set_: Set = [],  # noqa: B006
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
) -> None:
    """Time reading and writing a token on the CPU: recomputed, PyTorch with caches, exported graphs.

    Examples:

        whilst bench engine

        whilst bench engine --length 30 --threads 2 --json engine.json
    """
    from whilst.research.bench.engine import engine_bench

    engine_bench(recipe, lengths or [30, 100], repeats, threads, set_, json)
