"""Run a command in this process: starting one takes seconds."""

import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from whilst.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def whilst(*arguments: str | Path, stdin: bytes = b"", stderr: type[io.StringIO] = io.StringIO) -> Done:
    """`whilst …` with its output piped."""
    out, err = io.StringIO(), stderr()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["whilst", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, out.getvalue(), err.getvalue())
