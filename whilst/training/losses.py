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
        loss: Tensor = ChunkedCrossEntropy.apply(states[real], output, labels[real], smoothing)  # type: ignore[no-untyped-call]
        return loss
    return F.cross_entropy(
        model.many_logits(states).flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )


class ChunkedCrossEntropy(torch.autograd.Function):
    """Output layer, softmax and loss in chunks of tokens, for CPUs. The forward pass also computes the gradients.

    Logits of a whole batch do not fit into a CPU's cache, and allocating them takes longer than computing them.
    """

    TOKENS = 256  # in a chunk

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """(tokens, width) states, (units, width) weights of the output layer, (tokens) labels."""
        dtype = torch.bfloat16 if torch.is_autocast_enabled("cpu") else states.dtype
        needs_grad = any(ctx.needs_input_grad)
        total, units = torch.zeros((), dtype=torch.promote_types(states.dtype, torch.float32)), len(weight)
        states_grads, weight_grad = [], torch.zeros_like(weight) if needs_grad else weight
        output = weight.to(dtype)
        with torch.autocast("cpu", enabled=False):
            size = ChunkedCrossEntropy.TOKENS
            for begin in range(0, len(states), size):
                inputs, label = states[begin : begin + size].to(dtype), labels[begin : begin + size, None]
                logits = (inputs @ output.T).to(total.dtype)
                logits -= logits.amax(1, keepdim=True)
                total -= (1 - smoothing) * logits.gather(1, label).sum() + smoothing * logits.mean(1).sum()
                sums = logits.exp_().sum(1, keepdim=True)
                total += sums.log().sum()
                if needs_grad:
                    logits.div_(sums).sub_(smoothing / units)
                    logits.scatter_add_(1, label, logits.new_full(label.shape, smoothing - 1))
                    gradient = logits.to(dtype)
                    states_grads.append((gradient @ output).to(states.dtype))
                    weight_grad += gradient.T @ inputs
        if needs_grad:
            states_grad = torch.cat(states_grads) if states_grads else torch.zeros_like(states)
            ctx.save_for_backward(states_grad, weight_grad)
        return total

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states_grad, weight_grad = ctx.saved_tensors
        return states_grad * scale, weight_grad * scale, None, None


def r_drop(
    model: Translator, states: tuple[Tensor, Tensor], labels: Tensor, smoothing: float, weight: float
) -> Tensor:
    """R-Drop (Liang et al., 2021): the mean cross-entropy of two passes with different dropout masks, plus
    weight / 4 times KL(p, q) + KL(q, p). With the factor 1/4, weights are on the scale of that paper, where 5 suits
    small corpora. `states`: (rows, target, width) of each pass."""
    first, second = (cross_entropy(model, each, labels, smoothing) for each in states)
    p, q = (model.many_logits(each).flatten(0, 1).float().log_softmax(-1) for each in states)
    symmetric = ((p.exp() - q.exp()) * (p - q)).sum(-1)
    return (first + second) / 2 + weight / 4 * (symmetric * (labels.flatten() != PAD)).sum()


def divergence(model: Translator, states: Tensor, belief: Tensor, labels: Tensor) -> Tensor:
    """KL(p, q) of the predictions p from `belief`, without gradient, and q from `states`: (rows, target, width)."""
    p, q = (model.many_logits(each).flatten(0, 1).float().log_softmax(-1) for each in (belief, states))
    p = p.detach()
    return ((p.exp() * (p - q)).sum(-1) * (labels.flatten() != PAD)).sum()


def latency_cost(delays: Sequence[Tensor], batch: Batch, weight: float) -> Tensor:
    """`weight` times the differentiable average lagging of monotonic heads (MMA), summed over sentences.

    `delays`: (rows, heads, target) for each layer. The delay of a token is the mean of its delays over heads and
    layers, weighted by the softmax of these delays: the latest heads weigh most, since the token waits for them.
    """
    reads = torch.cat(list(delays), 1)  # (rows, layers * heads, target)
    delay = (reads.softmax(1) * reads).sum(1)
    position = torch.arange(delay.shape[1], device=delay.device)
    # As in DAL, the lag of a token is not less than that of the token before.
    lag = (delay - position * batch.source_lengths / batch.target_lengths).cummax(1).values
    return (weight * lag * (batch.labels != PAD) / batch.target_lengths).sum()
