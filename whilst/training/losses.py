"""The losses of the training stages, each summed over the tokens of a batch that are not padding."""

import torch.nn.functional as F
from torch import Tensor

from whilst.core.settings import Objective
from whilst.data.batches import Batch
from whilst.data.vocabulary import PAD
from whilst.model.monotonic_attention import MonotonicPass, expected_latency
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


def latency_cost(objective: Objective, batch: Batch, monotonic: MonotonicPass) -> Tensor:
    """The weighted latency of monotonic heads (MMA)."""
    return expected_latency(
        monotonic.delays, batch.source_lengths, batch.target_lengths, batch.labels != PAD, objective.latency_average
    )
