"""Linear layers whose weights are laid out once as the CPU's library wants them; else it does so at every call.

With the few rows of a call that takes about a third of its time. The products stay what they are, in 32 bits, and
each row is computed by itself: PyTorch's 8-bit layers would scale their inputs by the largest value of the whole
batch, and no session may change another's words.
"""

import torch
from torch import Tensor, nn

ROWS = 16  # that the layout is made for; others use it as well


class Packed(nn.Module):
    """oneDNN does the work; these are the calls that torch.compile makes of linear layers."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self.weight, self.bias, "none", [], "")
        return out


def can_pack(model: nn.Module) -> bool:
    first = next(model.parameters())
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and first.device.type == "cpu" and first.dtype == torch.float32


def pack(module: nn.Module) -> None:
    """Replace all linear layers inside, but for those that give a single number: an agent's odds."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and child.out_features > 1:
            setattr(module, name, Packed(child.weight, child.bias))
        else:
            pack(child)
