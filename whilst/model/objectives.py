"""What each training stage minimises: the smoothed cross-entropy of the reference under some reads."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from whilst.core.settings import Objective
from whilst.data.batches import Batch, Tokens
from whilst.data.vocabulary import PAD
from whilst.model import reads
from whilst.model.attention import Mask, block_mask, dense_mask
from whilst.model.monotonic_attention import Delays, latency
from whilst.model.transformer import Translator

Reads = Callable[[Objective, Batch, torch.Generator], Tensor]


def full(_: Objective, batch: Batch, __: torch.Generator) -> Tensor:
    return reads.full(batch.source_lengths)


def wait_k(objective: Objective, batch: Batch, _: torch.Generator) -> Tensor:
    return reads.wait_k(objective.k, batch.target_at.position, batch.source_lengths)


def multi_path(objective: Objective, batch: Batch, random: torch.Generator) -> Tensor:
    """k uniform in [1, J] or up to `longest`, or J itself: one for each sentence, or one for the batch (paper)."""
    device = batch.source_lengths.device
    most = batch.source_lengths.clamp(max=objective.longest) if objective.longest else batch.source_lengths

    def draw() -> Tensor:
        if objective.draw == "batch":
            return torch.rand((), generator=random).to(device)
        # Drawn on the host, so that every device and every number of processes draws the same.
        draws = torch.rand(batch.sentences + 1, generator=random).to(device, non_blocking=True)
        return draws[batch.target_at.segment]

    k = reads.draw_k(most.max() if objective.draw == "batch" else most, draw())
    if objective.whole:
        k = torch.where(draw() < objective.whole, batch.source_lengths, k)
    return reads.wait_k(k, batch.target_at.position, batch.source_lengths)


# Monotone heads decide for themselves how much they see of what is there.
READS: dict[str, Reads] = {"full": full, "wait-k": wait_k, "multi-path": multi_path, "mma": full}


def mask(batch: Batch, queries: Tokens, limit: Tensor, keys: Tokens) -> Mask:
    """The rule of visibility in the batch's own layout."""
    return (block_mask if batch.packed else dense_mask)(queries, limit, keys)


def encoder_mask(batch: Batch, bidirectional: bool) -> Mask:
    """What source tokens see of each other."""
    source = batch.source_at
    looks = torch.full_like(source.position, 1 << 30) if bidirectional else source.position + 1
    return mask(batch, source, looks, source)


def encoded(model: Translator, batch: Batch) -> Tensor:
    """Encoder states: (rows, source, width)."""
    return model.encode(batch.source, batch.source_at.position, encoder_mask(batch, model.bidirectional))


def causal_mask(batch: Batch) -> Mask:
    """What target tokens see of each other."""
    target = batch.target_at
    return mask(batch, target, target.position + 1, target)


def cross_mask(batch: Batch, seen: Tensor) -> Mask:
    """What target tokens see of the source under these reads."""
    return mask(batch, batch.target_at, seen, batch.source_at)


def decoded(model: Translator, batch: Batch, seen: Tensor, walk: Delays | None = None) -> Tensor:
    """Decoder states of every target token under these reads: (rows, target, width)."""
    source = encoded(model, batch)
    positions = batch.target_at.position
    return model.decode(batch.target, positions, source, causal_mask(batch), cross_mask(batch, seen), walk)


def cross_entropy(model: Translator, states: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Summed over all tokens that are not padding."""
    return F.cross_entropy(
        model.many_logits(states).flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )


def waiting(objective: Objective, batch: Batch, walk: Delays) -> Tensor:
    """What the delays of monotone heads cost, summed over the sentences."""
    weights = objective.latency_average, objective.latency_variance
    return latency(walk, batch.source_lengths, batch.target_lengths, batch.labels != PAD, *weights)


def divergence(model: Translator, states: Tensor, belief: Tensor, labels: Tensor) -> Tensor:
    """KL from what the states of a belief predict to what others do, summed; the belief is given, not taught."""
    p, q = (model.many_logits(one).flatten(0, 1).float().log_softmax(-1) for one in (belief, states))
    p = p.detach()
    return ((p.exp() * (p - q)).sum(-1) * (labels.flatten() != PAD)).sum()


def agreeing_cross_entropy(
    model: Translator, states: tuple[Tensor, Tensor], labels: Tensor, smoothing: float, weight: float
) -> Tensor:
    """The mean of two passes' cross-entropies, plus weight / 4 times the divergences between them, both ways.

    R-Drop (Liang et al., 2021); the quarter keeps its scale of weights, where 5 suits small corpora.
    """
    first, second = (cross_entropy(model, one, labels, smoothing) for one in states)
    p, q = (model.many_logits(one).flatten(0, 1).float().log_softmax(-1) for one in states)
    apart = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # KL(p, q) + KL(q, p)
    return (first + second) / 2 + weight / 4 * (apart * (labels.flatten() != PAD)).sum()
