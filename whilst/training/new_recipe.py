"""Write a recipe for a user's own text: `whilst new`. Model and training suit the text and this machine."""

import json
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table

from whilst.core.config import load_recipe
from whilst.core.console import console, progress_bar
from whilst.core.errors import UserError
from whilst.core.files import DECOMPRESS, require_file, write_lines, write_text
from whilst.core.settings import Data, Recipe
from whilst.data.corpora import Files
from whilst.data.dataset import SPLITS, Dataset
from whilst.data.prepare import build
from whilst.data.text import read_pairs
from whilst.training.estimate import Times, describe, estimate
from whilst.training.train import stages

# Of files, without endings.
NAMES = {"train": ("train",), "valid": ("valid", "dev", "validation"), "test": ("test",)}
SAMPLE = 20_000  # pairs from which the text is judged
FEWEST = 200  # pairs of a text
PASSES = 40  # over the training text
TRIES = 3  # to find a number of updates for which there is time
AGENT_PAIRS = 5000  # of which the reads are searched for on a CPU


@dataclass(frozen=True)
class Size:
    """A model, and the units of training text from which it is the better choice."""

    units: int
    width: int
    layers: int
    feed_forward: int
    lr: float


SIZES = Size(0, 128, 2, 256, 3e-3), Size(500_000, 256, 4, 768, 2e-3), Size(2_000_000, 512, 6, 1024, 1e-3)


@dataclass(frozen=True)
class Text:
    """What is known of the user's text."""

    data: Data
    pairs: int  # of training text
    share: float  # of the training text that the sample has
    units: int  # of the target side of all training text, each sentence closed by an end mark


def new(
    folder: Path, source: Path | None, target: Path | None, out: Path, hours: float, device: torch.device
) -> None:
    """Write a recipe for the text in a folder, and print what it does and how long it takes."""
    if out.exists():
        raise UserError(f"{out}: exists; remove it, or write another file with --out")
    files, languages = find_files(folder, source, target)
    with tempfile.TemporaryDirectory() as place:
        text, dataset = examine(files, languages, out.stem, Path(place))
        recipe_text, times = choose(text, dataset, hours * 3600, device, Path(place) / "recipe.toml")
        write_text(out, recipe_text)
        print_choice(load_recipe(out, []), text, dataset, times, device)


# The files.


def ending(path: Path) -> tuple[str, str]:
    """Name without endings, and the ending that says the language; .gz and .xz count for nothing."""
    name = path.name.removesuffix(path.suffix) if path.suffix in DECOMPRESS else path.name
    stem, _, language = name.rpartition(".")
    return stem, language


def find_files(folder: Path, source: Path | None, target: Path | None) -> tuple[Files, tuple[str, str]]:
    """The files of each split, and both languages. Those of valid and test lie beside the training text."""
    if (source is None) != (target is None):
        raise UserError("--source and --target: give both, two aligned files")
    if source and target:
        require_file(source)
        require_file(target)
        train: tuple[Path, ...] = source, target
    else:
        train = find_training_text(folder)
    endings = [ending(file)[1] for file in train]
    languages = (endings[0], endings[1]) if len({*endings}) == 2 else ("src", "tgt")

    def beside(file: Path, names: Sequence[str]) -> Path | None:
        own = ending(file)[1]
        found = (one for one in sorted(file.parent.iterdir()) if one not in train and one.is_file())
        return next((one for one in found if ending(one)[1] == own and ending(one)[0] in names), None)

    files: Files = {"train": train}
    for split in SPLITS[1:]:
        others = [beside(file, NAMES[split]) for file in train]
        files[split] = tuple(one for one in others if one) if all(others) and len({*others}) == len(train) else ()
    return files, languages


def find_training_text(folder: Path) -> tuple[Path, ...]:
    """The only TSV or pair of files with one name and two endings in a folder, or those named train."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; put aligned text there, or name it with --source and --target")
    groups: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stem, language = ending(path)
        if path.is_file() and not path.name.startswith(".") and stem and language not in ("toml", "md", "json"):
            groups.setdefault(path.name if language == "tsv" else stem, []).append(path)
    held_out = NAMES["valid"] + NAMES["test"]
    found = [
        tuple(group)
        for stem, group in groups.items()
        if len(group) == (1 if ending(group[0])[1] == "tsv" else 2) and ending(group[0])[0] not in held_out
    ]
    found = [group for group in found if ending(group[0])[0] in NAMES["train"]] or found
    if len(found) != 1:
        names = "; ".join(" and ".join(file.name for file in group) for group in found) or "none"
        raise UserError(
            f"{folder}: cannot tell which files are the training text ({names}); call them train.de and train.en,"
            " or train.tsv, or name them with --source and --target"
        )
    return found[0]


# The text.


def examine(files: Files, languages: tuple[str, str], name: str, place: Path) -> tuple[Text, Dataset]:
    """Read the text, and prepare a sample of it in the folder `place`."""
    lines = read_pairs(files["train"])
    count = len(lines[0])
    if count < FEWEST:
        raise UserError(f"{files['train'][0]}: {count} pairs are too few to learn from; give {FEWEST} or more")
    size = min(count, SAMPLE)
    rows = [number * count // size for number in range(size)]
    sample = tuple(place / f"train.{side}" for side in ("source", "target"))
    for file, side in zip(sample, lines, strict=True):
        write_lines(file, (side[row] for row in rows))
    share = size / count
    shown = [side[row] for side in lines for row in rows]
    ends = [line.rstrip() for line in shown if re.search(r"\S\s*[.!?]\s*$", line)]
    tokenised = not ends or sum(line[-2:-1].isspace() for line in ends) > len(ends) / 2
    words = sum(len(line.split()) for line in shown[size:]) / share
    data = Data(
        dataset=f"data/{name}",
        source=languages[0],
        target=languages[1],
        held_out=0 if files["valid"] and files["test"] else min(500, count // 15),
        unescape=any("&apos;" in line or "&quot;" in line for line in shown),
        units="bpe" if tokenised else "sentencepiece",
        # 2,000 for 26,000 words, 10,000 for a million
        size=100 * round(min(10_000, max(500, 12 * math.sqrt(words))) / 100),
        train=tuple(map(str, files["train"])),
        valid=tuple(map(str, files["valid"])),
        test=tuple(map(str, files["test"])),
    )
    (place / "dataset").mkdir()
    build(place / "dataset", files | {"train": sample}, data, {})
    dataset = Dataset.open(place / "dataset")
    units = round(len(dataset.split("train").target.tokens) / share)
    return Text(data, round(len(dataset.split("train").source) / share), share, units), dataset


# The recipe.


def choose(text: Text, dataset: Dataset, limit: float, device: torch.device, place: Path) -> tuple[str, Times]:
    """The recipe of the largest model that suits the text and is trained in `limit` seconds, and its times.

    If none is, that of the smallest with as many updates as fit. On a GPU only the largest is tried.
    """
    suited = [size for size in SIZES if text.units >= size.units]
    chosen: tuple[str, Times] | None = None
    part, left = 1.0, TRIES
    for size in progress_bar(suited if device.type == "cpu" else suited[-1:], "measuring this machine", "models"):
        found = measured(text, dataset, size, part, device, place)
        while chosen is None and (total := sum(found[1].values())) > limit and left:
            fixed = found[1]["evaluate"]
            part, left = part * max(0.0, 0.9 * limit - fixed) / (total - fixed), left - 1
            found = measured(text, dataset, size, part, device, place)
        if part < 1 or sum(found[1].values()) > limit:
            return chosen or found
        chosen = found
    assert chosen is not None
    return chosen


def measured(
    text: Text, dataset: Dataset, size: Size, part: float, device: torch.device, place: Path
) -> tuple[str, Times]:
    """A recipe with this model and this part of its updates, and how long it takes."""
    written = fill(text, dataset, size, part, device)
    write_text(place, written)
    recipe = load_recipe(place, [])
    return written, estimate(recipe, stages(recipe), dataset, device, text.share)


def fill(text: Text, dataset: Dataset, size: Size, part: float, device: torch.device) -> str:
    """A recipe for this text and model, with this part of the updates."""
    largest = 4096
    if device.type == "cuda":  # the largest model needs 4.5 GiB for 16,384 tokens
        largest = 16_384 if torch.cuda.get_device_properties(device).total_memory > 7 << 30 else 4096
    batch = min(largest, max(2048, 1 << (text.units // 64).bit_length()))
    steps = max(50, round(part * max(1000, PASSES * text.units / batch)))
    agent_steps = max(25, steps // 5)
    mean = dataset.split("train").source.lengths.mean()
    intervals = [[first, first + 4] for first in range(1, 10 if mean > 16 else 6, 2)]
    data = text.data
    files = "\n".join(f"{split} = {json.dumps(getattr(data, split))}" for split in SPLITS if getattr(data, split))
    if data.held_out:
        files += f"\nheld_out = {data.held_out} # pairs for validation and for the test that are not trained on"
    run = f"runs/{Path(data.dataset).name}"
    why = "tokenised" if data.units == "bpe" else "not tokenised"
    policies = [f"{kind}-{first}" for kind in ("wait", "agent") for first, _ in intervals] + ["full"]
    agent_pairs = AGENT_PAIRS if device.type == "cpu" and text.pairs > AGENT_PAIRS else 0
    return f"""\
# Written by `whilst new`; docs/configuration.md has all settings.
run = {json.dumps(run)} # folder of the model
stages = ["translate", "agent", "evaluate"]

[data]
dataset = {json.dumps(data.dataset)} # folder that `whilst prepare` writes
source = {json.dumps(data.source)}
target = {json.dumps(data.target)}
{files}
unescape = {json.dumps(data.unescape)} # whether &apos; is a '
units = "{data.units}" # the text is {why}
size = {data.size}

[model]
width = {size.width}
encoder_layers = {size.layers}
decoder_layers = {size.layers}
feed_forward = {size.feed_forward}

[objective]
longest = 15 # low latencies more often
whole = 0.1

[train]
seed = 1
steps = {steps} # {max(1, round(steps * batch / text.units))} passes over the text
batch_tokens = {batch} # less if the memory does not suffice
lr = {size.lr}
warmup = {min(1000, steps // 6)}
validate_every = {-(-steps // 3)}

[search]
intervals = {json.dumps(intervals)} # a latency each
target = "belief"
tolerance = 0.03

[agent]
hidden = {size.width}
inputs = "lookahead"
pairs = {agent_pairs} # to learn from; 0: all

[agent.train]
steps = {agent_steps}
batch_tokens = {batch}
lr = {size.lr}
warmup = {min(100, agent_steps // 5)}
validate_every = {agent_steps}

[evaluate]
policies = {json.dumps(policies)}
"""


def print_choice(recipe: Recipe, text: Text, dataset: Dataset, times: Times, device: torch.device) -> None:
    """What the recipe is, and what to do with it."""
    data, model, train = recipe.data, recipe.model, recipe.train
    held_out = (f"{len(dataset.split(split).source):,} {split}" for split in SPLITS[1:])
    layers = f"{model.encoder_layers} + {model.decoder_layers} layers of width {model.width}"
    table = Table(show_header=False, box=None)
    for row in (
        ("text", f"{data.source}-{data.target}: {text.pairs:,} pairs to train, {', '.join(held_out)}"),
        ("units", f"{data.units}, about {text.units:,} {data.target} units to train"),
        ("model", layers),
        ("training", f"{train.steps:,} updates of {train.batch_tokens:,} tokens"),
        ("time", describe(times, device)),
    ):
        table.add_row(*row)
    console.print(table)
    for line in (f"{recipe.file}; next:", f"    whilst prepare {recipe.file}", f"    whilst train {recipe.file}"):
        console.print(line, soft_wrap=True, markup=False)
