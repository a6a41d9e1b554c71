"""Write a recipe for the user's own text (`whilst new`), with a model and training that suit text and machine."""

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

# Names of the files of each split, without endings.
NAMES = {"train": ("train",), "valid": ("valid", "dev", "validation"), "test": ("test",)}
SAMPLE = 20_000  # pairs of the training text that are examined
FEWEST = 200  # smallest number of training pairs
PASSES = 40  # over the training text
TRIES = 3  # attempts to find a number of updates that fits into the time limit
AGENT_PAIRS = 5000  # largest number of training pairs whose reads are searched for on a CPU


@dataclass(frozen=True)
class Size:
    """A size of the model, for training texts of at least `units` target units."""

    units: int
    width: int
    layers: int
    feed_forward: int
    lr: float


SIZES = Size(0, 128, 2, 256, 3e-3), Size(500_000, 256, 4, 768, 2e-3), Size(2_000_000, 512, 6, 1024, 1e-3)


@dataclass(frozen=True)
class Text:
    """Measurements of the user's text."""

    data: Data
    pairs: int  # of training text
    share: float  # of the training text that is in the sample
    units: int  # target units of all training text, end marks included


def new(
    folder: Path, source: Path | None, target: Path | None, out: Path, hours: float, device: torch.device
) -> None:
    """Write a recipe for the text in a folder, and print its model, its training and the time that this takes."""
    if out.exists():
        raise UserError(f"{out}: exists; remove it, or write another file with --out")
    files, languages = find_files(folder, source, target)
    with tempfile.TemporaryDirectory() as scratch:
        text, dataset = examine(files, languages, out.stem, Path(scratch))
        recipe_text, times = choose(text, dataset, hours * 3600, device, Path(scratch) / "recipe.toml")
        write_text(out, recipe_text)
        print_choice(load_recipe(out, []), text, dataset, times, device)


# The files.


def split_name(path: Path) -> tuple[str, str]:
    """The name of a file without endings, and the ending that names the language; .gz and .xz are ignored."""
    name = path.name.removesuffix(path.suffix) if path.suffix in DECOMPRESS else path.name
    stem, _, language = name.rpartition(".")
    return stem, language


def find_files(folder: Path, source: Path | None, target: Path | None) -> tuple[Files, tuple[str, str]]:
    """The files of each split, and both languages. Files of valid and test are found beside the training text."""
    if (source is None) != (target is None):
        raise UserError("--source and --target: give both or none; they name two aligned files")
    if source and target:
        require_file(source)
        require_file(target)
        train: tuple[Path, ...] = source, target
    else:
        train = find_training_text(folder)
    endings = [split_name(file)[1] for file in train]
    languages = (endings[0], endings[1]) if len({*endings}) == 2 else ("src", "tgt")

    def beside(file: Path, names: Sequence[str]) -> Path | None:
        """The file in the same folder and language that has one of these names."""
        accepted = {(name, split_name(file)[1]) for name in names}
        paths = (path for path in sorted(file.parent.iterdir()) if path not in train and path.is_file())
        return next((path for path in paths if split_name(path) in accepted), None)

    files: Files = {"train": train}
    for split in SPLITS[1:]:
        paths = [beside(file, NAMES[split]) for file in train]
        files[split] = tuple(path for path in paths if path) if all(paths) and len({*paths}) == len(train) else ()
    return files, languages


def find_training_text(folder: Path) -> tuple[Path, ...]:
    """The training text in a folder: a TSV file, or two files that differ in their ending.

    If there are several, they must be named train.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; put aligned text there, or name two files with --source and --target"
        )
    groups: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stem, language = split_name(path)
        if path.is_file() and not path.name.startswith(".") and stem and language not in ("toml", "md", "json"):
            groups.setdefault(path.name if language == "tsv" else stem, []).append(path)
    held_out = NAMES["valid"] + NAMES["test"]
    texts = [
        tuple(group)
        for stem, group in groups.items()
        if len(group) == (1 if split_name(group[0])[1] == "tsv" else 2) and split_name(group[0])[0] not in held_out
    ]
    texts = [text for text in texts if split_name(text[0])[0] in NAMES["train"]] or texts
    if len(texts) != 1:
        names = "; ".join(" and ".join(file.name for file in text) for text in texts) or "none"
        raise UserError(
            f"{folder}: cannot tell which files are the training text ({names}); call them train.de and train.en,"
            " or train.tsv, or name them with --source and --target"
        )
    return texts[0]


# The text.


def examine(files: Files, languages: tuple[str, str], name: str, scratch: Path) -> tuple[Text, Dataset]:
    """Read the text, and prepare a sample of it in the folder `scratch`."""
    lines = read_pairs(files["train"])
    count = len(lines[0])
    if count < FEWEST:
        raise UserError(f"{files['train'][0]}: {count} pairs are too few to learn from; give {FEWEST} or more")
    size = min(count, SAMPLE)
    rows = [number * count // size for number in range(size)]
    sample = tuple(scratch / f"train.{side}" for side in ("source", "target"))
    for file, side in zip(sample, lines, strict=True):
        write_lines(file, (side[row] for row in rows))
    share = size / count
    examined = [side[row] for side in lines for row in rows]
    closed = [line.rstrip() for line in examined if re.search(r"\S\s*[.!?]\s*$", line)]  # end in punctuation
    tokenised = not closed or sum(line[-2:-1].isspace() for line in closed) > len(closed) / 2
    words = sum(len(line.split()) for line in examined[size:]) / share
    data = Data(
        dataset=f"data/{name}",
        source=languages[0],
        target=languages[1],
        held_out=0 if files["valid"] and files["test"] else min(500, count // 15),
        unescape=any("&apos;" in line or "&quot;" in line for line in examined),
        units="bpe" if tokenised else "sentencepiece",
        # about 2,000 units for 26,000 words, 10,000 for a million
        size=100 * round(min(10_000, max(500, 12 * math.sqrt(words))) / 100),
        train=tuple(map(str, files["train"])),
        valid=tuple(map(str, files["valid"])),
        test=tuple(map(str, files["test"])),
    )
    (scratch / "dataset").mkdir()
    build(scratch / "dataset", files | {"train": sample}, data, {})
    dataset = Dataset.open(scratch / "dataset")
    units = round(len(dataset.split("train").target.tokens) / share)
    return Text(data, round(len(dataset.split("train").source) / share), share, units), dataset


# The recipe.


def choose(text: Text, dataset: Dataset, limit: float, device: torch.device, file: Path) -> tuple[str, Times]:
    """The recipe of the largest model that suits the text and trains within `limit` seconds, and its times.

    If no model does, the smallest gets as many updates as fit. On a GPU only the largest suitable model is tried.
    """
    suited = [size for size in SIZES if text.units >= size.units]
    chosen: tuple[str, Times] | None = None
    fraction, tries_left = 1.0, TRIES
    for size in progress_bar(suited if device.type == "cpu" else suited[-1:], "measuring this machine", "models"):
        recipe, times = time_recipe(text, dataset, size, fraction, device, file)
        while chosen is None and (total := sum(times.values())) > limit and tries_left:
            fixed = times["evaluate"]
            fraction, tries_left = fraction * max(0.0, 0.9 * limit - fixed) / (total - fixed), tries_left - 1
            recipe, times = time_recipe(text, dataset, size, fraction, device, file)
        if fraction < 1 or sum(times.values()) > limit:
            return chosen or (recipe, times)
        chosen = recipe, times
    assert chosen is not None
    return chosen


def time_recipe(
    text: Text, dataset: Dataset, size: Size, fraction: float, device: torch.device, file: Path
) -> tuple[str, Times]:
    """A recipe for this size of model and this fraction of the updates, and its times. `file` is overwritten."""
    recipe_text = fill(text, dataset, size, fraction, device)
    write_text(file, recipe_text)
    recipe = load_recipe(file, [])
    return recipe_text, estimate(recipe, stages(recipe), dataset, device, text.share)


def fill(text: Text, dataset: Dataset, size: Size, fraction: float, device: torch.device) -> str:
    """The text of a recipe for this size of model, with this fraction of the updates."""
    largest = 4096
    if device.type == "cuda":  # the largest model needs 4.5 GiB for 16,384 tokens
        largest = 16_384 if torch.cuda.get_device_properties(device).total_memory > 7 << 30 else 4096
    batch = min(largest, max(2048, 1 << (text.units // 64).bit_length()))
    steps = max(50, round(fraction * max(1000, PASSES * text.units / batch)))
    agent_steps = max(25, steps // 5)
    mean = dataset.split("train").source.lengths.mean()
    intervals = [[first, first + 4] for first in range(1, 10 if mean > 16 else 6, 2)]
    data = text.data
    files = "\n".join(f"{split} = {json.dumps(getattr(data, split))}" for split in SPLITS if getattr(data, split))
    if data.held_out:
        files += f"\nheld_out = {data.held_out} # training pairs set aside for validation, and as many for the test"
    run = f"runs/{Path(data.dataset).name}"
    tokenised = "tokenised" if data.units == "bpe" else "not tokenised"
    policies = [f"{kind}-{first}" for kind in ("wait", "agent") for first, _ in intervals] + ["full"]
    agent_pairs = AGENT_PAIRS if device.type == "cpu" and text.pairs > AGENT_PAIRS else 0
    return f"""\
# Written by `whilst new`. All settings are explained in docs/configuration.md.
run = {json.dumps(run)} # folder of the model
stages = ["translate", "agent", "evaluate"]

[data]
dataset = {json.dumps(data.dataset)} # folder that `whilst prepare` writes
source = {json.dumps(data.source)}
target = {json.dumps(data.target)}
{files}
unescape = {json.dumps(data.unescape)} # whether to replace &apos; by '
units = "{data.units}" # the text is {tokenised}
size = {data.size}

[model]
width = {size.width}
encoder_layers = {size.layers}
decoder_layers = {size.layers}
feed_forward = {size.feed_forward}

[objective]
longest = 15 # largest k, so that low latencies are trained more often
whole = 0.1

[train]
seed = 1
steps = {steps} # {max(1, round(steps * batch / text.units))} passes over the text
batch_tokens = {batch} # reduce if memory runs out
lr = {size.lr}
warmup = {min(1000, steps // 6)}
validate_every = {-(-steps // 3)}

[search]
intervals = {json.dumps(intervals)} # one latency each
target = "belief"
tolerance = 0.03

[agent]
hidden = {size.width}
inputs = "lookahead"
pairs = {agent_pairs} # training pairs of the agent; 0: all

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
    """Print a summary of the recipe, and the commands that use it."""
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
