"""The whole way from nothing to a curve on the toy corpus, and where everything lies afterwards.

What takes time is imported where it is used: a second run only shows what the first one made.
"""

import json
from itertools import accumulate
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from whilst.core.config import load_recipe, to_table
from whilst.core.console import console, notes
from whilst.core.files import read_json, read_text, write_json, writing_text
from whilst.core.policy_spec import PolicySpec, agent_policies, oracle_policies
from whilst.core.settings import Recipe
from whilst.evaluation.record import Record, read_records
from whilst.evaluation.trace import read_trace

RECIPE = Path(__file__).with_name("walkthrough.toml")
SHOWN = 3  # sentences


def walk_through() -> None:
    recipe = load_recipe(RECIPE, [])
    run = Path(recipe.run)
    stamp = run / "walkthrough.json"
    if not stamp.is_file() or read_json(stamp) != _stamp(recipe):
        _make(recipe, run)
        write_json(stamp, _stamp(recipe))
    _show(recipe, run)


def _stamp(recipe: Recipe) -> dict[str, object]:
    table: dict[str, object] = json.loads(json.dumps(to_table(recipe)))
    return table


def _policies(recipe: Recipe) -> list[PolicySpec]:
    """What the fine-tuned model is evaluated under."""
    intervals = recipe.search.intervals
    return [*agent_policies(intervals, "search"), *oracle_policies(intervals)]


def _corpus(recipe: Recipe) -> Path:
    return Path(f"{recipe.data.dataset}-{recipe.data.toy_pairs}-{recipe.data.toy_seed}")


def _make(recipe: Recipe, run: Path) -> None:
    from whilst.core.distributed import pick_device
    from whilst.data.prepare import prepare
    from whilst.evaluation.evaluate import evaluate_run
    from whilst.evaluation.report import report
    from whilst.training.train import train

    notes.rule("1  toy corpus")
    prepare(recipe.data, overwrite=True)
    notes.rule("2  training: multi-path, search, agent")
    train(recipe, pick_device("cpu"))
    notes.rule("3  evaluating")
    records = evaluate_run(run, [], None, True, [], "cpu")
    records += evaluate_run(run / "search", list(map(str, _policies(recipe))), None, True, [], "cpu")
    report(records, run / "report")
    with writing_text(run / "sentences.txt") as file:
        file.write(_sentences(recipe, run))


def _sentences(recipe: Recipe, run: Path) -> str:
    """The first sentences of the test set as the agent read and wrote them."""
    import torch

    from whilst.evaluation.evaluate import choose, translate_lines
    from whilst.evaluation.translate import walk
    from whilst.model.checkpoint import load_run

    trained = load_run(run / "search", torch.device("cpu"))
    lines = read_text(_corpus(recipe) / "test.src").splitlines()[:SHOWN]
    policy = choose(_policies(recipe)[0], trained, recipe.evaluate, None)
    outputs = translate_lines(trained, lines, policy, recipe.evaluate)
    return "\n".join(walk(trained, *item, width=80).plain for item in zip(lines, outputs, strict=True))


def _show(recipe: Recipe, run: Path) -> None:
    from whilst.evaluation.evaluate import trace_path
    from whilst.evaluation.report import select
    from whilst.evaluation.report_screen import print_table

    plain = list(map(PolicySpec.parse, recipe.evaluate.policies))
    folders = {run / "evaluations": plain, run / "search/evaluations": _policies(recipe)}
    traces = [trace_path(folder, name, recipe.evaluate) for folder, names in folders.items() for name in names]
    places = {trace.name: trace for trace in traces}
    records = select(read_records(traces), None)
    notes.rule(f"{SHOWN} sentences under {_policies(recipe)[0]}, word by word")
    for line in read_text(run / "sentences.txt").splitlines():
        console.print(Text(line, style="bold green" if line.startswith("WRITE") else "cyan"), soft_wrap=True)
    notes.rule("quality and latency")
    print_table(records)
    notes.rule("reads against the perfect policy's, in sentences translated right")
    console.print(closeness(records, places, _corpus(recipe)))
    console.print(
        f"corpus, dataset     {_corpus(recipe)}/, {recipe.data.dataset}/\n"
        f"models              {run}/ (multi-path), {run}/search/ (fine-tuned, with agent/)\n"
        f"traces and scores   {run}/evaluations/, {run}/search/evaluations/\n"
        f"table and curve     {run}/report/report.md, curve.png, curve.svg\n"
        "settings            recipes/toy/bs-simt.toml\n"
        f"translate yourself\n  .venv/bin/whilst translate {run}/search {_corpus(recipe)}/test.src"
        f" --policy {_policies(recipe)[0]} --show",
        markup=False,
        soft_wrap=True,
    )


def closeness(records: list[Record], traces: dict[str, Path], corpus: Path) -> Table:
    """How the reads of each policy compare with those that the grammar makes necessary."""
    lines = read_text(corpus / "test.needs").splitlines()
    perfect = [list(accumulate(map(int, line.split()), max)) for line in lines]
    table = Table("system", "policy", "right", "read enough", "just enough", "words too many", box=box.SIMPLE)
    for column in table.columns[2:]:
        column.justify = "right"
    for record in records:
        right = [s for s in read_trace(traces[record.trace]) if s.prediction == s.reference]
        pairs = [pair for s in right for pair in zip(s.reads, perfect[s.index], strict=True)]
        count = max(1, len(pairs))
        table.add_row(
            record.system,
            record.policy,
            f"{len(right) / len(perfect):.0%}",
            f"{sum(read >= needed for read, needed in pairs) / count:.0%}",
            f"{sum(read == needed for read, needed in pairs) / count:.0%}",
            f"{sum(read - needed for read, needed in pairs) / count:.2f}",
        )
    return table
