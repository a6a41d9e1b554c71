"""The losses of the training stages, each summed over the tokens of a batch that are not padding."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from whilst.data.batches import Batch
from whilst.data.vocabulary import PAD
from whilst.model.transformer import Translator


def cross_entropy(model: Translator, states: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with label smoothing: (rows, target, width) decoder states, (rows, target) labels."""
    return F.cross_entropy(
        model.many_logits(states).flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )


def r_drop(
    model: Translator, states: tuple[Tensor, Tensor], labels: Tensor, smoothing: float, weight: float
) -> Tensor:
    """R-Drop (Liang et al., 2021): the mean cross-entropy of two passes with different dropout masks, plus
    weight / 4 times KL(p, q) + KL(q, p). The quarter keeps the paper's scale, where 5 suits small corpora."""
    first, second = (cross_entropy(model, one, labels, smoothing) for one in states)
    p, q = (model.many_logits(one).flatten(0, 1).float().log_softmax(-1) for one in states)
    symmetric = ((p.exp() - q.exp()) * (p - q)).sum(-1)
    return (first + second) / 2 + weight / 4 * (symmetric * (labels.flatten() != PAD)).sum()


def divergence(model: Translator, states: Tensor, belief: Tensor, labels: Tensor) -> Tensor:
    """KL(p, q) of the predictions from `belief` (p, no gradient) and from `states` (q): (rows, target, width)."""
    p, q = (model.many_logits(one).flatten(0, 1).float().log_softmax(-1) for one in (belief, states))
    p = p.detach()
    return ((p.exp() * (p - q)).sum(-1) * (labels.flatten() != PAD)).sum()


def latency_cost(delays: Sequence[Tensor], batch: Batch, weight: float) -> Tensor:
    """`weight` times the differentiable average lagging of monotonic heads (MMA), summed over sentences.

    `delays`: of each layer, (rows, heads, target). The delay of a token is their mean, weighted by their softmax:
    the latest heads count most, since a token waits for them.
    """
    reads = torch.cat(list(delays), 1)  # (rows, layers * heads, target)
    delay = (reads.softmax(1) * reads).sum(1)
    position = torch.arange(delay.shape[1], device=delay.device)
    # A token cannot lag less than the one before: that makes this average lagging differentiable.
    lag = (delay - position * batch.source_lengths / batch.target_lengths).cummax(1).values
    return (weight * lag * (batch.labels != PAD) / batch.target_lengths).sum()
