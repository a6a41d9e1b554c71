"""The commands that make a trained model ready for use elsewhere; __main__ adds them to the others.

As there, everything heavy is imported inside: a command that only prints its help must not wait for torch.
"""

from pathlib import Path
from typing import Annotated

import typer

from whilst.options import Run


def export(
    run: Run, out: Annotated[Path, typer.Argument(help="New folder, or one of an earlier export.", metavar="OUT")]
) -> None:
    """Turn a run into a folder that translates fast on a CPU, without PyTorch: ONNX graphs in fp32 and int8.

    Examples:

        whilst export runs/toy runs/toy.onnx

        whilst export runs/iwslt15.en-vi/search engines/en-vi
    """
    from whilst.console import notes
    from whilst.export import export

    export(run, out)
    size = sum(path.stat().st_size for path in out.iterdir()) / 2**20
    notes.print(f"{out}: {size:,.1f} MiB")
