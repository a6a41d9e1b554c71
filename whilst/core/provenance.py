"""Provenance of a result: the command, device and versions that produced it."""

import platform
import shlex
import sys
from typing import Any

import whilst


def versions() -> dict[str, str]:
    """Versions of whilst, of PyTorch if it is loaded, and of Python."""
    torch = {"torch": str(sys.modules["torch"].__version__)} if "torch" in sys.modules else {}
    return {"whilst": whilst.__version__} | torch | {"python": platform.python_version()}


def provenance(device: str) -> dict[str, Any]:
    """`device`: the name of the device."""
    return {"command": shlex.join(["whilst", *sys.argv[1:]]), "device": device, "versions": versions()}
