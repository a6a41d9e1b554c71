"""The commands that study a trained model rather than use it; __main__ adds them to the others.

As there, everything heavy is imported inside: a command that only prints its help must not wait for torch.
"""

from pathlib import Path
from typing import Annotated

import typer

from whilst.cli.options import Device, Policies, Run, Set
from whilst.core.errors import UserError

RECIPES = Path("recipes")


def analyse(
    run: Run,
    split: Annotated[str | None, typer.Option(help="Text: test, valid or train; default: the recipe's.")] = None,
    length: Annotated[int | None, typer.Option(help="Target units of the bucket; default: the commonest.")] = None,
    points: Annotated[int, typer.Option(help="Shares of the source to try.", min=1)] = 20,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the figure; default: RUN.")] = None,
    device: Device = "auto",
) -> None:
    """Draw how the probability of the reference's tokens rises with the share of the source that was read.

    Examples:

        whilst analyse runs/toy

        whilst analyse runs/iwslt14.de-en --split test --length 20
    """
    from whilst.core.console import notes
    from whilst.research.analyse import analyse_run

    analyse_run(run, split, length, points, out, device)
    notes.print(f"{out or run}: analysis.json, analysis.png, analysis.svg")


def paper(
    results: Annotated[Path, typer.Argument(help="Kept evaluations.", metavar="RESULTS")] = Path("results"),
    recipes: Annotated[Path, typer.Option(help="Recipes that they were made with.")] = RECIPES,
    out: Annotated[Path | None, typer.Option(help="Folder for the document; default: RESULTS/paper.")] = None,
) -> None:
    """Write one document: every table and figure of the BS-SiMT paper, with its numbers and ours side by side.

    It says how each number was made, and of what was not run, what would run it. Markdown, and HTML in one file.

    Examples:

        whilst paper

        whilst paper results --out /tmp/paper
    """
    from whilst.core.console import notes
    from whilst.research.paper.paper_doc import write_paper

    if recipes != RECIPES and not recipes.is_dir():
        raise UserError(f"--recipes {recipes}: no such folder")
    folder = out or results / "paper"
    written = write_paper(results, recipes, folder)
    notes.print(f"{folder}: {', '.join(path.name for path in written)}")


def sufficiency(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained models.", metavar="RUN...")],
    source: Annotated[Path, typer.Option(help="Source text, one sentence a line.")],
    reference: Annotated[Path, typer.Option(help="Its translation.")],
    alignment: Annotated[Path, typer.Option(help="Links by words from 1: 9-8 is sure, 25p22 possible.")],
    policies: Policies = [],  # noqa: B006
    possible: Annotated[bool, typer.Option("--possible", help="Count possible links too.")] = False,
    reverse: Annotated[bool, typer.Option("--reverse", help="The links name the target first.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the table and the figure.")] = Path("sufficiency"),
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Measure how often the words that a word translates had been read when it was written, by gold alignments.

    Examples:

        whilst sufficiency runs/de-en --source test.de --reference test.en --alignment alignment.talp

        whilst sufficiency runs/en-de --source test.en --reference test.de --alignment alignment.talp --reverse
    """
    from whilst.core.console import notes
    from whilst.research.sufficiency import print_points, sufficiency

    files = source, reference, alignment
    print_points(sufficiency(runs, files, policies, possible, reverse, out, set_, device))
    notes.print(f"{out}: sufficiency.json, sufficiency.png, sufficiency.svg")


def toy() -> None:
    """The whole way on the toy corpus: prepare, train, evaluate, report, and three sentences word by word."""
    from whilst.cli.walkthrough import walk_through

    walk_through()
