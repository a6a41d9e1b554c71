"""Labels of the translation-based policy (Alinejad et al. 2021): when does a prefix give the final translation?

The target side is the model's own translation of the whole source, not the reference. With agreement "token", a
token needs the fewest reads, not fewer than the token before, after which the model writes it as in that
translation; at most the whole source. With "within", a binary search looks for such reads in an interval
(`bounded_agreement`).

For "token" no prefix is translated. As long as a greedy translation agrees, its past is that of the whole
translation, so one forced decoder pass for each prefix length shows the next token. `reference.needed` is the slow
equivalent.
"""

from dataclasses import replace

import torch
from torch import Tensor

from whilst.core.console import progress_bar
from whilst.core.settings import Search
from whilst.data.batches import Batch, pad_batch, padded_chunks
from whilst.data.dataset import Split
from whilst.data.vocabulary import PAD
from whilst.model.transformer import Translator, most_likely
from whilst.search.binary_search import PathDecoder
from whilst.search.labels import Labels


@torch.no_grad()
def agreement_reads(model: Translator, batch: Batch) -> Tensor:
    """(rows, target) non-decreasing reads of a padded batch whose targets are the model's own translations."""
    decoder = PathDecoder(model, batch)
    lengths, real = batch.source_lengths, batch.labels != PAD
    reads, agreed = lengths.expand_as(batch.labels), torch.zeros_like(real)
    for count in range(1, int(lengths.max())):
        logits = decoder.logits(lengths.clamp(max=count))
        same = most_likely(logits.flatten(0, 1)).view_as(batch.labels) == batch.labels
        agreed = (same | agreed | ~real).long().cumprod(1).bool()  # a token that was written stays
        reads = torch.where((count < lengths) & agreed, reads.clamp(max=count), reads)
    return reads


def bounded_agreement(search: Search) -> Search:
    """The search of agreement "within": is the token of the model's own translation the most probable one at m?

    As a binary search it need not find the smallest such reads, and it takes the end of the interval if there are
    none. On a GPU it runs in bfloat16, where near ties may be decided otherwise than in translating.
    """
    return replace(search, condition="ground-truth", target="reference", tolerance=0.0)


def find_agreement_labels(model: Translator, split: Split, tokens: int) -> Labels:
    """The labels of a split whose targets are the model's own translations; the model must be in eval mode."""
    device = model.target_embedding.weight.device
    labels = Labels.empty(split, 1, device)
    order = split.source.lengths.argsort(kind="stable")  # the source length is the number of passes
    # In the precision of translating, or near ties would differ.
    with torch.autocast(device.type, enabled=False):
        for chosen in progress_bar(padded_chunks(split, order, tokens), "comparing prefixes", "batches"):
            batch = pad_batch(split, chosen).to(device)
            labels.store(batch, agreement_reads(model, batch)[None])
    return labels
