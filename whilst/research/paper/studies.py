"""The paper's figures and tables that are no curves of quality: preliminary analysis, agent, sufficiency, settings.

What the studies found is read from the JSON that `whilst analyse` and `whilst sufficiency` write, wherever it lies
among the results, and their pictures from beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whilst.core.config import build
from whilst.core.files import read_json
from whilst.core.settings import Recipe, Train
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.paper_numbers import BEST, ORACLE
from whilst.evaluation.tables import NONE, Column, Grid
from whilst.research.paper.document import Block, Code, Details, Items, Picture, Table, Text
from whilst.research.paper.provenance import link
from whilst.research.paper.shelf import Shelf, text_of
from whilst.training.optim import preset_of

SHARES = (0.25, 0.5, 0.75, 1.0)
# Columns of a sufficiency's points; those measured before there were labels have none.
FIELDS = {"pair": "pair", "system": "system", "policy": "policy", "point": "label"}
# What decides ours beside the lines of the paper's table of hyperparameters.
BESIDES = ("updates", "norm", "moving average of weights", "R-Drop", "longest path", "whole sources", "teacher")


@dataclass(frozen=True)
class Study:
    path: Path
    found: dict[str, Any]


def read_studies(root: Path) -> tuple[list[Study], list[Study]]:
    """Analyses and sufficiencies, known by what is in them."""
    analyses, sufficiencies = [], []
    for path in sorted(root.rglob("*.json")):
        found = read_json(path)
        if not isinstance(found, dict):
            continue
        if {"shares", "quarters", "bucket"} <= found.keys():
            analyses.append(Study(path, found))
        elif {"links", "points", "files"} <= found.keys():
            sufficiencies.append(Study(path, found))
    # Sure links, which the paper counts, before those with possible ones.
    return analyses, sorted(sufficiencies, key=lambda study: len(study.found["links"]))


def analysis(studies: Sequence[Study], shelf: Shelf) -> list[Block]:
    """Figure 1: the paper prints no number of it but the size of its bucket."""
    folder = shelf.folder
    facts = paper.facts()["analysis"]
    blocks: list[Block] = [
        Text(f"The paper: a curve for each token of {facts['sentences']} targets of one length, {facts['task']}."),
        Text(
            "In the paper the tokens before the one that is looked at follow wait-k; here every token of a sentence"
            " is given the same share of the source, ceil(qJ) of its J tokens, those before it too."
        ),
    ]
    if not any(paper.task(study.found["pair"]) == facts["task"] for study in studies):
        blocks.append(Text(f"Not run on {facts['task']}. `whilst analyse RUN` makes it."))
    for study in studies:
        found = study.found
        bucket = found["bucket"]
        about = f"Ours, {found['pair']} {found['split']}, {found['system']}: {found['sentences']:,} sentences; "
        about += f"the bucket has {bucket['sentences']:,} targets of {bucket['target_length']} units."
        rows = [[name, *_at(found["shares"], values)] for name, values in found["quarters"].items()]
        rows.append(["all", *_at(found["shares"], found["mean"])])
        columns = [Column("target", is_text=True), *(Column(f"{share:.0%} read") for share in SHARES)]
        blocks += [Text(about), *_picture(study, folder, about), Table(Grid(columns, rows)), _origin(study, folder)]
    return blocks


def _at(shares: Sequence[float], values: Sequence[float]) -> list[str]:
    known = {round(share, 4): value for share, value in zip(shares, values, strict=True)}
    return [f"{known[share]:.3f}" if share in known else NONE for share in SHARES]


def _picture(study: Study, folder: Path, text: str) -> list[Picture]:
    for suffix in (".svg", ".png"):
        file = study.path.with_suffix(suffix)
        if file.is_file():
            return [Picture(file, link(file, folder), text)]
    return []


def _origin(study: Study, folder: Path) -> Details:
    found = study.found
    lines = [f"figures: [{study.path.name}]({link(study.path, folder)})"]
    lines += [f"made with `{found['command']}`"] if "command" in found else []
    lines += [f"machine: {found['device']}"] if "device" in found else []
    models = [item["model_sha256"] for item in (found, *found.get("points", [])) if "model_sha256" in item]
    lines += [f"weights: SHA-256 {', '.join(f'`{sha[:12]}`' for sha in dict.fromkeys(models))}"] if models else []
    lines += [f"{name}: SHA-256 `{sha[:12]}`" for name, sha in found.get("files", {}).items()]
    lines += [f"torch {found['versions'].get('torch', '?')}"] if "versions" in found else []
    return Details("How it was made", [Items(lines)])


def sufficiency(studies: Sequence[Study], shelf: Shelf) -> list[Block]:
    """Figure 5: of it the paper's text says one number."""
    folder = shelf.folder
    facts = paper.facts()["sufficiency"]
    share, lowest = facts["oracle at low latency"], paper.curve(facts["task"], ORACLE)[0].label
    policy = f"oracle-{lowest.strip('[').partition(',')[0]}"
    blocks: list[Block] = [
        Text(
            f"The paper ({facts['task']}, RWTH alignments): the oracle covers {share:.0%} of the aligned source at"
            " low latency, and is above wait-k and MMA. Its other figures are drawn, not printed."
        )
    ]
    done = {paper.task(point["pair"]) for study in studies for point in study.found["points"]}
    if facts["task"] not in done:
        blocks.append(Text(f"Not run on {facts['task']}. `whilst sufficiency RUN…` makes it."))
    for study in studies:
        points = sorted(study.found["points"], key=lambda point: (point["system"], point["al"]))
        rows = [
            [*(p.get(name, NONE) for name in FIELDS.values()), f"{p['al']:.2f}", f"{p['sufficiency']:.3f}"]
            for p in points
        ]
        texts = [Column(name, is_text=True) for name in FIELDS]
        about = f"Ours, by {study.found['links']} links, {points[0]['sentences']:,} sentences."
        for point in points:
            if paper.task(point["pair"]) == facts["task"] and point["policy"] == policy:
                part = point["sufficiency"]
                about += f" The oracle at {lowest}, the paper's lowest latency: {part:.1%} at AL {point['al']:.2f}"
                about += f" ({100 * (part - share):+.1f} percentage points)."
        grid = Grid([*texts, Column("AL along the reference"), Column("sufficiency")], rows)
        blocks += [Text(about), *_picture(study, folder, about), Table(grid), _origin(study, folder)]
    return blocks


def example() -> list[Block]:
    """Figure 2, which has no numbers."""
    return [
        Text("A drawing of the search for one sentence, without numbers. Any sentence and run can be drawn:"),
        Code(['whilst explain RUN "a source sentence" "its translation"']),
    ]


def agent(shelf: Shelf) -> list[Block]:
    """Figure 3: a diagram; what can be compared are the settings."""
    theirs = paper.facts()["agent"]
    rows = [["the paper", NONE, theirs["kind"].lower(), theirs["hidden"], theirs["inputs"], "translation"]]
    for family in shelf.of_system(BEST):
        own = [str(family.settings[f"agent.{name}"]) for name in ("kind", "hidden", "inputs", "reference")]
        rows.append([f"{family.pair}, {family.first.system}", text_of(family), *own])
    texts = ("whose", "our training text", "kind", "width", "inputs", "words seen in training")
    return [
        Text("A diagram. What it shows is `whilst/agent.py`; its settings, from the records of our main systems:"),
        Table(Grid([Column(name, is_text=name != "width") for name in texts], rows)),
    ]


def hyperparameters(shelf: Shelf) -> list[Block]:
    """Table 7: ours are those of the multi-path models, which the others start from."""
    theirs = paper.facts()["hyperparameters"]
    columns = [Column("hyperparameter", is_text=True), Column("paper, En-Vi"), Column("paper, De-En")]
    rows = [[name, *values] for name, values in theirs.items()]
    rows += [[name, NONE, NONE] for name in BESIDES]
    for family in shelf.of_system("multi-path"):
        own = _own(build(Recipe, family.first.first.settings))
        column = 2 if "de" in family.pair.rpartition(".")[2].split("-") else 1
        columns.append(Column(f"ours, {family.pair}"))
        for row in rows:
            value = own[row[0]]
            row.append(value if row[column] in (value, NONE) else f"**{value}**")
    lines = [
        "Ours: multi-path, from the records; bold where it is not the paper's. The paper's table has no line for"
        f" {', '.join(BESIDES)}.",
        f"Units: the paper has {' and '.join(f'{count} {name}' for name, count in paper.facts()['units'].items())}"
        " sub-words for De-En; how many ours are stands in each dataset's manifest.",
    ]
    return [Table(Grid(columns, rows)), *map(Text, lines)]


def _own(recipe: Recipe) -> dict[str, str]:
    """A recipe in the words of the paper's table."""
    model, train = recipe.model, recipe.train
    preset = preset_of(train)
    sizes = (model.heads, model.width, model.feed_forward)
    parts = ("attention heads", "embed dim", "ffn embed dim")
    own: dict[str, Any] = {"encoder layers": model.encoder_layers, "decoder layers": model.decoder_layers}
    for side in ("encoder", "decoder"):
        own |= {f"{side} {part}": size for part, size in zip(parts, sizes, strict=True)}
    own |= {
        "dropout": model.dropout,
        "optimizer": "adam",
        "adam betas": "(0.9, 0.98)",
        "clip norm": f"{preset.clip:g}",
        "lr": _short(preset.lr),
        "lr scheduler": preset.schedule.replace("-", " "),
        "warmup updates": preset.warmup,
        "warmup init lr": "1e-7",
        "weight decay": f"{preset.weight_decay:g}",
        "label smoothing": recipe.objective.label_smoothing,
        "max tokens": _tokens(train),
        "updates": train.steps,
        "norm": model.norm,
        "moving average of weights": train.ema,
        "R-Drop": recipe.objective.r_drop,
        "longest path": recipe.objective.longest or "any",
        "whole sources": recipe.objective.whole,
        "teacher": "yes" if recipe.teacher else "no",
    }
    return {name: str(value) for name, value in own.items()}


def _short(value: float) -> str:
    """5e-4 for 0.0005."""
    digits, _, power = f"{value:e}".partition("e")
    return f"{float(digits):g}e{int(power)}"


def _tokens(train: Train) -> str:
    return f"{train.batch_tokens}" + (f" x {train.accumulate}" if train.accumulate > 1 else "")
