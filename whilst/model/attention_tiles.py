"""Smaller tiles for FlexAttention. A sentence is shorter than its default ones, most of which are then masked."""

from types import SimpleNamespace
from typing import Any

import torch

from whilst.model.attention import Tiles

SIDE = 64
ROOM = 160_000  # bytes of shared memory; a backward pass with heads of 128 needs some 100,000 of them


def forward(*_: Any) -> list[Any]:
    return [SimpleNamespace(block_m=SIDE, block_n=SIDE, num_stages=2, num_warps=4)]


def backward(*_: Any) -> list[Any]:
    sides = dict.fromkeys(("block_m", "block_n", "block_m1", "block_n1", "block_m2", "block_n2"), SIDE)
    return [SimpleNamespace(**sides, num_stages=2, num_warps=4)]


def use_small_tiles(device: torch.device) -> None:
    """From now on, in the whole process: what is compiled already stays as it is. GPUs without room keep theirs.

    The defaults of some GPUs are too large for a mask of such tiles, and kernel options of flex_attention come too
    late to change that: by then it has found that none fits. Of the class, since what is chosen otherwise holds for
    one thread only, and the backward pass is compiled in another.
    """
    from torch._inductor.choices import InductorChoices

    if torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor < ROOM:
        return
    if "get_flex_attention_bwd_configs" not in vars(InductorChoices):
        return  # this torch asks elsewhere: its own tiles then, which are right and slower
    InductorChoices.get_flex_attention_fwd_configs = forward  # type: ignore[method-assign, assignment]
    InductorChoices.get_flex_attention_bwd_configs = backward  # type: ignore[method-assign, assignment]
    Tiles.side = SIDE
