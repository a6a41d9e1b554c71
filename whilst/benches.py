"""Commands that measure how training behaves; __main__ adds them to the others.

As there, everything heavy is imported inside: a command that only prints its help must not wait for torch.
"""

from pathlib import Path
from typing import Annotated

import typer

from whilst.options import Device, Set


def bench_losses(
    recipe: Annotated[Path | None, typer.Argument(help="Default: the paper's model on random text.")] = None,
    steps: Annotated[int, typer.Option(help="Updates of each.", min=1)] = 200,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Write OUT.json, OUT.png and OUT.svg too.")] = None,
) -> None:
    """Train the fast and the simple way on the same batches: are the losses the same?

    Simple is padded, in 32 bits, one operation after the other. On a CPU there is only that way: both are it.

    Examples:

        whilst bench losses recipes/iwslt15.en-vi.toml --set train.batch_tokens=4096 --out losses
    """
    from whilst.losses import losses_bench

    losses_bench(recipe, steps, set_, device, out)
