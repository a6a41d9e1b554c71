"""Commands: export, bundle."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from whilst.cli.options import Run


def export(
    run: Run,
    out: Annotated[Path, typer.Argument(help="New folder, or that of an earlier export.", metavar="OUT")],
    precision: Annotated[Literal["fp32", "int8"] | None, typer.Option(help="fp32 or int8. Default: both.")] = None,
) -> None:
    """Export a run to ONNX, fast on a CPU without PyTorch.

    \b
    Examples:
        whilst export runs/toy/search engines/toy
        whilst export runs/iwslt15.en-vi engines/en-vi --precision int8
    """
    from whilst.core.console import notes
    from whilst.engine.export import export
    from whilst.engine.runtime import PRECISIONS
    from whilst.model.run_folder import choose_policy

    export(run, out, [precision] if precision else PRECISIONS)
    notes.print(f"{out}: {folder_size(out)}")
    if (tuned := choose_policy(run, "medium")[0]) != run:
        notes.print(f"without an agent; export {tuned}, which has one, for low, medium and high")


def bundle(
    run: Run, out: Annotated[Path, typer.Argument(help="New folder, or that of an earlier bundle.", metavar="OUT")]
) -> None:
    """Pack a run for distribution.

    The folder has weights in half precision, the agent, checksums, a model card and the exported CPU engine.

    \b
    Examples:
        whilst bundle runs/toy models/toy
        whilst bundle runs/en-vi whilst/models/en-vi
    """
    from whilst.core.console import notes
    from whilst.engine.bundle import bundle

    bundle(run, out)
    notes.print(f"{out}: {folder_size(out)}")


def folder_size(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:,.1f} MB"
