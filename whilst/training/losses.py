"""The losses of the training stages, each summed over the tokens of a batch that are not padding."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whilst.data.batches import Batch
from whilst.data.vocabulary import PAD
from whilst.model.transformer import Translator


def cross_entropy(model: Translator, states: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with label smoothing: (rows, target, width) decoder states, (rows, target) labels."""
    if states.device.type == "cpu":
        real = labels != PAD
        output = model.target_embedding.weight
        found: Tensor = ChunkedCrossEntropy.apply(states[real], output, labels[real], smoothing)  # type: ignore[no-untyped-call]
        return found
    return F.cross_entropy(
        model.many_logits(states).flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )


class ChunkedCrossEntropy(torch.autograd.Function):
    """Output layer, softmax and loss for a few tokens at a time, with the gradients: for CPUs.

    Logits of a whole batch do not fit into a CPU's cache, and allocating them takes longer than computing them.
    """

    TOKENS = 256  # in a chunk

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """(tokens, width) states, (units, width) weights of the output layer, (tokens) labels."""
        kind = torch.bfloat16 if torch.is_autocast_enabled("cpu") else states.dtype
        wanted = any(ctx.needs_input_grad)
        total, units = torch.zeros((), dtype=torch.promote_types(states.dtype, torch.float32)), len(weight)
        to_states, to_weight, output = [], torch.zeros_like(weight) if wanted else weight, weight.to(kind)
        with torch.autocast("cpu", enabled=False):
            size = ChunkedCrossEntropy.TOKENS
            for begin in range(0, len(states), size):
                inputs, label = states[begin : begin + size].to(kind), labels[begin : begin + size, None]
                logits = (inputs @ output.T).to(total.dtype)
                logits -= logits.amax(1, keepdim=True)
                total -= (1 - smoothing) * logits.gather(1, label).sum() + smoothing * logits.mean(1).sum()
                sums = logits.exp_().sum(1, keepdim=True)
                total += sums.log().sum()
                if wanted:
                    logits.div_(sums).sub_(smoothing / units)
                    logits.scatter_add_(1, label, logits.new_full(label.shape, smoothing - 1))
                    gradient = logits.to(kind)
                    to_states.append((gradient @ output).to(states.dtype))
                    to_weight += gradient.T @ inputs
        if wanted:
            ctx.save_for_backward(torch.cat(to_states) if to_states else torch.zeros_like(states), to_weight)
        return total

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_states, to_weight = ctx.saved_tensors
        return to_states * scale, to_weight * scale, None, None


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
