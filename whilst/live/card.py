"""The card of a model that comes with the package (README.md, card.json), and the table of `whilst models`.

`whilst card` evaluates the model on the test sets of its dataset and on the sentences of checks.py, translating as
`whilst live` does. In README.md it replaces the text between two marks; the other text is written by hand.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from whilst.core.config import override, read_recipe
from whilst.core.console import console
from whilst.core.errors import UserError
from whilst.core.files import MODELS, find_model, models_of_package, read_json, write_json, write_text
from whilst.core.policy_spec import LATENCIES
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.evaluation.tables import NONE, Grid, figure
from whilst.evaluation.trace import write_trace
from whilst.live.checks import Finding, count_mistakes, find_mistakes, require_checks
from whilst.live.loading import Model, ModelOptions, open_model
from whilst.model.run_folder import choose_policy

TABLE, PROSE = "card.json", "README.md"
BEGIN, END = "<!-- written by whilst card -->", "<!-- end of what whilst card writes -->"
SCORES = ("sacrebleu", "chrf", "al_word", "laal", "dal")
HEADINGS = "text", "latency", "policy", "sacreBLEU", "chrF", "AL", "LAAL", "DAL"
EXAMPLES = 3  # shown of each mistake


def write_card(name: str, licence: str, overrides: Sequence[str], out: Path | None) -> None:
    """Measure a model and write its card into its folder; with `out`, also write the traces there."""
    folder = find_model(name)
    model = open_model(ModelOptions(name, engine="onnx"))
    require_checks(model)
    dataset = Dataset.open(Path(override(model.recipe, list(overrides)).data.dataset))
    dataset.require_languages("data.dataset", folder, model.recipe.data)
    old = read_json(folder / TABLE) if (folder / TABLE).is_file() else {}
    findings = find_mistakes(model, LATENCIES)
    table = {
        "licence": licence or old.get("licence", ""),
        "latencies": model.latencies,
        "scores": measure(model, dataset, out),
        "mistakes": {
            mistake: {
                "of": len(next(iter(row.values()))),
                **{latency: sum(wrong) for latency, wrong in row.items()},
            }
            for mistake, row in count_mistakes(findings).items()
        },
    }
    write_json(folder / TABLE, table)
    prose = (folder / PROSE).read_text(encoding="utf-8") if (folder / PROSE).is_file() else f"# {folder.name}\n"
    write_text(folder / PROSE, with_section(prose, section(table, findings)))
    console.print(score_table(table).to_terminal())


def measure(model: Model, dataset: Dataset, out: Path | None) -> dict[str, Any]:
    """The scores on each test set of the dataset at low, medium and high."""
    from whilst.evaluation.metrics import score  # needs the extra `train`

    results: dict[str, Any] = {}
    for split in dataset.manifest["splits"]:
        if split in ("train", "valid"):
            continue
        sources, references = dataset.text(split)
        row: dict[str, Any] = {"sentences": len(sources)}
        for latency in LATENCIES:
            translated = model.translate(sources, latency, references)
            if out is not None:
                write_trace(out / f"{split}.{latency}.jsonl.xz", translated, with_text=False)
            scores = score(translated)
            row[latency] = {name: scores.to_table()[name] for name in SCORES}
            row["signature"] = scores.signatures.get("sacrebleu", "")
        results[name_of(split, model.recipe)] = row
    return results


def name_of(split: str, recipe: Recipe) -> str:
    """The name of a test set in the card: for the split "test" that of its file, such as tst2013."""
    return Path(recipe.data.test[0]).name.split(".")[0] if split == "test" and recipe.data.test else split


def score_table(table: dict[str, Any]) -> Grid:
    rows = []
    for text, row in table["scores"].items():
        for latency in LATENCIES:
            figures = (figure(row[latency][name]) for name in SCORES)
            rows.append([text, latency, table["latencies"][latency], *figures])
    return Grid(HEADINGS, rows, texts=3)


def section(table: dict[str, Any], findings: Sequence[Finding]) -> str:
    """The card's scores, mistakes and examples; these are of medium, or of another latency if medium has none."""
    mistakes = [
        [mistake, *(str(counts[column]) for column in ("of", *LATENCIES))]
        for mistake, counts in table["mistakes"].items()
    ]
    examples: list[list[str]] = []
    for mistake in table["mistakes"]:
        wrong = [finding for finding in findings if finding.mistake == mistake and finding.is_wrong]
        latencies = {finding.latency for finding in wrong}
        shown = next((latency for latency in ("medium", "low", "high") if latency in latencies), "")
        chosen = [finding for finding in wrong if finding.latency == shown][:EXAMPLES]
        cells = ([mistake, finding.latency, finding.source, finding.translation] for finding in chosen)
        examples += [[cell.replace("|", "\\|") for cell in row] for row in cells]
    sizes = ", ".join(f"{text} {row['sentences']:,}" for text, row in table["scores"].items())
    signature = next((row["signature"] for row in table["scores"].values()), "")
    return f"""## Scores

By the CPU engine, 8 bits, one sentence at a time, as `whilst live` translates. AL, LAAL and DAL count words, as
SimulEval does. sacreBLEU: {signature}. Sentences: {sizes}.

{score_table(table).to_markdown()}

## Where it fails

Mistakes in sentences of our own that can be seen without a reference (`whilst bench checks`):

{Grid(("mistake", "of", *LATENCIES), mistakes).to_markdown()}

{Grid(("mistake", "latency", "source", "translation"), examples, texts=4).to_markdown() if examples else "None."}
"""


def with_section(prose: str, text: str) -> str:
    """The card with `text` between its marks, or at its end if it has none."""
    before, begin, rest = prose.partition(BEGIN)
    after = rest.partition(END)[2] if begin else "\n"
    return f"{before.rstrip()}\n\n{BEGIN}\n{text}{END}{after}"


def list_models() -> Table:
    """The models of the package, with the sacreBLEU scores of their cards at medium."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("model", "translates", "size", "low, medium, high", "sacreBLEU at medium", "licence"):
        table.add_column(heading, no_wrap=heading in ("model", "size"))
    for name in models_of_package():
        folder = MODELS / name
        recipe = read_recipe(folder)
        card = read_json(folder / TABLE) if (folder / TABLE).is_file() else {}
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        policies = (str(choose_policy(folder, latency)[1]) for latency in LATENCIES)
        tests = card.get("scores", {})
        scores = (f"{text} {figure(row['medium']['sacrebleu'], 1)}" for text, row in tests.items())
        table.add_row(
            name,
            f"{recipe.data.source} to {recipe.data.target}",
            f"{size / 1e6:.0f} MB",
            ", ".join(policies),
            ", ".join(scores) or NONE,
            escape(card.get("licence") or NONE),
        )
    if not table.rows:
        raise UserError("the package contains no models; train one on your own text, starting with `whilst new`")
    return table
