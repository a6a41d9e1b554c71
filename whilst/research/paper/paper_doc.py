"""The `paper` command: all tables and figures of the BS-SiMT paper in its order, its numbers and ours side by side.

Reads the kept results and the recipes, writes paper.md, paper.html and the figures. No number in it is typed in.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.files import writing_text
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import over_seeds, to_curves
from whilst.evaluation.record import Record, records_in
from whilst.research.paper.ablations import ABLATED, ABLATIONS, ablation, oracle_table
from whilst.research.paper.document import Block, Heading, Items, Table, Text, to_html, to_markdown
from whilst.research.paper.provenance import link, read_recipes
from whilst.research.paper.shelf import TAUGHT, TRIED, Shelf
from whilst.research.paper.studies import agent, analysis, example, hyperparameters, read_studies, sufficiency
from whilst.research.paper.tables import curves, main_table, others, summary

TITLE = "BS-SiMT: the paper's tables and figures, and ours"
TASKS = dict(zip(("Table 8", "Table 9", "Table 10", "Table 11"), paper.pairs(), strict=True))
ALTERNATE = "**not on the paper's training text**"


def write_paper(results: Path, recipes: Path, out: Path) -> list[Path]:
    """Write the document and its figures into `out`; returns what was written."""
    if not results.is_dir():
        raise UserError(f"{results}: no such folder; name the one that holds the kept evaluations")
    out.mkdir(parents=True, exist_ok=True)
    blocks = compose(results, recipes, out)
    written = {out / "paper.md": to_markdown(blocks), out / "paper.html": to_html(TITLE, blocks)}
    for path, text in written.items():
        with writing_text(path) as file:
            file.write(text)
    return [*written, *sorted(out.glob("curve.*.svg"))]


def compose(results: Path, recipes: Path, out: Path) -> list[Block]:
    """The whole document."""
    kept = {path: record for path, record in records_in(results).items() if out not in path.parents}
    parts = [[record for path, record in kept.items() if (TRIED in path.parts) is side] for side in (False, True)]
    both = [to_curves(over_seeds(part)) for part in parts]
    found, twice = [curve for curves, _ in both for curve in curves], [one for _, more in both for one in more]
    shelf = Shelf(found, read_recipes(recipes), out)
    contents: dict[str, str] = paper.facts()["contents"]
    sections = {name: _section(name, results, shelf) for name in contents}
    body: list[Block] = []
    for name, title in contents.items():
        body += [Heading(2, f"{name}: {title}"), *sections[name]]
    body += [Heading(2, "Measured, and in no table of the paper"), *others(shelf), *_twice(twice, out)]
    headings = [block for block in body if isinstance(block, Heading) and block.level == 2]
    links = Items([f"[{heading.text}](#{heading.anchor})" for heading in headings])
    return [*_front(shelf, len(kept)), links, *body]


def _front(shelf: Shelf, records: int) -> list[Block]:
    """What stands before the first section."""
    tasks = [task for task in paper.pairs() if any(paper.task(family.pair) == task for family in shelf.families)]
    return [
        Heading(1, TITLE),
        Text(
            f"Made by `whilst paper` from {records} records; {len(tasks)} of the paper's {len(paper.pairs())} tasks"
            " have some."
            " Every number of ours is that of a record, with its trace beside it; `whilst score` scores it again."
        ),
        Items(
            [
                "AL: model units, rate by the hypothesis's length. BLEU: tokenised, lower-cased, greedy. Both are"
                " the paper's conventions.",
                "Unknown words: the paper writes `<unk>`. Ours write a name of the source in its place where their"
                " details say so; what that gives is shown by the rows `unknown-keep` at the end.",
                f"Our training text, {TAUGHT}: each source twice, with its reference and with what a model that"
                " reads all of it says. The paper has no such teacher.",
                "Difference: at equal AL. Our BLEU is read off straight lines between our points at the AL that the"
                " paper prints; — where that AL lies outside of them. Full-sentence models compare as they stand.",
                "Over the diagonal: our point above our control at equal AL. The control, which the paper has not,"
                " is our multi-path model under diagonal-k: its reads rise at an even pace for any words.",
                "Several seeds: mean ± standard deviation (n - 1). One seed has no ±.",
                f"Where our training text is **other**, the test set is the paper's but the result is {ALTERNATE}.",
            ]
        ),
        Table(summary(shelf)),
    ]


def _section(name: str, results: Path, shelf: Shelf) -> Sequence[Block]:
    """The blocks of one table or figure of the paper."""
    if name in TASKS:
        return main_table(TASKS[name], shelf)
    if name in ABLATIONS:
        about = f"The paper: {ABLATED}, a model for each interval. Over default: at equal AL, on the same text."
        return [Text(about), *ablation(name, shelf)]
    makers: dict[str, Callable[[], Sequence[Block]]] = {
        "Figure 1": lambda: analysis(read_studies(results)[0], shelf),
        "Figure 2": example,
        "Figure 3": lambda: agent(shelf),
        "Figure 4": lambda: _figure(shelf),
        "Figure 5": lambda: sufficiency(read_studies(results)[1], shelf),
        "Table 3": lambda: [
            Text("Gap: BLEU on the oracle's curve at the agent's AL, less the agent's."),
            *oracle_table(shelf),
        ],
        "Table 7": lambda: hyperparameters(shelf),
    }
    return makers[name]()


def _figure(shelf: Shelf) -> list[Block]:
    blocks: list[Block] = []
    for name, task in TASKS.items():
        texts = sorted({family.pair for family in shelf.families if paper.task(family.pair) == task} - {task})
        blocks += [Heading(3, f"{task}"), curves(task, shelf), Text(f"Numbers: {name}.")]
        if texts:
            blocks.append(Text(f"Ours on {', '.join(texts)}: {ALTERNATE}."))
    return blocks


def _twice(twice: Sequence[Record], out: Path) -> list[Block]:
    if not twice:
        return []
    items = [f"[{one.path.as_posix()}]({link(one.path, out)})" for one in twice if one.path]
    return [Text("Left out, since another record has the same recipe, policy and seeds:"), Items(items)]
