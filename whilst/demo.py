"""The demo: the whole way from nothing to a curve on the toy corpus, and where everything lies afterwards.

What takes time is imported where it is used: a second run only shows what the first one made.
"""

import json
from pathlib import Path

from rich.text import Text

from whilst.config import load_recipe, to_table
from whilst.console import console, notes
from whilst.files import read_json, read_text, write_json, writing_text
from whilst.scoring import read_records
from whilst.settings import Recipe

RECIPE = Path(__file__).with_name("demo.toml")
SHOWN = 3  # sentences
SHOWN_POLICY = "wait-3"


def demo() -> None:
    recipe = load_recipe(RECIPE, [])
    run = Path(recipe.run)
    stamp = run / "demo.json"
    if not stamp.is_file() or read_json(stamp) != _stamp(recipe):
        _make(recipe, run)
        write_json(stamp, _stamp(recipe))
    _show(recipe, run)


def _stamp(recipe: Recipe) -> dict[str, object]:
    table: dict[str, object] = json.loads(json.dumps(to_table(recipe)))
    return table


def _make(recipe: Recipe, run: Path) -> None:
    from whilst.evaluate import evaluate_run
    from whilst.prepare import prepare
    from whilst.processes import pick_device
    from whilst.report import report
    from whilst.train import train

    notes.rule("1  toy corpus")
    prepare(recipe.data, overwrite=True)
    notes.rule("2  training (multi-path)")
    train(recipe, pick_device("cpu"))
    notes.rule("3  evaluating")
    records = evaluate_run(run, [], None, True, [], "cpu")
    report(records, run / "report")
    with writing_text(run / "sentences.txt") as file:
        file.write(_sentences(recipe, run))


def _sentences(recipe: Recipe, run: Path) -> str:
    """The first sentences of the test set as they were read and written."""
    import torch

    from whilst.checkpoint import load_run
    from whilst.dataset import Dataset
    from whilst.evaluate import translate_lines
    from whilst.policy import policy
    from whilst.translate import walk

    trained = load_run(run, torch.device("cpu"))
    lines = Dataset.open(Path(recipe.data.dataset)).text("test")[0][:SHOWN]
    outputs = translate_lines(trained, lines, policy(SHOWN_POLICY), recipe.evaluate)
    return "\n".join(walk(trained, *item, width=80).plain for item in zip(lines, outputs, strict=True))


def _show(recipe: Recipe, run: Path) -> None:
    from whilst.report import print_table, select

    notes.rule(f"{SHOWN} sentences under {SHOWN_POLICY}, word by word")
    for line in read_text(run / "sentences.txt").splitlines():
        console.print(Text(line, style="bold green" if line.startswith("WRITE") else "cyan"), soft_wrap=True)
    notes.rule("quality and latency")
    print_table(select(read_records([run / "evaluations"]), None))
    corpus = f"{recipe.data.dataset}-{recipe.data.toy_pairs}-{recipe.data.toy_seed}"
    console.print(
        f"corpus, dataset     {corpus}/, {recipe.data.dataset}/\n"
        f"model               {run}/model.safetensors\n"
        f"traces and scores   {run}/evaluations/\n"
        f"table and curve     {run}/report/report.md, curve.png, curve.svg\n"
        "settings            recipes/toy.toml\n"
        f"translate yourself  .venv/bin/whilst translate {run} {corpus}/test.src --show",
        markup=False,
        soft_wrap=True,
    )
