"""Errors and notes for the user, such as a mistake in a recipe or a package that is not installed."""

import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

# Extras of pyproject.toml and the packages that each one brings.
EXTRAS = {
    "train": ("torch", "sacrebleu", "tokenizers"),
    "tensorboard": ("tensorboard",),
    "plot": ("matplotlib",),
    "export": ("onnx",),
    "serve": ("starlette", "uvicorn", "websockets", "sse_starlette", "prometheus_client", "segno"),
    "ray": ("ray",),
    "moses": ("sacremoses",),
    "hf": ("transformers",),
    "hub": ("datasets",),
    "talks": ("yaml", "mweralign"),
    "speech": ("moonshine_voice", "sounddevice"),
}
PACKAGE = str(Path(__file__).parents[1])


def note(text: str) -> None:
    """Print a line on stderr. A live display on the screen is redrawn below the line."""
    print(f"whilst: {text}", file=sys.stderr, flush=True)


class UserError(Exception):
    """A mistake in the input or the settings. The commands print it as one line and exit with `code`."""

    code = 2


class StoppedError(UserError):
    """A signal (`number`) stopped the work; what was done so far is kept."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message)
        self.code = 128 + number


@contextlib.contextmanager
def name_missing_extra() -> Iterator[None]:
    """Turn the ModuleNotFoundError of an optional package into a UserError that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
        if extra is None:
            raise
        raise UserError(f"{package} is not installed: pip install 'whilst[{extra}]'") from None


@contextlib.contextmanager
def as_user_error(what: str) -> Iterator[None]:
    """Turn an exception in the user's own code into a UserError with file and line. `what` names the code."""
    try:
        with name_missing_extra():
            yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, SyntaxError):
            where, reason = f"{Path(error.filename or '').name}:{error.lineno}: ", error.msg
        else:
            frames, ours = traceback.extract_tb(error.__traceback__), (PACKAGE, contextlib.__file__)
            users = [f for f in frames if not f.filename.startswith(ours) and "importlib" not in f.filename]
            where, reason = (f"{Path(users[0].filename).name}:{users[0].lineno}: " if users else ""), str(error)
        raise UserError(f"{what}: {where}{type(error).__name__}: {' '.join(reason.split())}") from error
