"""Messages to the user: of a mistake, of a package that is not installed, of what goes on."""

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
    """A line on stderr. A live display that is on the screen is redrawn below it."""
    print(f"whilst: {text}", file=sys.stderr, flush=True)


class UserError(Exception):
    """A mistake in the input or the settings. The commands print it as one line and exit with its code."""

    code = 2


class StoppedError(UserError):
    """A signal ended the work, and what was done is kept."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message)
        self.code = 128 + number


@contextlib.contextmanager
def naming_extras() -> Iterator[None]:
    """Turn the ImportError of a package that an extra brings into a UserError that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
        if extra is None:
            raise
        raise UserError(f"{package} is not installed: pip install 'whilst[{extra}]'") from None


@contextlib.contextmanager
def explaining(what: str) -> Iterator[None]:
    """Turn an exception of a user's own code into a UserError that says where in it."""
    try:
        with naming_extras():
            yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, SyntaxError):
            place, reason = f"{Path(error.filename or '').name}:{error.lineno}: ", error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            others = PACKAGE, contextlib.__file__
            own = [one for one in frames if not one.filename.startswith(others) and "importlib" not in one.filename]
            place, reason = (f"{Path(own[0].filename).name}:{own[0].lineno}: " if own else ""), str(error)
        raise UserError(f"{what}: {place}{type(error).__name__}: {' '.join(reason.split())}") from error
