"""The exported engine of a run folder: shipped inside of it, cached in the user's cache folder, or made anew.

A cache entry is found by the checksums of the files it is made from, so it is never out of date. It gets its name
when it is complete; if two processes make one at once, one remains. PyTorch is imported only to make one.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.files import sha256
from whilst.engine.runtime import FORMAT, Exported, is_export, load_exported
from whilst.model.run_folder import AGENT, WEIGHTS, has_agent, weights_path

SHIPPED = "engine"  # folder of the export in a bundle


def cache_folder() -> Path:
    """By the XDG Base Directory specification."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (named if named.is_absolute() else Path("~/.cache").expanduser()) / "whilst"
    except RuntimeError as error:  # the user has no home folder
        raise OSError(str(error)) from None


def key(run: Path) -> str:
    """Checksum of everything that an export is made from."""
    files = [run / "recipe.json", weights_path(run), *sorted(run.glob("source.*")), *sorted(run.glob("target.*"))]
    files += [run / AGENT / "recipe.json", run / AGENT / WEIGHTS] if has_agent(run) else []
    sums = [f"{path.relative_to(run)} {sha256(path)}" for path in files]
    return hashlib.sha256("\n".join([f"format {FORMAT}", *sums]).encode()).hexdigest()[:32]


def has_shipped(run: Path, precision: str) -> bool:
    return (run / SHIPPED / f"read.{precision}.onnx").is_file()


def engine_of(run: Path, precision: str, notify: Callable[[str], None], threads: int = 1) -> Exported:
    """`notify` gets messages for the user. Where nothing can be cached, the engine is made in memory."""
    if has_shipped(run, precision):
        return load_exported(run / SHIPPED, precision, threads)
    try:
        entry = cache_folder() / "engines" / f"{key(run)}.{precision}"
        if is_export(entry):
            try:
                return load_exported(entry, precision, threads)
            except UserError:  # damaged
                shutil.rmtree(entry)
        notify(f"making the CPU engine of {run} (only once: it is kept in {entry.parent})")
        _make(run, entry, precision)
    except OSError as error:
        from whilst.engine.export import export_in_memory, load_exportable

        reason = error.strerror or error
        notify(f"the CPU engine of {run} cannot be cached ({reason}); XDG_CACHE_HOME names another folder")
        return export_in_memory(load_exportable(run), precision, threads)
    return load_exported(entry, precision, threads)


def _make(run: Path, entry: Path, precision: str) -> None:
    from whilst.engine.export import load_exportable, write_engine

    trained = load_exportable(run)
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new.", dir=entry.parent) as folder:
        new = Path(folder, entry.name)
        new.mkdir()
        write_engine(trained, new, [precision])
        try:
            new.rename(entry)
        except OSError:
            if not is_export(entry):  # else another process was first, with the same result
                raise
