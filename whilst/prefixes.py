"""Labels of the translation-based policy: from which prefix on is the translation what it will be in the end?

The translator first says what it makes of every whole source; that, not the reference, is the target side. Then
the greedy translation of each prefix is compared with it. A token needs the shortest prefix whose translation
agrees up to and with that token (agreement "first"), or the shortest from which on all of them do ("lasting").

No prefix is really translated: as long as a greedy translation agrees, its past is that of the whole translation,
so one forced decoder pass for each prefix length shows where it leaves. `needed_slowly` translates, and tests it.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whilst.console import say, track
from whilst.data import Batch, cut_padded, padded
from whilst.dataset import Dataset, Ragged, Split
from whilst.decode import Limits, likeliest, translate, translate_batch
from whilst.files import read_json, write_json
from whilst.labels import Labels
from whilst.model import Translator
from whilst.policy.full import Full
from whilst.search import Reader
from whilst.vocab import EOS, PAD

Agreement = Literal["lasting", "first"]
FOLDER = "translations"  # in the agent's run folder


@torch.no_grad()
def needed(model: Translator, batch: Batch, agreement: Agreement) -> Tensor:
    """(rows, target) reads of a padded batch whose targets are the model's own translations.

    Within [1, J] and never falling: who agrees up to a token agrees up to the one before it.
    """
    reader = Reader(model, batch)
    lengths, real = batch.source_lengths, batch.labels != PAD
    needs, lasts = lengths.clone(), torch.ones_like(real)
    for count in range(int(lengths.max()) - 1, 0, -1):
        logits = reader.logits(lengths.clamp(max=count))
        right = likeliest(logits.flatten(0, 1)).view_as(batch.labels) == batch.labels
        agrees = (right | ~real).long().cumprod(1).bool()
        is_prefix = count < lengths
        lasts &= agrees | ~is_prefix
        needs = torch.where(is_prefix & (lasts if agreement == "lasting" else agrees), count, needs)
    return needs


def needed_slowly(model: Translator, source: list[int], target: list[int], agreement: Agreement) -> list[int]:
    """The same for one sentence, by translating every prefix; `target` is the whole translation, with eos."""
    agreeing = []  # of each prefix: for how many tokens
    limits = Limits(0.0, len(target))  # what comes later does not matter
    for count in range(1, len(source)):
        output = translate_batch(model, [source[:count]], Full(), limits)[0]
        written = [*output.units, EOS]
        same = [ours == theirs for ours, theirs in zip(written, target, strict=False)]
        agreeing.append((*same, False).index(False))
    agreeing.append(len(target))  # the whole source agrees with itself
    if agreement == "first":
        return [next(g for g, n in enumerate(agreeing, start=1) if n > i) for i in range(len(target))]
    return [max((g for g, n in enumerate(agreeing, start=1) if n <= i), default=0) + 1 for i in range(len(target))]


def find_agreement(model: Translator, agreement: Agreement, split: Split, tokens: int) -> Labels:
    """The labels of a whole split of the model's own translations; the model must be in eval mode."""
    device = model.target_embedding.weight.device
    reads = torch.empty(1, len(split.target.tokens), dtype=torch.int16, device=device)
    labels = Labels(reads, torch.from_numpy(split.target.offsets).to(device))
    # By the source's length, since that is the number of passes.
    order = split.source.lengths.argsort(kind="stable")
    # In the precision of translating, or near ties would tell the two apart.
    with torch.autocast(device.type, enabled=False):
        for chosen in track(cut_padded(split, order, tokens), "comparing prefixes", "batches"):
            batch = padded(split, chosen).to(device)
            labels.keep(batch, needed(model, batch, agreement)[None])
    return labels


def translated(
    model: Translator, dataset: Dataset, folder: Path, limits: Limits, batch: int, about: str
) -> Dataset:
    """The dataset with the model's translations as targets of train and valid.

    They are kept in `folder`, since a run that goes on needs them again; `about` tells which weights made them.
    """
    place = folder / FOLDER
    made = place / "made.json"
    names = ("train", "valid")
    if made.is_file() and read_json(made) == {"by": about}:
        return dataset.with_targets({name: Ragged.open(place, f"{name}.target") for name in names})
    made.unlink(missing_ok=True)
    place.mkdir(parents=True, exist_ok=True)
    targets = {name: _translations(model, dataset.split(name).source, limits, batch, name) for name in names}
    for name, target in targets.items():
        target.save(place, f"{name}.target")
    write_json(made, {"by": about})  # last: without it the rest does not count
    say(f"{place}: {sum(map(len, targets.values())):,} sources translated")
    return dataset.with_targets(targets)


def _translations(model: Translator, sources: Ragged, limits: Limits, batch: int, name: str) -> Ragged:
    lines = [sources[number].tolist() for number in range(len(sources))]
    with torch.autocast(model.target_embedding.weight.device.type, enabled=False):
        outputs = translate(model, lines, Full(), limits, batch, f"translating {name}")
    sentences = [np.array([*output.units, EOS], dtype=np.int32) for output in outputs]
    offsets = np.cumsum([0, *map(len, sentences)]).astype(np.int64)
    return Ragged(np.concatenate(sentences), offsets)
