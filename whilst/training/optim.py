"""How weights move: two presets of AdamW and its learning rate, and the moving average of the weights."""

import copy
import math
from dataclasses import dataclass
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
    # Large batches and few steps: a higher peak, and a descent to zero in place of a long tail.
    "fast": Preset(lr=1e-3, warmup=1000, weight_decay=1e-2, clip=1.0, schedule="linear"),
}


def choose(settings: Train) -> Preset:
    """The preset with whatever the recipe sets in its place."""
    preset = PRESETS[settings.preset]
    return Preset(
        preset.lr if settings.lr is None else settings.lr,
        preset.warmup if settings.warmup is None else settings.warmup,
        preset.weight_decay if settings.weight_decay is None else settings.weight_decay,
        preset.clip if settings.clip is None else settings.clip,
        preset.schedule,
    )


def learning_rate(preset: Preset, step: int, steps: int) -> float:
    """The rate of update `step`, counted from 1."""
    if step <= preset.warmup:
        return 1e-7 + (preset.lr - 1e-7) * step / preset.warmup
    if preset.schedule == "inverse-sqrt":
        return preset.lr * math.sqrt(max(preset.warmup, 1) / step)
    return preset.lr * max(0.0, (steps - step + 1) / (steps - preset.warmup + 1))


def adam(model: nn.Module, preset: Preset) -> torch.optim.AdamW:
    """AdamW; gains, biases and norms are not decayed."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": preset.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    fused = parameters[0].device.type == "cuda"
    return torch.optim.AdamW(groups, lr=preset.lr, betas=(0.9, 0.98), eps=1e-8, fused=fused)


def add_gradients(model: nn.Module, loss: Tensor) -> None:
    """`loss.backward()` where all gradients exist already.

    That adds them one by one, which for many small ones is nothing but launches of kernels; this adds all at once.
    """
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    kept = [(p.grad, new) for p, new in zip(model.parameters(), found, strict=True) if new is not None]
    sums, parts = [old for old, _ in kept if old is not None], [new for _, new in kept]
    assert len(sums) == len(parts), "gradients are added to those that are there"
    torch._foreach_add_(sums, parts)


def duplicate(model: nn.Module) -> nn.Module:
    """A copy. cuDNN wants the weights of an LSTM in one piece, and a copy has them in several."""
    made = copy.deepcopy(model)
    for part in made.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()
    return made


@torch.no_grad()
def average_into(averaged: nn.Module, model: nn.Module, decay: float) -> None:
    """averaged <- decay * averaged + (1 - decay) * model, for every weight at once."""
    mine: list[Tensor] = list(averaged.parameters())
    torch._foreach_lerp_(mine, list(model.parameters()), 1 - decay)
