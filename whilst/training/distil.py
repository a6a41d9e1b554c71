"""Translate the training text with a trained model, for a teacher's students and the translation-based agent."""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch

from whilst.core.console import notes
from whilst.core.distributed import Processes
from whilst.core.files import locked, read_json, write_json
from whilst.core.settings import Evaluate
from whilst.data.dataset import Dataset, Split, TokenSequences
from whilst.decoding.batched import translate
from whilst.model.checkpoint import LoadedRun, load_translator
from whilst.model.run_folder import WEIGHTS
from whilst.model.transformer import Translator
from whilst.policy.fixed import Full

FOLDER = "translations"  # in a run folder


def cached_translations(
    trained: LoadedRun, dataset: Dataset, folder: Path, settings: Evaluate, names: Sequence[str]
) -> dict[str, TokenSequences]:
    """Full-sentence translations of these splits by `trained`, made once and stored in the run folder `folder`."""
    stored = folder / FOLDER
    manifest = stored / "made.json"
    origin = {"by": trained.checksum, "of": dataset.checksum, "splits": list(names)}
    processes = Processes.join(trained.device)
    if processes.first:
        with locked(stored, wait=True):  # several students may start at the same time
            if not manifest.is_file() or read_json(manifest) != origin:
                manifest.unlink(missing_ok=True)
                for name in names:
                    texts = translate_side(trained.model, dataset.split(name).source, settings, name)
                    texts.save(stored, f"{name}.target")
                write_json(manifest, origin)  # last: the other files count only with a manifest
                notes.print(f"{stored}: {', '.join(names)} translated by {trained.path}")
    processes.broadcast(True, trained.device)  # the other processes wait for the files
    return {name: TokenSequences.open(stored, f"{name}.target") for name in names}


def translate_side(model: Translator, sources: TokenSequences, settings: Evaluate, name: str) -> TokenSequences:
    """Full-sentence translations of the sources of split `name`."""
    if settings.precision == "half" and model.device.type == "cuda":
        model = copy.deepcopy(model).half()  # a copy: the caller may need the model in single precision
    with torch.autocast(model.device.type, enabled=False):
        lines, title = sources.to_lists(), f"translating {name}"
        outputs = translate(model, lines, Full(), settings.limits, settings.batch, title)
    return TokenSequences.from_lists([output.sentence for output in outputs])


def with_teacher(dataset: Dataset, run: Path, settings: Evaluate, device: torch.device) -> Dataset:
    """Return the training text twice: with its references, and with the translations of the teacher in `run`.

    The translations are simpler and more monotonic than the references, which helps most at low latency.
    """
    target = translations_without_weights(run, dataset)
    if target is None:
        teacher = load_translator(run, device)
        dataset.require_units("teacher", run)
        target = cached_translations(teacher, dataset, run, settings, ("train",))["train"]
    train, concatenate = dataset.split("train"), TokenSequences.concatenate
    both = Split(concatenate(train.source, train.source), concatenate(train.target, target))
    return dataset.with_splits({"train": both})


def translations_without_weights(run: Path, dataset: Dataset) -> TokenSequences | None:
    """Stored translations of a teacher whose weights were deleted; None if it has weights or the text differs."""
    manifest = run / FOLDER / "made.json"
    if (run / WEIGHTS).is_file() or not manifest.is_file():
        return None
    origin = read_json(manifest)
    if "train" not in origin["splits"] or origin["of"] != dataset.checksum:
        return None
    return TokenSequences.open(manifest.parent, "train.target")
