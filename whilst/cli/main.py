"""The program `whilst`: it collects all commands and reports errors."""

import io
import re
import signal
import sys
from typing import Annotated, Any, TextIO

import typer

import whilst
from whilst.cli import bench, evaluate, live, study, train
from whilst.core.errors import UserError, name_missing_extra
from whilst.core.signals import interrupt_handler

HELP = """Simultaneous machine translation: translate while the source is still arriving.

\b
Translate live with the model of the package:
    whilst demo
    echo "My father gave me an old radio." | whilst live --latency low
    whilst serve

\b
Train a model on parallel text in the folder texts, and draw its quality/latency curve:
    whilst new texts
    whilst prepare texts.toml
    whilst train texts.toml

`whilst COMMAND --help` explains a command with examples.
"""
COMMANDS = (
    *(live.demo, live.models, live.live, live.listen, live.serve),
    *(train.new, train.prepare, train.train, evaluate.translate, evaluate.evaluate, evaluate.score),
    *(evaluate.report, evaluate.convert, evaluate.archive),
    *(train.calibrate, train.export, train.bundle, train.card),
    *(study.explain, study.analyse, study.sufficiency, study.paper),
)


def show_version(value: bool) -> None:
    if value:
        typer.echo(f"whilst {whilst.__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # typer does not export this class

# Help without rich, which takes longer to import than everything else.
app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.callback(help=HELP)(root)
for command in COMMANDS:
    app.command()(command)
app.add_typer(bench.app, name="bench")


def write_utf8(stream: TextIO) -> None:
    """Write UTF-8 to files and pipes; on a terminal, replace letters that it cannot show by question marks."""
    if not isinstance(stream, io.TextIOWrapper):
        return
    if stream.isatty():
        stream.reconfigure(errors="replace")
    else:
        stream.reconfigure(encoding="utf-8")


def main() -> None:
    """Run a command. A user's mistake is one line on stderr and exit code 2.

    Typer handles Ctrl-C (exit code 130) and a closed pipe, as in `whilst … | head`.
    """
    for stream in (sys.stdout, sys.stderr):
        write_utf8(stream)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # under nohup, SIGINT is ignored
        signal.signal(signal.SIGINT, interrupt_handler)
    try:
        with name_missing_extra():
            code = app(standalone_mode=False)
    except (UserError, OSError) as error:  # OSError: such as a full disk
        if str(error):
            print(f"whilst: {error}", file=sys.stderr)
        code = error.code if isinstance(error, UserError) else 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not re.search("out of memory|allocate memory", str(error)):
            raise
        print("whilst: not enough memory; choose a smaller model or smaller batches", file=sys.stderr)
        code = 2
    except USAGE_ERROR as error:
        message = error.format_message()  # without arguments, the help text
        print(message if message.startswith("Usage:") else f"whilst: {message} (see --help)", file=sys.stderr)
        code = 2
    sys.exit(code)
