"""Two presets of AdamW and its learning rate, and the moving average of the weights."""

import copy
import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from whilst.core.settings import Train


@dataclass(frozen=True)
class Preset:
    lr: float
    warmup: int
    weight_decay: float
    clip: float  # largest gradient norm; 0: off
    schedule: Literal["inverse-sqrt", "linear"]


PRESETS = {
    # Appendix A of the paper.
    "paper": Preset(lr=5e-4, warmup=4000, weight_decay=1e-4, clip=0.0, schedule="inverse-sqrt"),
    # For large batches and few steps: a higher peak, then linear decay to zero.
    "fast": Preset(lr=1e-3, warmup=1000, weight_decay=1e-2, clip=1.0, schedule="linear"),
}


def preset_of(settings: Train) -> Preset:
    """The preset that the recipe names, with the values that the recipe sets itself."""
    names = "lr", "warmup", "weight_decay", "clip"
    overrides = {name: value for name in names if (value := getattr(settings, name)) is not None}
    return replace(PRESETS[settings.preset], **overrides)


def learning_rate(preset: Preset, step: int, steps: int) -> float:
    """The learning rate of update `step`, counted from 1."""
    if step <= preset.warmup:
        return 1e-7 + (preset.lr - 1e-7) * step / preset.warmup
    if preset.schedule == "inverse-sqrt":
        return preset.lr * math.sqrt(max(preset.warmup, 1) / step)
    return preset.lr * max(0.0, (steps - step + 1) / (steps - preset.warmup + 1))


def adam(model: nn.Module, preset: Preset) -> torch.optim.AdamW:
    """AdamW. Weights of one dimension or none (gains, biases, normalisation) are not decayed."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": preset.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=preset.lr, betas=(0.9, 0.98), eps=1e-8, fused=True)


def add_gradients(model: nn.Module, loss: Tensor) -> None:
    """Like `loss.backward()`, for parameters that all have a gradient tensor: one kernel adds to all of them."""
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = [(p.grad, new) for p, new in zip(parameters, gradients, strict=True) if new is not None]
    sums, parts = [old for old, _ in pairs if old is not None], [new for _, new in pairs]
    assert len(sums) == len(parts), "every parameter needs a gradient tensor"
    torch._foreach_add_(sums, parts)


def copy_module(model: nn.Module) -> nn.Module:
    """A deep copy, in which the weights of LSTMs and GRUs are contiguous again, as cuDNN expects."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()
    return copied


@torch.no_grad()
def update_average(averaged: nn.Module, model: nn.Module, decay: float) -> None:
    """averaged <- decay * averaged + (1 - decay) * model, for all weights at once."""
    averages: list[Tensor] = list(averaged.parameters())
    torch._foreach_lerp_(averages, list(model.parameters()), 1 - decay)
