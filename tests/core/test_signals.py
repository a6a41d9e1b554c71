"""Ctrl-C while modules are being imported, and at any other time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.runs import ENVIRONMENT
from whilst.core.signals import handle_signals, interrupt_handler

MODULE = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**7):  # until the handler is called
        pass
except BaseException:
    pass
"""


def test_an_import_cannot_suppress_an_interrupt(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(MODULE)
    code = "import signal; from whilst.core.signals import *; signal.signal(signal.SIGINT, {}); import greedy"
    for handler, wanted in (("interrupt_handler", (130, "")), ("signal.default_int_handler", (0, "continued\n"))):
        program = f"{code.format(handler)}; print('continued')"
        path = os.pathsep.join([str(tmp_path), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", program], env=ENVIRONMENT | {"PYTHONPATH": path}, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == wanted, done.stderr
        assert not done.stderr


def test_otherwise_an_interrupt_raises() -> None:
    with handle_signals((signal.SIGINT,), interrupt_handler), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
