"""Read and write files: transparent compression, atomic writes, locks, checksums."""

import contextlib
import functools
import gzip
import hashlib
import json
import lzma
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from whilst.core.errors import UserError

# By the suffix of a file's name; other files are not compressed.
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": functools.partial(gzip.compress, mtime=0),
    ".xz": lzma.compress,
}
STDIN = Path("-")
MODELS = Path(__file__).parents[1] / "models"


def models_of_package() -> list[str]:
    return sorted(path.parent.name for path in MODELS.glob("*/recipe.json"))


def resolve_model(run: str) -> str:
    """The folder of a model of the package; `run` itself if it is a path or the package has no such model."""
    return str(MODELS / run) if run in models_of_package() and not Path(run).exists() else run


def find_model(name: str) -> Path:
    """The folder of a model, which is named by a path or is a model of the package."""
    folder = Path(resolve_model(name))
    if name and folder.exists():
        return folder
    known = models_of_package()
    available = f"whilst comes with {', '.join(known) or 'no model'}"
    others = "`whilst new` prepares training on your text, hf:NAME loads a model of the Hugging Face hub"
    raise UserError(f"model {name!r}: no such folder, and no model of that name; {available}; {others}")


def require_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it")
    if not path.is_file():
        raise UserError(f"{path}: no such file")


@functools.cache
def read_stream(stream: TextIO) -> bytes:
    """All bytes of a stream; cached, since a stream can be read only once."""
    return stream.buffer.read()


def read_bytes(path: Path) -> bytes:
    """The content of a plain, .gz or .xz file, or of standard input."""
    if path == STDIN:
        return read_stream(sys.stdin)
    require_file(path)
    return DECOMPRESS.get(path.suffix, bytes)(path.read_bytes())


def require_folder(path: Path, what: str) -> None:
    """Raise an error for `what` if the folder cannot be made because its path or a parent is a file."""
    existing = next((part for part in (path, *path.parents) if part.exists()), path)
    if existing.exists() and not existing.is_dir():
        raise UserError(f"{what}: {existing} is a file; name a folder")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path, renamed to `path` on success and removed on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until the content of a file is on disk; only then may the file replace another one."""
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[str | None]:
    """Lock a folder. Yields None, or the process that holds the lock; with `wait`, waits for that process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+", encoding="utf-8") as file:
        try:
            import fcntl  # not on Windows

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.seek(0)
            yield file.read()
            return
        except (ImportError, OSError):  # a file system without locks
            pass
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield None


@contextlib.contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`, which replaces it on success and is removed on failure."""
    path = path.resolve()
    new, old = (path.with_name(f".{path.name}.{os.getpid()}.{suffix}") for suffix in ("new", "old"))
    shutil.rmtree(new, ignore_errors=True)  # left by a killed process with the same number
    new.mkdir(parents=True)
    try:
        yield new
        for file in new.rglob("*"):
            if file.is_file():
                sync(file)
        if path.exists():
            path.rename(old)  # a folder with files in it cannot be replaced
        try:
            new.rename(path)
        except BaseException:
            if old.exists():
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, compressed if the name ends in .gz or .xz. The bytes are reproducible."""
    with writing(path) as temporary:
        temporary.write_bytes(COMPRESS.get(path.suffix, bytes)(text.encode()))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def parse_json(text: str) -> Any:
    """Parse JSON from any source. Raises ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_row(line: str, where: str) -> dict[str, Any]:
    """Parse a line of a JSON lines file. `where`: file and line, for messages."""
    try:
        row = parse_json(line)
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON ({error})") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: must be a JSON object")
    return row


def read_json(path: Path) -> Any:
    try:
        return parse_json(read_bytes(path).decode())
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error})") from None


def checked_manifest(path: Path, versions: Sequence[int], keys: set[str], advice: str) -> dict[str, Any]:
    """Read the manifest of a folder and compare the folder's files with the checksums in it."""
    table = read_json(path)
    if (
        not isinstance(table, dict)
        or table.get("format") not in versions
        or not (table.keys() >= keys and isinstance(table.get("files"), dict))
    ):
        raise UserError(f"{path.parent}: {path.name} is damaged or of another version of whilst; {advice}")
    for name, checksum in table["files"].items():
        file = path.parent / name
        if not file.is_file() or sha256(file) != checksum:
            raise UserError(f"{path.parent}: {name} is missing or damaged; {advice}")
    return table


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_lines(lines: list[str]) -> str:
    """Checksum of the lines of a text, independent of its compression and last newline."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
