"""Ctrl-C whilst modules are being imported, and at any other time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.runs import ENVIRONMENT
from whilst.core.signals import handled, interrupt

MODULE = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**7):  # until the handler is called
        pass
except BaseException:  # as some do
    pass
"""


def test_an_import_cannot_swallow_it(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(MODULE)
    code = (
        "import signal; from whilst.core.signals import interrupt; signal.signal(signal.SIGINT, {}); import greedy"
    )
    for handler, wanted in (("interrupt", (130, "")), ("signal.default_int_handler", (0, "went on\n"))):
        program = f"{code.format(handler)}; print('went on')"
        path = os.pathsep.join([str(tmp_path), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", program], env=ENVIRONMENT | {"PYTHONPATH": path}, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == wanted, done.stderr
        assert not done.stderr


def test_at_any_other_time_it_is_an_exception() -> None:
    with handled((signal.SIGINT,), interrupt), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
