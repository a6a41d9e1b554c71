"""Commands that study a trained model: explain, analyse, sufficiency, paper."""

from pathlib import Path
from typing import Annotated

import typer

from whilst.cli.options import Device, Policies, PolicyFile, Run, Set, as_folder, register_policies
from whilst.core.errors import UserError


def explain(
    run: Run,
    source: Annotated[str, typer.Argument(help="Source sentence, in quotes.", metavar="SOURCE")],
    target: Annotated[str | None, typer.Argument(help="Its translation. Default: that of the model.")] = None,
    latency: Annotated[
        int | None,
        typer.Option("--latency", help="First read of the search interval. Default: the first interval."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Picture: .png, .svg or .pdf.")] = Path("explain.png"),
    device: Device = "auto",
) -> None:
    """Draw what each read contributes to one sentence.

    The picture shows the probability of each target token after each number of reads, the search intervals, the
    reads that search found, and the path of the agent.

    \b
    Examples:
        whilst explain runs/toy/search "ros muhun hosus ronan son mor sotosun yun ."
        whilst explain runs/toy/search "kan musak ros ramak haran ." --latency 2 --out sentence.svg
    """
    from whilst.core.console import notes
    from whilst.core.distributed import pick_device
    from whilst.model.checkpoint import load_run
    from whilst.research.explain import draw, explain

    if out.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--out {out}: the name must end in .png, .svg or .pdf")
    trained = load_run(run, pick_device(device))
    first = trained.recipe.search.intervals[0][0] if latency is None else latency
    draw(explain(trained, source, target, first), out)
    notes.print(f"picture: {out}")


def analyse(
    run: Run,
    split: Annotated[
        str | None, typer.Option("--split", help="Text: test, valid or train. Default: that of the recipe.")
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", help="Target length to show. Default: the most frequent.")
    ] = None,
    points: Annotated[
        int, typer.Option("--points", help="Number of shares of the source to evaluate.", min=1, max=1000)
    ] = 20,
    past: Annotated[
        int | None,
        typer.Option("--past", help="K of wait-K, which earlier tokens follow. Default: the same share.", min=1),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the table and the figure. Default: RUN.", callback=as_folder),
    ] = None,
    device: Device = "auto",
) -> None:
    """Draw token probabilities over the share of the source that was read.

    \b
    Examples:
        whilst analyse runs/toy
        whilst analyse runs/iwslt14.de-en --split test --length 20 --past 5
    """
    from whilst.research.analyse import analyse_run

    analyse_run(run, split, length, points, past, out or run, device)


def sufficiency(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained models.", metavar="RUN…")],
    source: Annotated[Path, typer.Option("--source", help="Source text, one sentence per line.")],
    reference: Annotated[Path, typer.Option("--reference", help="Its translation.")],
    alignment: Annotated[
        Path, typer.Option("--alignment", help="Links of word numbers from 1: 9-8 sure, 25p22 possible.")
    ],
    policies: Policies = [],  # noqa: B006
    policy_file: PolicyFile = [],  # noqa: B006
    possible: Annotated[bool, typer.Option("--possible", help="Count possible links too.")] = False,
    reverse: Annotated[bool, typer.Option("--reverse", help="Links name the target word first.")] = False,
    sentences: Annotated[
        int | None,
        typer.Option("--sentences", help="Only this many sentences, chosen by checksum of their source.", min=1),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the table and the figure.", callback=as_folder)
    ] = Path("sufficiency"),
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Measure how often aligned source words were read in time.

    \b
    Examples:
        whilst sufficiency runs/de-en --source test.de --reference test.en --alignment alignment.talp
        whilst sufficiency runs/en-de --source test.en --reference test.de --alignment alignment.talp --reverse
        whilst sufficiency runs/en-vi --source a.en.xz --reference a.vi.xz --alignment links.xz --sentences 1000
    """
    from whilst.research.sufficiency import sufficiency

    register_policies(policy_file)
    files = source, reference, alignment
    sufficiency(runs, files, policies, possible, reverse, out, set_, device, sentences)


def paper(
    results: Annotated[Path, typer.Argument(help="Recorded evaluations.", metavar="RESULTS")] = Path("results"),
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the document. Default: RESULTS/paper.", callback=as_folder),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="First train and evaluate all systems of a pair.", metavar="PAIR")
    ] = None,
    only: Annotated[
        list[str],
        typer.Option(
            "--only", help="With --run: only these runs and those they need: mma, 'paper/*/1'. May be repeated."
        ),
    ] = [],  # noqa: B006
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", help="With --run: simultaneous runs on one device. 0: only collect finished runs.", min=0
        ),
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs, with estimated times.")] = False,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Write the paper's tables and figures beside ours.

    The document is Markdown and says how each number was made. With --run, every recipe that recipes/PAIR/plan.txt
    names is trained and evaluated first, and the evaluations are archived in RESULTS. After Ctrl-C, the same
    command continues; finished runs are not repeated. Each run has a log in runs/PAIR.plan.

    \b
    Examples:
        whilst paper
        whilst paper results --out /tmp/paper
        whilst paper --run en-vi --dry-run
        whilst paper --run en-vi --jobs 4 --set data.folder=corpora/iwslt15.en-vi
        whilst paper --run en-vi --only paper --only 'ladder/*/1'
    """
    from whilst.core.console import notes
    from whilst.research.paper import write_paper
    from whilst.research.reproduce import choose, find_plan, load_plan, print_plan, reproduce

    out = out or results / "paper"
    if run is None:
        if only or dry_run or set_:
            raise UserError("--only, --dry-run, --set: belong to --run PAIR")
        notes.print(str(write_paper(results, out)))
    elif dry_run:
        print_plan([chosen for chosen, _ in choose(load_plan(find_plan(run), set_), only)], results)
    else:
        notes.print(str(reproduce(run, results, out, set_, only, jobs, device)))
