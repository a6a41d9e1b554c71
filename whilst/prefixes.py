"""Labels of the translation-based policy: from which prefix on is the translation what it will be in the end?

The translator first says what it makes of every whole source; that, not the reference, is the target side. Then
the greedy translation of each prefix is compared with it. A token needs the shortest prefix whose translation
agrees up to and with that token (agreement "first"), or the shortest from which on all of them do ("lasting").

No prefix is really translated: as long as a greedy translation agrees, its past is that of the whole translation,
so one forced decoder pass for each prefix length shows where it leaves. `needed_slowly` translates, and tests it.
"""

from typing import Literal

import torch
from torch import Tensor

from whilst.console import track
from whilst.data import Batch, cut_padded, padded
from whilst.dataset import Split
from whilst.decode import translate_batch
from whilst.labels import Labels
from whilst.loop import likeliest
from whilst.model import Translator
from whilst.policy.full import Full
from whilst.search import Reader
from whilst.settings import Limits
from whilst.vocab import EOS, PAD

Agreement = Literal["lasting", "first"]


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
    labels = Labels.empty(split, 1, device)
    # By the source's length, since that is the number of passes.
    order = split.source.lengths.argsort(kind="stable")
    # In the precision of translating, or near ties would tell the two apart.
    with torch.autocast(device.type, enabled=False):
        for chosen in track(cut_padded(split, order, tokens), "comparing prefixes", "batches"):
            batch = padded(split, chosen).to(device)
            labels.keep(batch, needed(model, batch, agreement)[None])
    return labels
