"""Exported copies of runs in the user's cache folder, made when one is first wanted. PyTorch only for making one.

A copy is found by the checksums of what it is made from, so it is never out of date; a changed run has another one.
A copy takes its name when it is complete; of two that are made at once, one stays.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from whilst.core.errors import UserError
from whilst.core.files import sha256
from whilst.engine.runtime import ABOUT, FORMAT, Exported, load_checked, load_exported, read_about
from whilst.model.run_folder import AGENT, WEIGHTS, has_agent, weights_of

if TYPE_CHECKING:
    from whilst.model.checkpoint import Trained

STALE = 24 * 3600  # seconds; what is unfinished for so long was left by a process that was killed


def cache_folder() -> Path:
    """As the XDG base directories have it."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()) / "whilst"


def key(run: Path) -> str:
    """Of all that an exported copy is made from."""
    files = [run / "recipe.json", weights_of(run), *sorted(run.glob("source.*")), *sorted(run.glob("target.*"))]
    files += [run / AGENT / "recipe.json", run / AGENT / WEIGHTS] if has_agent(run) else []
    sums = [f"{path.relative_to(run)} {sha256(path)}" for path in files]
    return hashlib.sha256("\n".join([f"format {FORMAT}", *sums]).encode()).hexdigest()[:32]


def engine_of(run: Path, precision: str, say: Callable[[str], None], threads: int = 1) -> Exported:
    """The engine of a run folder: its copy in the cache, or a new one; in memory where none can be kept."""
    try:
        place = cache_folder() / "engines" / f"{key(run)}.{precision}"
        found = _find(place, precision, threads)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody knows where this user is at home
        _tell(say, error)
        return _in_memory(_load(run), precision, threads)
    if found is not None:
        return found
    say(f"making the CPU engine of {run} (only once: it is kept in {place.parent})")
    trained = _load(run)
    try:
        _keep(trained, place, precision)
    except OSError as error:
        _tell(say, error)
        return _in_memory(trained, precision, threads)
    return load_exported(place, precision, threads)


def _find(place: Path, precision: str, threads: int) -> Exported | None:
    if not (place / ABOUT).is_file():
        return None
    try:
        about = read_about(place)
    except UserError:  # damaged
        shutil.rmtree(place)
        return None
    return load_checked(place, about, precision, threads)


def _load(run: Path) -> "Trained":
    from whilst.engine.export import load_exportable

    return load_exportable(run)


def _keep(trained: "Trained", place: Path, precision: str) -> None:
    from whilst.engine.export import write_engine

    place.parent.mkdir(parents=True, exist_ok=True)
    for left in place.parent.glob(".new.*"):
        if time.time() - left.stat().st_mtime > STALE:
            shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=".new.", dir=place.parent))
    try:
        write_engine(trained, new, [precision])
        try:
            new.rename(place)
        except OSError:
            if not (place / ABOUT).is_file():  # else another process was first, and its copy is as good
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _tell(say: Callable[[str], None], why: Exception) -> None:
    reason = why.strerror or why if isinstance(why, OSError) else why
    say(f"the CPU engine cannot be kept for the next time ({reason}); XDG_CACHE_HOME names another folder")


def _in_memory(trained: "Trained", precision: str, threads: int) -> Exported:
    from whilst.engine.export import export_in_memory

    return export_in_memory(trained, precision, threads)
