"""Files: transparent decompression, atomic writes, checksums."""

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

# By the ending of a file's name; other files are plain.
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": functools.partial(gzip.compress, mtime=0),
    ".xz": lzma.compress,
}
STDIN = Path("-")
MODELS = Path(__file__).parents[1] / "models"


def models_of_package() -> list[str]:
    return sorted(path.parent.name for path in MODELS.glob("*/recipe.json"))


def packaged(run: str) -> str:
    """The folder of a model of the package, if this is its name and no folder has that; otherwise as it is."""
    return str(MODELS / run) if run in models_of_package() and not Path(run).exists() else run


def find_model(name: str) -> Path:
    """The folder of a model's name: a path, else a model of the package."""
    folder = Path(packaged(name))
    if name and folder.exists():
        return folder
    known = models_of_package()
    there = f"those of the package are {', '.join(known)}" if known else "the package comes with none"
    others = "`whilst new` makes one of your text, hf:NAME takes one of the Hugging Face hub"
    raise UserError(f"model {name!r}: no such folder, and no model of that name; {there}; {others}")


def require_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it")
    if not path.is_file():
        raise UserError(f"{path}: no such file")


@functools.cache
def read_stream(stream: TextIO) -> bytes:
    """All of its bytes, also if they are wanted again."""
    return stream.buffer.read()


def read_bytes(path: Path) -> bytes:
    """The content of a plain, .gz or .xz file, or of standard input."""
    if path == STDIN:
        return read_stream(sys.stdin)
    require_file(path)
    return DECOMPRESS.get(path.suffix, bytes)(path.read_bytes())


def require_folder(path: Path, what: str) -> None:
    """Refuse a path where no folder can be made, before anything is computed for it."""
    found = next((one for one in (path, *path.parents) if one.exists()), path)
    if found.exists() and not found.is_dir():
        raise UserError(f"{what}: {found} is a file; name a folder")


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
    """Wait until the content of a file is on the disk: only then may its name replace another file's."""
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[str | None]:
    """Lock a folder; yields who has locked it already, if anyone. With `wait`, waits until that one is done."""
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
    new, old = (path.with_name(f".{path.name}.{os.getpid()}.{what}") for what in ("new", "old"))
    shutil.rmtree(new, ignore_errors=True)  # of a killed process with our number
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
    """JSON of any origin: what Python cannot represent is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_row(line: str, where: str) -> dict[str, Any]:
    """A line of JSON lines; `where` is the place in its file."""
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
    if not isinstance(table, dict) or table.get("format") not in versions or not table.keys() >= keys | {"files"}:
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
    """Checksum of the lines of a text, whatever its compression and its last newline."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
