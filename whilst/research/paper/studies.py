"""The paper's figures and tables other than curves of quality: preliminary analysis, agent, sufficiency, settings.

Studies are the JSON files of `whilst analyse` and `whilst sufficiency` anywhere among the results.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whilst.core.files import read_json
from whilst.core.settings import Recipe
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.paper_numbers import BASE, BEST, ORACLE
from whilst.evaluation.tables import NONE, Grid
from whilst.research.paper.markdown import bullets, details, link, picture
from whilst.research.paper.systems import Collection, training_text
from whilst.training.optim import preset_of

SHARES = (0.25, 0.5, 0.75, 1.0)
# What decides our results and has no line in the paper's table of hyperparameters.
ADDITIONAL = ("updates", "norm", "moving average of weights", "R-Drop", "longest path", "whole sources", "teacher")


def _studies(results: Path, keys: set[str]) -> dict[Path, dict[str, Any]]:
    """The JSON files that have these keys."""
    found = {path: read_json(path) for path in sorted(results.rglob("*.json"))}
    return {path: table for path, table in found.items() if isinstance(table, dict) and keys <= table.keys()}


def analysis(results: Path, ours: Collection) -> list[str]:
    """Figure 1: the paper prints no number of it but the size of its bucket."""
    facts, studies = paper.facts()["analysis"], _studies(results, {"shares", "quarters", "bucket"})
    parts = [
        f"The paper: a curve for each token of {facts['sentences']} targets of one length, {facts['task']}.",
        "In the paper, the tokens before the one in question follow wait-k. Here every token of a sentence is given"
        " the same share of the source, ceil(qJ) of its J tokens.",
    ]
    if not any(paper.task(found["pair"]) == facts["task"] for found in studies.values()):
        parts.append(f"Not run on {facts['task']}. `whilst analyse RUN` makes it.")
    for path, found in studies.items():
        bucket = found["bucket"]
        about = f"Ours, {found['pair']} {found['split']}, {found['system']}: {found['sentences']:,} sentences; "
        about += f"the bucket has {bucket['sentences']:,} targets of {bucket['target_length']} units."
        rows = [[name, *_at_shares(found, values)] for name, values in found["quarters"].items()]
        rows.append(["all", *_at_shares(found, found["mean"])])
        grid = Grid(["target", *(f"{share:.0%} read" for share in SHARES)], rows)
        parts += _shown(path, found, about, grid, [found], ours.folder)
    return parts


def _at_shares(found: dict[str, Any], values: Sequence[float]) -> list[str]:
    known = {round(share, 4): value for share, value in zip(found["shares"], values, strict=True)}
    return [f"{known[share]:.3f}" if share in known else NONE for share in SHARES]


def sufficiency(results: Path, ours: Collection) -> list[str]:
    """Figure 5: the paper's text has one number of it."""
    facts = paper.facts()["sufficiency"]
    # Sure links, which the paper counts, before those with possible ones.
    found = _studies(results, {"links", "points", "files"})
    studies = {path: found[path] for path in sorted(found, key=lambda path: len(found[path]["links"]))}
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
        rows = [
            [*(point[name] for name in labels), f"{point['al']:.2f}", f"{point['sufficiency']:.3f}"]
            for point in points
        ]
        headings = "pair", "system", "policy", "point", "AL along the reference", "sufficiency"
        parts += _shown(path, study, about, Grid(headings, rows, len(labels)), study["points"], ours.folder)
    return parts


def _shown(
    path: Path, study: dict[str, Any], about: str, grid: Grid, measured: Sequence[dict[str, Any]], folder: Path
) -> list[str]:
    """A study with its figure and origin. `measured`: what has the checksum of a model."""
    models = dict.fromkeys(f"`{item['model_sha256'][:12]}`" for item in measured)
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
    """Figure 3, a diagram: its settings can be compared."""
    theirs = paper.facts()["agent"]
    rows = [["the paper", NONE, theirs["kind"].lower(), theirs["hidden"], theirs["inputs"], "translation"]]
    for curve in ours.of_system(BEST):
        own = [str(curve.settings[f"agent.{name}"]) for name in ("kind", "hidden", "inputs", "reference")]
        rows.append([f"{curve.pair}, {curve.first.system}", training_text(curve), *own])
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
        own = _in_words_of_the_paper(recipe)
        column = 2 if "de" in curve.pair.rpartition(".")[2].split("-") else 1
        headings.append(f"ours, {curve.pair}")
        for row in rows:
            value = own[row[0]]
            row.append(value if row[column] in (value, NONE) else f"**{value}**")
    return [
        Grid(headings, rows).to_markdown(),
        "Ours: multi-path, from the records; bold where it differs from the paper. The paper's table has no line"
        f" for {', '.join(ADDITIONAL)}.",
        f"Units: the paper has {' and '.join(f'{count} {name}' for name, count in units.items())} sub-words for"
        " De-En; the number of ours is in the manifest of each dataset.",
    ]


def _in_words_of_the_paper(recipe: Recipe) -> dict[str, str]:
    model, train, objective, preset = recipe.model, recipe.train, recipe.objective, preset_of(recipe.train)
    sides: dict[str, Any] = {}
    for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        sides |= {f"{side} layers": layers, f"{side} attention heads": model.heads}
        sides |= {f"{side} embed dim": model.width, f"{side} ffn embed dim": model.feed_forward}
    digits, _, power = f"{preset.lr:e}".partition("e")
    own = sides | {
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
    return {name: str(value) for name, value in own.items()}
