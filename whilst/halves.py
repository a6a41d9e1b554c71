"""A translator's copy for passes without gradients: its linear layers have 16-bit weights, all else it shares.

Under autocast it does the same to the bit. But autocast turns every weight into 16 bits again in every pass, and a
search makes many: two small kernels for each linear layer.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from whilst.model import Translator


def linear_weights(model: nn.Module) -> list[Tensor]:
    return [one for part in model.modules() if isinstance(part, nn.Linear) for one in part.parameters()]


@dataclass(frozen=True)
class Halved:
    model: Translator  # the copy, in eval mode
    halves: list[Tensor]
    wholes: list[Tensor]

    @classmethod
    def of(cls, model: Translator) -> "Halved":
        wholes = linear_weights(model)
        own = set(map(id, wholes))
        shared = {id(one): one for one in (*model.parameters(), *model.buffers()) if id(one) not in own}
        copied = copy.deepcopy(model, shared)  # which it takes for copied already
        for part in copied.modules():
            if isinstance(part, nn.Linear):
                part.bfloat16().requires_grad_(False)
        return cls(copied.eval(), linear_weights(copied), wholes)

    @torch.no_grad()
    def refresh(self) -> Translator:
        """The copy with the weights as they are now."""
        torch._foreach_copy_(self.halves, self.wholes)
        return self.model
