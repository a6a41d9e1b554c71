"""Linear layers whose weights are reordered once for the CPU; PyTorch reorders them in every call.

With few rows in a call, time goes into loading weights: fp16 halves their size. Inputs, sums and outputs are fp32.

Rows are computed independently, but not bit for bit: depending on the CPU, kernels for other numbers of rows add in
another order, as attention does for other lengths. So a session's states vary by about 1e-6 with the others in its
batch, and its words only where two units are that close. Dynamic int8 is not offered: it scales the inputs by the
largest value of the batch.

The calls are not public API of PyTorch, so each is tried first (`can_prepack`). If one is missing or wrong, fp32
keeps the layers of PyTorch and fp16 is refused.
"""

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from whilst.model.transformer import Translator

ROWS = 16  # that the fp32 layout is optimised for; it works for any number
State = tuple[Tensor, Tensor]
Module = TypeVar("Module", bound=nn.Module)

Layer = Callable[[Tensor, Tensor | None], nn.Module]  # of weight and bias


class Prepacked32(nn.Module):
    """By oneDNN, with the calls that torch.compile makes for linear layers."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self.weight, self.bias, "none", [], "")
        return out


class Prepacked16(nn.Module):
    """By FBGEMM, with weights in fp16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weights = torch.ops.quantized.linear_prepack_fp16(
            weight.detach(), None if bias is None else bias.detach()
        )

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self.weights)
        return out


class PrepackedLSTM(nn.Module):
    """One step of an LSTM, as `torch.lstm_cell`."""

    def __init__(self, core: nn.LSTM, layer: Layer) -> None:
        super().__init__()
        first, second, first_bias, second_bias = core.parameters()
        self.inputs, self.hidden = layer(first, first_bias), layer(second, second_bias)

    def forward(self, inputs: Tensor, state: State) -> State:
        hidden, cell = state
        enter, forget, new, output = (self.inputs(inputs) + self.hidden(hidden)).chunk(4, -1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return output.sigmoid() * cell.tanh(), cell


PRECISIONS: dict[str, Layer] = {"fp32": Prepacked32, "fp16": Prepacked16}


@torch.inference_mode()
def can_prepack(model: nn.Module, precision: str) -> bool:
    """Whether such layers work for this model, on this machine and with this PyTorch."""
    first, layer = next(model.parameters()), PRECISIONS[precision]
    if first.device.type != "cpu" or first.dtype != torch.float32:
        return False
    # Integers and halves: exact in fp16 and in any order of addition.
    weight = torch.arange(32 * 64).remainder(7).view(32, 64) / 2 - 1
    bias, inputs = torch.arange(32.0), torch.arange(3 * 64).remainder(5).view(3, 1, 64) - 2.0
    try:
        return all(
            torch.equal(layer(weight, added)(inputs), nn.functional.linear(inputs, weight, added))
            for added in (None, bias)
        )
    except (AttributeError, RuntimeError, TypeError):  # no such call, not on this CPU, or other arguments
        return False


def prepack(module: nn.Module, layer: Layer) -> None:
    """Replace all linear layers and LSTMs inside, except layers with a single output: an agent's log-odds."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and child.out_features > 1:
            setattr(module, name, layer(child.weight, child.bias))
        elif isinstance(child, nn.LSTM):
            setattr(module, name, PrepackedLSTM(child, layer))
        else:
            prepack(child, layer)


@torch.no_grad()
def prepacked_copy(model: Translator) -> Translator:
    """A copy with fp32 layers for decoding on a CPU, which shares all other tensors with the model.

    The model itself, if it is on a GPU or this machine has no such layers.
    """
    if not can_prepack(model, "fp32"):
        return model
    copied = _shallow_copy(model)
    prepack(copied, Prepacked32)
    copied.prepacked_output = Prepacked32(model.target_embedding.weight, None)
    return copied


def _shallow_copy(module: Module) -> Module:
    """New modules with the same tensors."""
    copied = copy.copy(module)
    copied._modules = {name: child and _shallow_copy(child) for name, child in module._modules.items()}
    return copied
