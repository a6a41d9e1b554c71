"""The `paper` command: all tables and figures of the BS-SiMT paper in its order, its numbers beside ours.

Our numbers come from records and from studies: the JSON files of `whilst analyse` and `whilst sufficiency` anywhere
among the results.
"""

import itertools
import re
from pathlib import Path
from typing import Any

from whilst.core.errors import UserError
from whilst.core.files import read_json, write_text
from whilst.core.settings import Recipe
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import group_seeds, to_curves
from whilst.evaluation.paper_numbers import BASE, BEST, ORACLE
from whilst.evaluation.record import records_in
from whilst.evaluation.report import FINE_TUNED
from whilst.evaluation.tables import NONE, Grid, figure
from whilst.research import paper_tables as tables
from whilst.research.ladder import ladder
from whilst.research.paper_tables import TEACHER, Collection, bullets, details, link, training_text
from whilst.training.optim import preset_of

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
    "At the same point: our BLEU minus the paper's at the same k, interval or weight, whatever the AL of each."
    " Length: words that ours writes for each word of the references. Under the same reads, AL grows with the"
    " length of the output; the paper does not print lengths.",
    "As in the paper: the paper's recipe (`recipes/paper`) without a change of ours, with slope 1 as its text has"
    " it, or as the authors' code does it. Where the paper says nothing (updates, pre-norm, averaged weights), it"
    " has what ours has. It writes `<unk>`.",
    "Over the diagonal: our point above our control at equal AL. The control, which the paper does not have, is our"
    " multi-path model under diagonal-k: its reads rise by J/I for each token.",
    "Several seeds: mean ± standard deviation (n - 1). One seed has no ±.",
    f"Where our training text is **other**, the test set is the paper's but the result is {OTHER_TEXT}.",
)
LADDER = (
    "Each rung has one setting more of ours than the one before, the first one more than the paper's system with"
    " slope 1. BLEU at equal latency, on straight lines between the points of each seed: mean ± standard deviation;"
    " — where a seed has no points on both sides. Over the rung before: mean over the latencies at which both have"
    " a figure."
)
SHARES = (0.25, 0.5, 0.75, 1.0)
# Hyperparameters of ours that have no line in the paper's table.
ADDITIONAL = ("updates", "norm", "moving average of weights", "R-Drop", "longest path", "whole sources", "teacher")


def write_paper(results: Path, out: Path) -> Path:
    """Write the document `out`/paper.md; returns its path."""
    if not results.is_dir():
        raise UserError(f"{results}: no such folder; name the one with the evaluations")
    records = records_in(results).values()
    ours = Collection(to_curves(group_seeds(records)), out)
    contents: dict[str, str] = paper.facts()["contents"]
    made = _sections(results, ours)
    sections = {f"{name}: {title}": made[name] for name, title in contents.items()}
    sections |= _ladders(ours)
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
    write_text(out / "paper.md", "\n\n".join(parts) + "\n")
    return out / "paper.md"


def _sections(results: Path, ours: Collection) -> dict[str, list[str]]:
    """The tables and figures by the paper's number, such as Table 3."""
    about = f"The paper: {tables.ABLATED}, a model for each interval. Over default: at equal AL, on the same text."
    gap = "Gap: BLEU on the oracle's curve at the agent's AL, minus the agent's."
    search = "A drawing of the search for one sentence, without numbers. Ours are of real models; any can be drawn:"
    files = sorted(results.rglob("search.svg"))
    drawn = [picture(path.with_suffix(""), path.parent.name, ours.folder) for path in files]
    return {
        **{name: tables.main_table(task, ours) for name, task in TASKS.items()},
        **{name: [about, *tables.ablation(name, ours)] for name in tables.ABLATIONS},
        "Table 3": [gap, *tables.oracle_table(ours)],
        "Table 7": hyperparameters(ours),
        "Figure 1": analysis(results, ours),
        "Figure 2": [search, '```sh\nwhilst explain RUN "a source sentence" --out search.svg\n```', *drawn],
        "Figure 3": agent(ours),
        "Figure 4": _figure(results, ours),
        "Figure 5": sufficiency(results, ours),
    }


def _ladders(ours: Collection) -> dict[str, list[str]]:
    """The section on the rungs from the paper's system to ours, if some were measured."""
    pairs = dict.fromkeys(curve.pair for curve in ours.curves)
    parts = list(itertools.chain(*(ladder(ours.curves, pair, ours.folder) for pair in pairs)))
    if not parts:
        return {}
    parts += [ours.made(curve, curve.name) for curve in ours.curves if curve.system.is_between]
    return {"From the paper's system to ours": [LADDER, *parts]}


def _figure(results: Path, ours: Collection) -> list[str]:
    """Figure 4: the curves drawn by our reports."""
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


def picture(stem: Path, text: str, folder: Path) -> str:
    """A Markdown image of the .svg or .png of this name; empty if there is none."""
    files = [stem.with_name(stem.name + suffix) for suffix in (".svg", ".png")]
    return next((f"!{link(text, file, folder)}" for file in files if file.is_file()), "")


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def read_studies(results: Path, keys: set[str]) -> dict[Path, dict[str, Any]]:
    """The JSON files that have these keys."""
    files = {path: read_json(path) for path in sorted(results.rglob("*.json"))}
    return {path: table for path, table in files.items() if isinstance(table, dict) and keys <= table.keys()}


def analysis(results: Path, ours: Collection) -> list[str]:
    """Figure 1, of which the paper prints only the size of the bucket."""
    facts, studies = paper.facts()["analysis"], read_studies(results, {"shares", "quarters", "bucket"})
    parts = [
        f"The paper: a curve for each token of {facts['sentences']} targets of one length, {facts['task']}.",
        "Each token is given a share of the source, ceil(qJ) of its J tokens. The paper does not say what the"
        " tokens before it had read.",
    ]
    if not any(paper.task(study["pair"]) == facts["task"] for study in studies.values()):
        parts.append(f"Not run on {facts['task']}. `whilst analyse RUN` makes it.")
    for path, study in studies.items():
        bucket = study["bucket"]
        about = f"Ours, {study['pair']} {study['split']}, {study['system']}: {study['sentences']:,} sentences; "
        about += (
            f"the bucket has {bucket['sentences']:,} targets of {bucket['target_length']} units. The tokens before"
        )
        about += f" follow wait-{past}." if (past := study.get("past")) else " have read the same share."
        rows = []
        for name, values in (study["quarters"] | {"all": study["mean"]}).items():
            known = dict(zip(study["shares"], values, strict=True))
            rows.append([name, *(figure(known.get(share), 3) for share in SHARES)])
        grid = Grid(["target", *(f"{share:.0%} read" for share in SHARES)], rows)
        parts += _shown(path, study, about, grid, ours.folder)
    return parts


def sufficiency(results: Path, ours: Collection) -> list[str]:
    """Figure 5, of which the paper's text has one number."""
    facts = paper.facts()["sufficiency"]
    unsorted = read_studies(results, {"links", "points", "files"})
    # Studies of sure links, which the paper counts, before those with possible links.
    studies = dict(sorted(unsorted.items(), key=lambda item: len(item[1]["links"])))
    share, lowest = facts["oracle at low latency"], paper.curve(facts["task"], ORACLE)[0].label
    parts = [
        f"The paper ({facts['task']}, RWTH alignments): the oracle covers {share:.0%} of the aligned source at low"
        " latency, and is above wait-k and MMA. Its other figures are drawn, not printed."
    ]
    if facts["task"] not in {paper.task(point["pair"]) for study in studies.values() for point in study["points"]}:
        parts.append(f"Not run on {facts['task']}. `whilst sufficiency RUN…` makes it.")
    for path, study in studies.items():
        points = sorted(study["points"], key=lambda point: (point["system"], point["al"]))
        about = f"Ours, by {study['links']} links, {points[0]['sentences']:,} sentences."
        for point in points:
            is_oracle = point["policy"].startswith("oracle-") and point["label"] == lowest
            if is_oracle and paper.task(point["pair"]) == facts["task"]:
                part = point["sufficiency"]
                about += f" The oracle at {lowest}, the paper's lowest latency: {part:.1%} at AL {point['al']:.2f}"
                about += f" ({100 * (part - share):+.1f} percentage points)."
        labels = "pair", "system", "policy", "label"
        rows = [[*map(point.get, labels), figure(point["al"]), figure(point["sufficiency"], 3)] for point in points]
        headings = "pair", "system", "policy", "point", "AL along the reference", "sufficiency"
        parts += _shown(path, study, about, Grid(headings, rows, len(labels)), ours.folder)
    return parts


def _shown(path: Path, study: dict[str, Any], about: str, grid: Grid, folder: Path) -> list[str]:
    """The parts of the document on one study: text, figure, table and how it was made."""
    models = dict.fromkeys(f"`{item['model_sha256'][:12]}`" for item in study.get("points", [study]))
    lines = [
        f"figures: {link(path.name, path, folder)}",
        f"made with `{study['command']}`",
        f"machine: {study['device']}",
        f"weights: SHA-256 {', '.join(models)}",
        *(f"{name}: SHA-256 `{sha[:12]}`" for name, sha in study.get("files", {}).items()),
        f"torch {study['versions']['torch']}",
    ]
    parts = about, picture(path.with_suffix(""), about, folder), grid.to_markdown()
    return [*filter(None, parts), details("How it was made", bullets(lines))]


def agent(ours: Collection) -> list[str]:
    """Figure 3, a diagram of the agent: a table compares the settings."""
    theirs = paper.facts()["agent"]
    rows = [["the paper", NONE, theirs["kind"].lower(), theirs["hidden"], theirs["inputs"], "translation"]]
    for curve in ours.of_system(BEST):
        values = [str(curve.settings[f"agent.{name}"]) for name in ("kind", "hidden", "inputs", "reference")]
        rows.append([f"{curve.pair}, {curve.first.system}", training_text(curve), *values])
    headings = ("system", "our training text", "kind", "width", "inputs", "target tokens in training")
    about = "A diagram of the agent (`whilst/model/agent.py`). Its settings, from the records of our main systems:"
    return [about, Grid(headings, rows, len(headings)).to_markdown()]


def hyperparameters(ours: Collection) -> list[str]:
    """Table 7: ours are those of the multi-path models, which the others start from."""
    theirs, units = paper.facts()["hyperparameters"], paper.facts()["units"]
    headings = ["hyperparameter", "paper, En-Vi", "paper, De-En"]
    rows = [[name, *values] for name, values in theirs.items()]
    rows += [[name, NONE, NONE] for name in ADDITIONAL]
    for curve in ours.of_system(BASE):
        if (recipe := curve.first.first.recipe) is None:
            continue
        values = _named_as_in_paper(recipe)
        column = 2 if "de" in curve.pair.rpartition(".")[2].split("-") else 1
        headings.append(f"{curve.system if curve.system.rung else 'ours'}, {curve.pair}")
        for row in rows:
            value = values[row[0]]
            row.append(value if row[column] in (value, NONE) else f"**{value}**")
    return [
        Grid(headings, rows).to_markdown(),
        "Ours: multi-path, from the records; bold where it differs from the paper. The paper's table has no line"
        f" for {', '.join(ADDITIONAL)}.",
        f"Units: the paper has {' and '.join(f'{count} {name}' for name, count in units.items())} sub-words for"
        " De-En; the number of ours is in the manifest of each dataset.",
    ]


def _named_as_in_paper(recipe: Recipe) -> dict[str, str]:
    """Our hyperparameters by the names of the paper's table, and those of ADDITIONAL."""
    model, train, objective, preset = recipe.model, recipe.train, recipe.objective, preset_of(recipe.train)
    sides: dict[str, Any] = {}
    for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        sides |= {f"{side} layers": layers, f"{side} attention heads": model.heads}
        sides |= {f"{side} embed dim": model.width, f"{side} ffn embed dim": model.feed_forward}
    digits, _, power = f"{preset.lr:e}".partition("e")
    values = sides | {
        "dropout": model.dropout,
        "optimizer": "adam",
        "adam betas": "(0.9, 0.98)",
        "clip norm": f"{preset.clip:g}",
        "lr": f"{float(digits):g}e{int(power)}",
        "lr scheduler": preset.schedule.replace("-", " "),
        "warmup updates": preset.warmup,
        "warmup init lr": "1e-7",
        "weight decay": f"{preset.weight_decay:g}",
        "label smoothing": objective.label_smoothing,
        "max tokens": f"{train.batch_tokens}" + (f" x {train.accumulate}" if train.accumulate > 1 else ""),
        "updates": train.steps,
        "norm": model.norm,
        "moving average of weights": train.ema,
        "R-Drop": objective.r_drop,
        "longest path": objective.longest or "any",
        "whole sources": objective.whole,
        "teacher": "yes" if recipe.teacher else "no",
    }
    return {name: str(value) for name, value in values.items()}
