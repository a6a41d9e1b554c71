"""Shortcuts of training: what they leave out is not missed."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from whilst.core.settings import Model
from whilst.data.batches import pad_batch
from whilst.data.dataset import Split
from whilst.data.vocabulary import PAD
from whilst.model.layers import RANGE, Dropout
from whilst.model.transformer import Translator, decode_batch
from whilst.training.losses import cross_entropy

Make = Callable[..., Translator]


def taught(model: Translator, split: Split) -> list[Tensor]:
    """Loss and gradients in training, everything drawn anew from one seed."""
    torch.manual_seed(3)
    batch = pad_batch(split, np.arange(12))
    loss = cross_entropy(model.train(), decode_batch(model, batch, batch.source_lengths), batch.labels, 0.1)
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_folded_norms_equal_norms(tiny: Model, translator: Make, split: Split, norm: Any) -> None:
    """The same loss, and the same gradient of every weight."""
    model = translator(dataclasses.replace(tiny, norm=norm, dropout=0.0))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.uniform_(0.5, 2.0)
    folded = copy.deepcopy(model)
    folded.enable_fast_paths()
    for one, other in zip(taught(model, split), taught(folded, split), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)  # the loss is taken in single precision


def test_norms_are_folded_in_training_only(tiny: Model, translator: Make) -> None:
    model = translator(tiny)
    model.enable_fast_paths()
    around = model.encoder[0].get_submodule("attention_sublayer")
    states = torch.randn(2, 3, tiny.width, dtype=torch.float64)
    assert around.before(states)[1] is None  # type: ignore[operator]
    model.train()
    assert around.before(states)[1] is around.norm  # type: ignore[operator]


@pytest.mark.parametrize("chance", [0.1, 0.3, 0.5])
def test_predrawn_dropout_drops_the_right_share(chance: float) -> None:
    """Over all 16-bit numbers the share is the probability, and the mean stays."""
    random = torch.arange(-RANGE // 2, RANGE // 2).to(torch.int16)
    states = torch.ones(RANGE, dtype=torch.float64, requires_grad=True)
    kept = Dropout(chance)(states, random)
    assert int((kept == 0).sum()) == round(chance * RANGE)
    assert float(kept.detach().mean()) == pytest.approx(1.0, rel=1e-12)
    (gradient,) = torch.autograd.grad(kept.sum(), states)
    assert torch.equal(gradient, kept)


def test_predrawn_numbers_are_uniform_and_reproducible(tiny: Model, translator: Make) -> None:
    model = translator(tiny).train()
    states = torch.zeros(40, 50, tiny.width)
    layer = model.decoder[0]
    assert model.draw_dropout(layer, states) is None
    model.enable_fast_paths()
    torch.manual_seed(1)
    random = model.draw_dropout(layer, states)
    assert random is not None
    assert random.shape == (40, 50, 3 * tiny.width + tiny.feed_forward)
    columns = random.flatten(0, 1).double() / RANGE  # uniform in [-1/2, 1/2)
    assert columns.mean(0).abs().max() < 0.03
    assert (columns.var(0) - 1 / 12).abs().max() < 0.01
    assert (torch.corrcoef(columns.T) - torch.eye(columns.shape[1])).abs().max() < 0.12
    torch.manual_seed(1)
    again = model.draw_dropout(layer, states)
    assert again is not None
    assert torch.equal(again, random)
    assert model.eval().draw_dropout(layer, states) is None


def test_predrawn_dropout_equals_dropout_in_distribution(tiny: Model, translator: Make, split: Split) -> None:
    """States vary from pass to pass, each with random of its own, as much as with PyTorch's."""
    batch = pad_batch(split, np.arange(30))
    spreads = []
    for predrawn in (False, True):
        model = translator(dataclasses.replace(tiny, dropout=0.3)).train()
        model.dropout.p = 0.0  # that of embeddings is always PyTorch's
        model.predrawn_dropout = predrawn
        torch.manual_seed(1)
        with torch.no_grad():
            passes = torch.stack([decode_batch(model, batch, batch.source_lengths) for _ in range(100)])
        spreads.append(passes[:, batch.labels != PAD].var(0).mean())
    assert float(spreads[0]) > 0.1
    torch.testing.assert_close(spreads[0], spreads[1], rtol=0.03, atol=0.0)


@pytest.mark.parametrize("chance", [0.1, 0.3])
def test_dropout_on_a_cpu_drops_the_right_share_and_keeps_the_mean(chance: float) -> None:
    states, layer = torch.ones(400, 500, requires_grad=True), Dropout(chance)
    torch.manual_seed(1)
    dropped = layer(states)
    torch.manual_seed(1)
    assert torch.equal(dropped, layer(states))
    assert not torch.equal(dropped, layer(states))
    assert float((dropped == 0).float().mean()) == pytest.approx(chance, abs=0.005)
    assert float(dropped.detach().mean()) == pytest.approx(1, abs=0.01)
    (gradient,) = torch.autograd.grad(dropped.sum(), states)
    assert torch.equal(gradient, dropped)
    assert torch.equal(layer.eval()(states), states)
