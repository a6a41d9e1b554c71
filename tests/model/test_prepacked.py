"""Linear layers with weights that are reordered for the CPU."""

import copy

import pytest
import torch
from torch import nn

from whilst.model.agent import recurrent_step
from whilst.model.prepacked import (
    PRECISIONS,
    Prepacked16,
    Prepacked32,
    PrepackedLSTM,
    can_prepack,
    prepack,
    prepacked_copy,
)
from whilst.model.transformer import Translator


@pytest.mark.parametrize("precision", PRECISIONS)
def test_prepacked_layers_are_the_same(model: Translator, precision: str) -> None:
    """And rows depend on the number of rows by rounding only, which is all that holds on every CPU."""
    model = copy.deepcopy(model).float()
    assert can_prepack(model, precision)
    rounding = 2**-11 if precision == "fp16" else 2**-20  # of a product
    plain = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    prepack(model, PRECISIONS[precision])
    assert not [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    prepacked = [layer for layer in model.modules() if isinstance(layer, Prepacked32 | Prepacked16)]
    for layer, other in zip(plain, prepacked, strict=True):
        states = torch.randn(40, 1, layer.in_features)
        out = other(states)
        magnitude = states.abs() @ layer.weight.abs().T + layer.bias.abs()
        assert ((out - layer(states)).abs() <= rounding * magnitude).all()
        for rows in (slice(0, 1), slice(7, 9), slice(3, 33)):
            torch.testing.assert_close(other(states[rows]), out[rows], rtol=0, atol=2e-5)


def test_a_prepacked_agent_is_the_same() -> None:
    core = nn.LSTM(6, 4, batch_first=True)
    packed = PrepackedLSTM(core, Prepacked32)
    inputs, state = torch.randn(3, 6), (torch.randn(3, 4), torch.randn(3, 4))
    torch.testing.assert_close(recurrent_step(core, inputs, state), recurrent_step(packed, inputs, state))


def test_a_prepacked_copy_shares_what_it_does_not_replace(model: Translator) -> None:
    model = copy.deepcopy(model).float()
    before = {name: id(module) for name, module in model.named_modules()}
    copied = prepacked_copy(model)
    assert {name: id(module) for name, module in model.named_modules()} == before
    assert model.prepacked_output is None
    assert copied.target_embedding.weight is model.target_embedding.weight
    assert not [layer for layer in copied.modules() if isinstance(layer, nn.Linear)]
    source, lengths = torch.randint(4, 9, (3, 5)), torch.tensor([5, 3, 4])
    states = model.encode_whole(source, lengths)
    torch.testing.assert_close(copied.encode_whole(source, lengths), states, rtol=0, atol=1e-5)
    torch.testing.assert_close(copied.logits(states), model.logits(states), rtol=0, atol=1e-5)
