"""The `paper` command: all tables and figures of the BS-SiMT paper in its order, its numbers beside ours."""

from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.files import writing_text
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import over_seeds, to_curves
from whilst.evaluation.record import records_in
from whilst.evaluation.report import FINE_TUNED
from whilst.research.paper import studies, tables
from whilst.research.paper.markdown import anchor, bullets, picture
from whilst.research.paper.systems import TEACHER, Collection

TITLE = "BS-SiMT: the paper's tables and figures, and ours"
TASKS = dict(zip(("Table 8", "Table 9", "Table 10", "Table 11"), paper.pairs(), strict=True))
OTHER_TEXT = "**not on the paper's training text**"
NOTES = (
    "AL: model units, rate by the hypothesis's length. BLEU: tokenised, lower-cased, greedy. Both are the paper's"
    " conventions.",
    "Unknown words: the paper writes `<unk>`. Ours are replaced by names of the source where their details say so;"
    " the rows `unknown-keep` at the end show the effect.",
    FINE_TUNED,
    f"Our training text, {TEACHER}: each source twice, with its reference and with the translation of a"
    " full-sentence model. The paper has no teacher.",
    "Difference: at equal AL. Our BLEU is read off straight lines between our points at the AL that the paper"
    " prints; — where that AL lies outside of them. Full-sentence models are compared without regard to AL.",
    "Over the diagonal: our point above our control at equal AL. The control, which the paper does not have, is our"
    " multi-path model under diagonal-k: its reads rise by J/I for each token.",
    "Several seeds: mean ± standard deviation (n - 1). One seed has no ±.",
    f"Where our training text is **other**, the test set is the paper's but the result is {OTHER_TEXT}.",
)


def write_paper(results: Path, out: Path) -> Path:
    """Write the document `out`/paper.md; returns its path."""
    if not results.is_dir():
        raise UserError(f"{results}: no such folder; name the one with the evaluations")
    with writing_text(out / "paper.md") as file:
        file.write(compose(results, out))
    return out / "paper.md"


def compose(results: Path, out: Path) -> str:
    records = records_in(results).values()
    ours = Collection(to_curves(over_seeds(records)), out)
    contents: dict[str, str] = paper.facts()["contents"]
    made = _sections(results, ours)
    sections = {f"{name}: {title}": made[name] for name, title in contents.items()}
    sections["Measured, and in no table of the paper"] = [tables.other_results(ours)]
    parts = [
        f"# {TITLE}",
        f"Made by `whilst paper` from {len(records)} records. Every number of ours is that of a record, whose trace"
        " `whilst score` scores again.",
        bullets(NOTES),
        tables.summary(ours),
        bullets([f"[{heading}](#{anchor(heading)})" for heading in sections]),
    ]
    for heading, section in sections.items():
        parts += [f"## {heading}", *section]
    return "\n\n".join(parts) + "\n"


def _sections(results: Path, ours: Collection) -> dict[str, list[str]]:
    """The tables and figures by the paper's number, such as Table 3."""
    about = f"The paper: {tables.ABLATED}, a model for each interval. Over default: at equal AL, on the same text."
    gap = "Gap: BLEU on the oracle's curve at the agent's AL, minus the agent's."
    search = "A drawing of the search for one sentence, without numbers. Any sentence can be drawn:"
    return {
        **{name: tables.main_table(task, ours) for name, task in TASKS.items()},
        **{name: [about, *tables.ablation(name, ours)] for name in tables.ABLATIONS},
        "Table 3": [gap, *tables.oracle_table(ours)],
        "Table 7": studies.hyperparameters(ours),
        "Figure 1": studies.analysis(results, ours),
        "Figure 2": [search, '```sh\nwhilst explain RUN "a source sentence" "its translation"\n```'],
        "Figure 3": studies.agent(ours),
        "Figure 4": _figure(results, ours),
        "Figure 5": studies.sufficiency(results, ours),
    }


def _figure(results: Path, ours: Collection) -> list[str]:
    """Figure 4: the figures of our reports."""
    parts = []
    for name, task in TASKS.items():
        pairs = sorted({curve.pair for curve in ours.curves if paper.task(curve.pair) == task})
        drawn = [picture(results / pair / "curve", f"BLEU against AL, {pair}", ours.folder) for pair in pairs]
        parts += [f"### {task}", *filter(None, drawn)]
        if not any(drawn):
            parts.append(f"Not drawn: `whilst report {results.name}/{(pairs or [task])[0]}` does.")
        parts.append(f"Numbers: {name}.")
        parts += [f"Ours on {pair}: {OTHER_TEXT}." for pair in pairs if pair != task]
    return parts
