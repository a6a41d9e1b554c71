"""What a model says instead of the references: targets for the translation-based policy, and for pupils."""

from collections.abc import Sequence
from pathlib import Path

import torch

from whilst.core.console import log
from whilst.core.distributed import Processes
from whilst.core.files import read_json, write_json
from whilst.core.settings import Evaluate
from whilst.data.dataset import Dataset, Split, TokenSequences
from whilst.decoding.batched import translate
from whilst.model.checkpoint import LoadedRun, load_translator
from whilst.model.transformer import Translator
from whilst.policy.full import Full

FOLDER = "translations"  # in a run folder


def translated(
    trained: LoadedRun, dataset: Dataset, folder: Path, settings: Evaluate, names: Sequence[str]
) -> dict[str, TokenSequences]:
    """The model's translations of the sources of these splits, the whole source read.

    They are kept in `folder`, since a run that goes on needs them again.
    """
    place = folder / FOLDER
    made = place / "made.json"
    by = {"by": trained.checksum, "of": dataset.checksum, "splits": list(names)}
    device = trained.model.target_embedding.weight.device
    processes = Processes.join(device)
    if processes.first and (not made.is_file() or read_json(made) != by):
        made.unlink(missing_ok=True)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            translations(trained.model, dataset.split(name).source, settings, name).save(place, f"{name}.target")
        write_json(made, by)  # last: without it the rest does not count
        log(f"{place}: {', '.join(names)} translated by {trained.path}")
    processes.broadcast(True, device)  # the others wait for it
    return {name: TokenSequences.open(place, f"{name}.target") for name in names}


def translations(model: Translator, sources: TokenSequences, settings: Evaluate, name: str) -> TokenSequences:
    lines = [sources[number].tolist() for number in range(len(sources))]
    limits = settings.limits
    with torch.autocast(model.target_embedding.weight.device.type, enabled=False):
        outputs = translate(model, lines, Full(), limits, settings.batch, f"translating {name}")
    return TokenSequences.from_lists([output.sentence for output in outputs])


def with_teacher(dataset: Dataset, run: Path, settings: Evaluate, device: torch.device) -> Dataset:
    """The training text twice: with its references, and with a teacher's translations of it.

    Those are simpler and more monotone than what people write, which helps most where little has been read.
    """
    target = said_by(run, dataset) or _asked(run, dataset, settings, device)
    train = dataset.split("train")
    both = Split(
        TokenSequences.concatenate(train.source, train.source), TokenSequences.concatenate(train.target, target)
    )
    return dataset.with_splits({"train": both})


def said_by(run: Path, dataset: Dataset) -> TokenSequences | None:
    """What a teacher said of the training text whose weights are gone: its translations are all that is needed."""
    made = run / FOLDER / "made.json"
    if (run / "model.safetensors").is_file() or not made.is_file():
        return None
    about = read_json(made)
    if "train" not in about["splits"] or about["of"] != dataset.checksum:
        return None
    return TokenSequences.open(made.parent, "train.target")


def _asked(run: Path, dataset: Dataset, settings: Evaluate, device: torch.device) -> TokenSequences:
    teacher = load_translator(run, device)
    dataset.require_units("teacher", run)
    return translated(teacher, dataset, run, settings, ("train",))["train"]
