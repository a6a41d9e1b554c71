"""Linear layers that multiply in bfloat16, for CPUs that do so in hardware. Everything else keeps its precision.

The models were trained with such products. Each row is still computed by itself: 8-bit products would be faster,
but PyTorch scales their inputs by the largest value of the whole batch, and no session may change another's words.
"""

import torch.nn.functional as F
from torch import Tensor, nn


class Rounded(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight.detach().bfloat16()
        self.bias = linear.bias.detach().bfloat16()

    def forward(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs.bfloat16(), self.weight, self.bias).to(inputs.dtype)


def round_linears(module: nn.Module) -> None:
    """Replace all linear layers inside, but for those that give a single number: an agent's odds."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and child.out_features > 1:
            setattr(module, name, Rounded(child))
        else:
            round_linears(child)
