"""Linear layers whose weights are laid out once for the CPU; PyTorch's own are laid out anew at every call.

With few rows in a call, time goes into fetching weights: in 16 bits they are half as many bytes. Inputs, sums and
outputs keep 32 bits, and each row comes out the same whatever the others are. (8-bit layers would scale inputs
by the largest value of the whole batch, and no session may change another's words.)

The calls are not part of PyTorch's promises. Each is tried first (`can_pack`); where one is missing or wrong, fp32
goes on with PyTorch's own layers, and fp16 is refused.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

ROWS = 16  # that the layout of fp32 is made for; others use it as well
State = tuple[Tensor, Tensor]

Layer = Callable[[Tensor, Tensor | None], nn.Module]  # of weight and bias


class Packed32(nn.Module):
    """oneDNN's; these are the calls that torch.compile makes of linear layers."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self.weight, self.bias, "none", [], "")
        return out


class Packed16(nn.Module):
    """FBGEMM's: weights in fp16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weights = torch.ops.quantized.linear_prepack_fp16(
            weight.detach(), None if bias is None else bias.detach()
        )

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self.weights)
        return out


class PackedLSTM(nn.Module):
    """One step of an LSTM, as `torch.lstm_cell`."""

    def __init__(self, core: nn.LSTM, layer: Layer) -> None:
        super().__init__()
        first, second, first_bias, second_bias = core.parameters()
        self.inputs, self.hidden = layer(first, first_bias), layer(second, second_bias)

    def forward(self, inputs: Tensor, state: State) -> State:
        hidden, cell = state
        enter, keep, new, leave = (self.inputs(inputs) + self.hidden(hidden)).chunk(4, -1)
        cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell


PRECISIONS: dict[str, Layer] = {"fp32": Packed32, "fp16": Packed16}


def can_pack(model: nn.Module, precision: str) -> bool:
    first = next(model.parameters())
    return first.device.type == "cpu" and first.dtype == torch.float32 and works(PRECISIONS[precision])


@torch.inference_mode()
def works(layer: Layer) -> bool:
    """Whether this machine and this PyTorch have the calls that such a layer makes, and they multiply."""
    # Whole numbers and halves, so that 16 bits and any order of adding give the same.
    weight = torch.arange(32 * 64).remainder(7).view(32, 64) / 2 - 1
    bias, inputs = torch.arange(32.0), torch.arange(3 * 64).remainder(5).view(3, 1, 64) - 2.0
    try:
        return all(
            torch.equal(layer(weight, added)(inputs), nn.functional.linear(inputs, weight, added))
            for added in (None, bias)
        )
    except (AttributeError, RuntimeError, TypeError):  # no such call, none on this CPU, or with other arguments
        return False


def pack(module: nn.Module, layer: Layer) -> None:
    """Replace all linear layers inside, but for those that give a single number: an agent's odds."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and child.out_features > 1:
            setattr(module, name, layer(child.weight, child.bias))
        elif isinstance(child, nn.LSTM):
            setattr(module, name, PackedLSTM(child, layer))
        else:
            pack(child, layer)
