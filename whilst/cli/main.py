"""The commands. Each one reads its settings, calls one function, and says where the result lies."""

import io
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from whilst.cli import benches, deploy, streams, studies
from whilst.cli.options import Device, Policies, RecipeFile, Run, Set
from whilst.core.errors import UserError, naming_extras
from whilst.core.policy_spec import PolicySpec
from whilst.core.signals import interrupt_handler

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Simultaneous machine translation: it translates whilst the source is still arriving.\n\n"
    "From text to curve: **prepare**, **train**, **evaluate**, **report**.",
)
bench = typer.Typer(no_args_is_help=True, help="Measure speed: training, decoding, growth, CPU engine, server.")
app.add_typer(bench, name="bench")


@app.command()
def prepare(
    recipe: RecipeFile,
    set_: Set = [],  # noqa: B006
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace one made with other settings.")] = False,
) -> None:
    """Turn parallel text into a dataset folder.

    Examples:

        whilst prepare recipes/toy/bs-simt.toml

        whilst prepare recipes/iwslt15.en-vi/bs-simt.toml --set data.folder=~/corpora/iwslt15.en-vi

        whilst prepare mine.toml --set 'data.train=["train.de.gz", "train.en.gz"]' --set data.units=sentencepiece
    """
    from whilst.core.config import load_recipe
    from whilst.data.prepare import prepare

    prepare(load_recipe(recipe, set_).data, overwrite)


@app.command()
def train(
    recipes: Annotated[
        list[Path], typer.Argument(help="TOML files such as recipes/toy/bs-simt.toml.", metavar="RECIPE…")
    ],
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew instead of going on.")] = False,
    text: Annotated[bool, typer.Option(help="Keep source and reference in the traces.")] = True,
    each: Annotated[
        bool, typer.Option("--each-interval", help="A model and an agent for each search interval, as RUN/3-7.")
    ] = False,
    only: Annotated[
        list[str], typer.Option(help="Of a recipe with a sweep, this run alone, such as 0.4; may be repeated.")
    ] = [],  # noqa: B006
) -> None:
    """Train the stages of a recipe, or go on where training was stopped.

    The stages are the translator (RUN), its fine-tuning on searched reads (RUN/search), the agent that learns
    those reads (RUN/search/agent), and the evaluation of all of them (RUN/evaluations, RUN/report). Several recipes
    are trained one after the other, and those first that others start from; what is trained is not trained again,
    and what was measured with the same weights and settings is not measured again (`whilst evaluate` does that).

    Examples:

        whilst train recipes/toy/bs-simt.toml

        whilst train recipes/iwslt15.en-vi/bs-simt.toml --set train.steps=500 --set run=runs/short

        whilst train recipes/german.de-en/bs-simt.toml recipes/german.de-en/ablations/*.toml --no-text

        whilst train recipes/iwslt15.en-vi/mma.toml --only 0.2 --only 0.4

        torchrun --nproc-per-node 2 -m whilst train recipes/iwslt15.en-vi/bs-simt.toml --set train.accumulate=2
    """
    from whilst.core.config import load_sweep
    from whilst.core.distributed import pick_device
    from whilst.training.stages import for_each_interval
    from whilst.training.train import train_all

    loaded = [run for recipe in recipes for run in load_sweep(recipe, set_, only)]
    if each:
        loaded = [part for recipe in loaded for part in for_each_interval(recipe)]
    train_all(loaded, pick_device(device), restart, text)


@app.command()
def translate(
    run: Run,
    file: Annotated[Path | None, typer.Argument(help="Text, one sentence a line; default: stdin.")] = None,
    policy: Annotated[str, typer.Option(help="full, wait-K or agent-L.")] = "wait-3",
    show: Annotated[bool, typer.Option("--show", help="Show every READ and WRITE.")] = False,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Translate sentences, one a line.

    Examples:

        whilst translate runs/toy data/toy-20000-1/test.src --policy wait-5

        head -n 3 data/toy-20000-1/test.src | whilst translate runs/toy --show
    """
    from whilst.evaluation.translate import translate_text

    translate_text(run, file, PolicySpec.parse(policy), show, set_, device)


app.command()(streams.live)
app.command()(streams.serve)


@app.command()
def explain(
    run: Run,
    source: Annotated[str, typer.Argument(help="The source sentence, in quotes.", metavar="SOURCE")],
    target: Annotated[str | None, typer.Argument(help="Its translation; default: what the model says.")] = None,
    latency: Annotated[
        int | None, typer.Option(help="First read of the search interval; default: the run's first.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Picture: .png, .svg or .pdf.")] = Path("explain.png"),
    device: Device = "auto",
) -> None:
    """Draw one sentence: what each target token gains from each source token, and what search and agent make of it.

    Examples:

        whilst explain runs/toy/search "ros muhun hosus ronan son mor sotosun yun ."

        whilst explain runs/toy/search "kan musak ros ramak haran ." --latency 2 --out sentence.svg
    """
    from whilst.core.console import notes
    from whilst.core.distributed import pick_device
    from whilst.model.checkpoint import load_run
    from whilst.research.explain import explain
    from whilst.research.landscape import draw, print_landscape

    if out.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--out {out}: the name must end in .png, .svg or .pdf")
    trained = load_run(run, pick_device(device))
    first = trained.recipe.search.intervals[0][0] if latency is None else latency
    explanation = explain(trained, source, target, first)
    print_landscape(explanation)
    draw(explanation, out)
    notes.print(f"picture: {out}")


@app.command()
def evaluate(
    run: Run,
    policies: Policies = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder for the traces; default: RUN/evaluations.")] = None,
    text: Annotated[bool, typer.Option(help="Keep source and reference in the traces.")] = True,
    precision: Annotated[str | None, typer.Option(help="Of an exported run: int8 (default) or fp32.")] = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Translate the test set under each policy, and measure quality and latency.

    Of an exported run too, one sentence at a time as `whilst live` does it.

    Examples:

        whilst evaluate runs/toy

        whilst evaluate runs/toy --policy wait-1 --policy wait-3 --policy full

        whilst evaluate runs/toy/search --policy agent-1 --policy oracle-1

        whilst evaluate runs/iwslt15.en-vi --no-text --out results/iwslt15.en-vi --set evaluate.split=valid

        whilst evaluate engines/en-vi --policy agent-3 --precision int8
    """
    from whilst.engine.runtime import is_export
    from whilst.evaluation.evaluate import evaluate_run
    from whilst.evaluation.report_screen import print_table
    from whilst.live.evaluate_export import evaluate_exported

    if is_export(run):
        print_table(evaluate_exported(run, policies, precision or "int8", out, text, set_, device))
    elif precision is not None:
        raise UserError(f"--precision {precision}: {run} is no exported run; `whilst export` makes one")
    else:
        print_table(evaluate_run(run, policies, out, text, set_, device))


@app.command()
def score(
    trace: Annotated[Path, typer.Argument(help="A trace, as `whilst evaluate` writes it.", metavar="TRACE")],
    source: Annotated[Path | None, typer.Option(help="Source text, for traces without text.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Reference text, for traces without text.")] = None,
) -> None:
    """Score a trace again, without the model, and compare with what was recorded.

    Examples:

        whilst score runs/toy/evaluations/test.wait-3.jsonl.xz

        whilst score results/iwslt15.en-vi/multi-path/test.wait-3.jsonl.xz --source s.en --reference r.vi
    """
    from whilst.evaluation.record import rescore
    from whilst.evaluation.report_screen import print_scores

    print_scores(rescore(trace, source, reference))


app.command()(studies.analyse)
app.command()(studies.sufficiency)
app.command()(studies.paper)
app.command()(deploy.export)
app.command()(deploy.bundle)
bench.command("train")(benches.bench_train)
bench.command("losses")(benches.bench_losses)
bench.command("decode")(benches.bench_decode)
bench.command("growth")(benches.bench_growth)
bench.command("limits")(benches.bench_limits)
bench.command("engine")(deploy.bench_engine)
bench.command("serve")(streams.bench_serve)


@app.command()
def report(
    evaluations: Annotated[list[Path], typer.Argument(help="Records, or folders of them.", metavar="PATH...")],
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("report"),
    pair: Annotated[str | None, typer.Option(help="Such as iwslt15.en-vi, if there are several.")] = None,
    split: Annotated[str, typer.Option(help="Text that was evaluated: test or valid.")] = "test",
) -> None:
    """Draw the quality/latency curve and the table of any number of evaluations, beside the paper's numbers.

    Examples:

        whilst report runs/toy/evaluations --out runs/toy/report

        whilst report results/iwslt15.en-vi --out results/iwslt15.en-vi

        whilst report runs/toy/evaluations --split valid --out runs/toy/report.valid
    """
    from whilst.core.console import notes
    from whilst.evaluation.record import read_records
    from whilst.evaluation.report import report, select
    from whilst.evaluation.report_screen import print_comparisons, print_table

    records = read_records(evaluations)
    written = report(records, out, pair, split)
    chosen = select(records, pair, split)
    print_table(chosen)
    print_comparisons(chosen)
    notes.print(f"{out}: {', '.join(path.name for path in written)}")


app.command()(streams.demo)
app.command()(streams.flicker)
app.command()(studies.toy)


USAGE: Any = typer.BadParameter.__bases__[0]  # what typer raises for words it cannot make sense of


def speak_any_language(stream: TextIO) -> None:
    """Translations have letters that a machine's own encoding may lack: files and pipes get UTF-8, and a terminal
    that cannot show one a question mark."""
    if not isinstance(stream, io.TextIOWrapper):
        return
    if stream.isatty():
        stream.reconfigure(errors="replace")
    else:
        stream.reconfigure(encoding="utf-8")


def main() -> None:
    """Run a command; a person's mistake is one line and exit code 2.

    Ctrl-C (exit code 130) and a reader that has left, as in `whilst … | head`, are typer's: both end quietly.
    """
    for stream in (sys.stdout, sys.stderr):
        speak_any_language(stream)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as under nohup
        signal.signal(signal.SIGINT, interrupt_handler)
    try:
        with naming_extras():
            code = app(standalone_mode=False)
    except (UserError, OSError) as error:  # OSError: a full disk, a folder that may not be written to
        print(f"whilst: {error}", file=sys.stderr)
        code = 2
    except USAGE as error:
        if str(error):  # without a word typer has shown the help
            print(f"whilst: {error.format_message()} (--help says more)", file=sys.stderr)
        code = 2
    sys.exit(code)
