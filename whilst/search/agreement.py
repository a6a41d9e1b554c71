"""Labels of the translation-based policy: how much must be read before a token is what it will be in the end?

The target side is the model's own translation of the whole source, not the reference. With agreement "token" a
token needs the fewest reads, not fewer than the token before it, with which it is written as in that translation
(the minimum of Alinejad et al. 2021); at most the whole source. With "within" a binary search in an interval looks
for such reads, and takes the end of the interval if it finds none (`agreeing`).

For "token" no prefix is decoded: as long as a greedy translation agrees, its past is that of the whole translation,
so one forced decoder pass for each prefix length is enough. `reference.needed` is the slow equivalent.
"""

from dataclasses import replace

import torch
from torch import Tensor

from whilst.core.console import progress_bar
from whilst.core.settings import Search
from whilst.data.batches import Batch, pad_batch, padded_chunks
from whilst.data.dataset import Split
from whilst.data.vocabulary import PAD
from whilst.model.transformer import Translator, likeliest
from whilst.search.binary_search import Reader
from whilst.search.labels import Labels


@torch.no_grad()
def needed(model: Translator, batch: Batch) -> Tensor:
    """(rows, target) reads of a padded batch whose targets are the model's own translations: never falling."""
    reader = Reader(model, batch)
    lengths, real = batch.source_lengths, batch.labels != PAD
    needs, known = lengths.expand_as(batch.labels), torch.zeros_like(real)
    for count in range(1, int(lengths.max())):
        logits = reader.logits(lengths.clamp(max=count))
        right = likeliest(logits.flatten(0, 1)).view_as(batch.labels) == batch.labels
        known = (right | known | ~real).long().cumprod(1).bool()  # what was written stays
        needs = torch.where((count < lengths) & known, needs.clamp(max=count), needs)
    return needs


def agreeing(search: Search) -> Search:
    """The search of agreement "within", on the model's own translations: where is each token the likeliest?

    It halves the interval, so a place that it finds agrees, but need not be the first that does; and on a GPU it
    runs in bfloat16, where near ties may fall otherwise than they did in translating.
    """
    return replace(search, condition="ground-truth", target="reference", tolerance=0.0)


def find_agreement(model: Translator, split: Split, tokens: int) -> Labels:
    """The labels of a whole split of the model's own translations; the model must be in eval mode."""
    device = model.target_embedding.weight.device
    labels = Labels.empty(split, 1, device)
    # By the source's length, since that is the number of passes.
    order = split.source.lengths.argsort(kind="stable")
    # In the precision of translating, or near ties would tell the two apart.
    with torch.autocast(device.type, enabled=False):
        for chosen in progress_bar(padded_chunks(split, order, tokens), "comparing prefixes", "batches"):
            batch = pad_batch(split, chosen).to(device)
            labels.keep(batch, needed(model, batch)[None])
    return labels
