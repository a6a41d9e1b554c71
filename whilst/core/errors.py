"""The exception for a user's mistake, and the message for a package that is not installed."""

import contextlib
from collections.abc import Iterator

# Extras of pyproject.toml and the packages that each one brings.
EXTRAS = {
    "train": ("torch", "sacrebleu", "tensorboard", "tokenizers"),
    "plot": ("matplotlib",),
    "export": ("onnx",),
    "serve": ("starlette", "uvicorn", "websockets", "sse_starlette", "prometheus_client", "segno"),
    "ray": ("ray",),
    "moses": ("sacremoses",),
    "hf": ("transformers",),
    "speech": ("moonshine_voice", "sounddevice"),
}


class UserError(Exception):
    """A mistake in the input or the settings. The commands print it as one line and exit with code 2."""


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
