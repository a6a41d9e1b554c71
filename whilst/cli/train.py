"""Commands: new, prepare, train, calibrate, export, bundle, card."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from whilst.cli.options import Device, PolicyFile, Run, Set, as_folder, folder_of, register_policies


def new(
    folder: Annotated[Path, typer.Argument(help="Folder with aligned text.", metavar="FOLDER")],
    source: Annotated[
        Path | None, typer.Option("--source", help="Source side of the training text.", metavar="FILE")
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--target", help="Target side of the training text.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Recipe to write; run and dataset get its name. Default: FOLDER.toml.", metavar="FILE"
        ),
    ] = None,
    hours: Annotated[float, typer.Option("--hours", help="Longest time that training may take.", min=0.01)] = 1.0,
    device: Device = "auto",
) -> None:
    """Write a recipe that suits your own text and this machine.

    The folder has two aligned files such as train.de and train.en, or train.tsv with source and target; plain, .gz
    or .xz. Files named valid (or dev) and test are used too; without them, training pairs are held out. A few
    updates are timed to estimate how long the training will take.

    \b
    Examples:
        whilst new texts
        whilst new texts --source texts/talks.en --target texts/talks.de
        whilst new texts --hours 8 --out large.toml
    """
    from whilst.core.distributed import pick_device
    from whilst.training.new_recipe import new

    new(folder, source, target, out or Path(f"{folder.resolve().name}.toml"), hours, pick_device(device))


def prepare(
    recipe: Annotated[Path, typer.Argument(help="TOML file such as recipes/toy/bs-simt.toml.", metavar="RECIPE")],
    set_: Set = [],  # noqa: B006
    like: Annotated[str, typer.Option("--like", help="Use the units of this run (data.like).", metavar="RUN")] = "",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a dataset that was made with other settings.")
    ] = False,
) -> None:
    """Turn parallel text into a dataset folder.

    The text is cleaned and divided into units, which are learnt from it or given by files.

    \b
    Examples:
        whilst prepare recipes/toy/bs-simt.toml
        whilst prepare recipes/iwslt15.en-vi/bs-simt.toml --set data.folder=~/corpora/iwslt15.en-vi
        whilst prepare mine.toml --set 'data.train=["train.de.gz", "train.en.gz"]' --set data.units=sentencepiece
        whilst prepare medical.toml --like runs/general
    """
    from whilst.core.config import load_recipe
    from whilst.data.prepare import prepare

    prepare(load_recipe(recipe, [*set_, *([f"data.like={like}"] if like else [])]).data, overwrite)


def train(
    recipes: Annotated[
        list[Path], typer.Argument(help="TOML files such as recipes/toy/bs-simt.toml.", metavar="RECIPE")
    ],
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    restart: Annotated[bool, typer.Option("--restart", help="Train from the beginning, do not resume.")] = False,
    text: Annotated[bool, typer.Option("--text/--no-text", help="Keep source and reference in the traces.")] = True,
    only: Annotated[
        list[str],
        typer.Option("--only", help="Only these runs of a sweep, such as 0.4, 3-7/1 or '3-7/*'. May be repeated."),
    ] = [],  # noqa: B006
    policy_file: PolicyFile = [],  # noqa: B006
) -> None:
    """Train a recipe, or resume where training was stopped.

    The stages are the translator (RUN), its fine-tuning on searched reads (RUN/search), the agent that learns
    these reads (RUN/search/agent), and the evaluation of all of them (RUN/evaluations, RUN/report). Several recipes
    are trained one after the other, each after the recipes that it starts from. Finished stages are not trained
    again, and policies that were evaluated with the same weights and settings are not evaluated again.

    \b
    Examples:
        whilst train recipes/toy/bs-simt.toml
        whilst train recipes/iwslt15.en-vi/bs-simt.toml --set train.steps=500 --set run=runs/short
        whilst train recipes/german.de-en/bs-simt.toml recipes/german.de-en/ablations/*.toml --no-text
        whilst train recipes/iwslt15.en-vi/mma.toml --only 0.2 --only 0.4
        torchrun --nproc-per-node 2 -m whilst train recipes/iwslt15.en-vi/bs-simt.toml --set train.accumulate=2
    """
    from whilst.core.config import load_sweep

    register_policies(policy_file)
    loaded = [run for recipe in recipes for run in load_sweep(recipe, set_, only)]
    from whilst.core.distributed import pick_device  # imports PyTorch, once the recipe is known to be valid
    from whilst.training.train import train_all

    train_all(loaded, pick_device(device), restart, text)


def calibrate(
    run: Run,
    sentences: Annotated[
        int, typer.Option("--sentences", help="Sentences of the development set to use; 0: all.", min=0)
    ] = 500,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Measure the lag of the agent on the development set.

    Afterwards `--lag 3` of `live`, `listen`, `translate` and `evaluate`, and the policy lag-3 anywhere, choose a
    policy that is 3 words behind the source. In every interval the agent is measured at several thresholds, and at
    the one with the AL of the searched reads. The table is written to lags.json beside the agent's weights.

    \b
    Examples:
        whilst calibrate runs/toy
        whilst calibrate en-vi --sentences 0 --set data.dataset=data/live.en-vi
    """
    from whilst.core.console import notes
    from whilst.evaluation.calibrate import calibrate_run

    notes.print(str(calibrate_run(folder_of(run), sentences, set_, device)))


def export(
    run: Run,
    out: Annotated[
        Path, typer.Argument(help="New folder, or that of an earlier export.", callback=as_folder, metavar="OUT")
    ],
    precision: Annotated[
        Literal["fp32", "int8"] | None, typer.Option("--precision", help="fp32 or int8. Default: both.")
    ] = None,
) -> None:
    """Export a run to ONNX, for fast translation on a CPU without PyTorch.

    \b
    Examples:
        whilst export runs/toy/search engines/toy
        whilst export runs/iwslt15.en-vi engines/en-vi --precision int8
        whilst export en-vi engines/en-vi
    """
    from whilst.core.console import notes
    from whilst.engine.export import export
    from whilst.engine.runtime import PRECISIONS
    from whilst.model.run_folder import choose_policy

    run = folder_of(run)
    export(run, out, [precision] if precision else PRECISIONS)
    notes.print(f"{out}: {folder_size(out)}")
    if (tuned := choose_policy(run, "medium")[0]) != run:
        notes.print(f"exported without an agent; export {tuned}, which has one, for low, medium and high")


def bundle(
    run: Run,
    out: Annotated[
        Path, typer.Argument(help="New folder, or that of an earlier bundle.", callback=as_folder, metavar="OUT")
    ],
    parts: Annotated[
        Literal["both", "weights", "engine"],
        typer.Option(
            "--parts",
            help="weights: in half precision, for PyTorch; engine: in 8 bits, for CPUs and, with the package onnx,"
            " for PyTorch.",
        ),
    ] = "both",
) -> None:
    """Pack a run for distribution.

    The folder has weights in half precision, the agent, checksums, a model card and the exported CPU engine. The
    models of the package have only the weights of the engine.

    \b
    Examples:
        whilst bundle runs/toy models/toy
        whilst bundle runs/en-vi whilst/models/en-vi --parts engine
    """
    from whilst.core.console import notes
    from whilst.engine.export import bundle

    bundle(folder_of(run), out, parts)
    notes.print(f"{out}: {folder_size(out)}")


def card(
    model: Annotated[str, typer.Argument(help="A bundle, or the name of a model of the package.", metavar="MODEL")],
    licence: Annotated[
        str, typer.Option("--licence", help="Permitted use, in a few words. Default: as it is in the card.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Also write the traces to this folder.", callback=as_folder),
    ] = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Measure a bundle and write its model card.

    The bundle is scored on each test set of its dataset (test, and those of data.apart) and on the sentences of
    `whilst bench checks`, at low, medium and high latency. The figures and examples of mistakes are written to
    README.md, whose other text stays, and to card.json, which `whilst models` reads.

    \b
    Examples:
        whilst card models/mine --licence "non-commercial"
        whilst card en-vi --set data.dataset=data/live.en-vi
    """
    from whilst.live.card import write_card

    write_card(model, licence, set_, out)


def folder_size(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:,.1f} MB"
