"""The learning rate of both presets, what is decayed and what not, and the moving average."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from whilst.core.settings import Train
from whilst.model.transformer import Translator
from whilst.training import optim
from whilst.training.optim import PRESETS, Preset, learning_rate, preset_of, update_average


def test_a_recipe_replaces_parts_of_its_preset() -> None:
    assert preset_of(Train(preset="paper")) == PRESETS["paper"]
    assert preset_of(Train(preset="fast")) == PRESETS["fast"]
    chosen = preset_of(Train(preset="paper", lr=0.5, clip=2.0))
    assert chosen == Preset(lr=0.5, warmup=4000, weight_decay=1e-4, clip=2.0, schedule="inverse-sqrt")
    # Zero is a value, not an absence.
    zeros = preset_of(Train(preset="fast", warmup=0, weight_decay=0.0, clip=0.0))
    assert zeros == Preset(lr=1e-3, warmup=0, weight_decay=0.0, clip=0.0, schedule="linear")


def test_the_papers_schedule() -> None:
    """Appendix A: from 1e-7 up to 5e-4 over 4000 updates, then down with the square root of the update."""
    paper = PRESETS["paper"]
    assert learning_rate(paper, 4000, 10**6) == pytest.approx(5e-4)
    assert learning_rate(paper, 2000, 10**6) == pytest.approx((1e-7 + 5e-4) / 2)
    assert learning_rate(paper, 16_000, 10**6) == pytest.approx(2.5e-4)
    # The length of the run plays no part.
    assert learning_rate(paper, 9000, 10_000) == learning_rate(paper, 9000, 10**6)


def test_the_fast_schedule_ends_near_zero() -> None:
    fast = PRESETS["fast"]
    assert learning_rate(fast, 1000, 10_000) == pytest.approx(1e-3)
    assert learning_rate(fast, 5501, 10_000) == pytest.approx(5e-4, rel=1e-3)
    assert learning_rate(fast, 10_000, 10_000) == pytest.approx(1e-3 / 9001)  # the last update still counts


@given(
    st.sampled_from(sorted(PRESETS)),
    st.integers(0, 60),
    st.integers(1, 100),
)
def test_a_schedule_rises_to_its_peak_and_falls(name: str, warmup: int, steps: int) -> None:
    preset = preset_of(Train(preset=name, lr=0.1, warmup=warmup))  # type: ignore[arg-type]
    rates = [learning_rate(preset, step, steps) for step in range(1, steps + 1)]
    assert all(0 < rate <= 0.1 + 1e-12 and math.isfinite(rate) for rate in rates)
    rising, falling = rates[:warmup], rates[max(warmup - 1, 0) :]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    if 0 < warmup <= steps:
        assert max(rates) == rates[warmup - 1] == pytest.approx(0.1)


def test_only_matrices_are_decayed(model: Translator) -> None:
    preset = Preset(lr=0.1, warmup=0, weight_decay=0.5, clip=0.0, schedule="linear")
    adam = optim.adam(model, preset)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, spared = ({names[id(p)] for p in group["params"]} for group in adam.param_groups)
    assert decayed | spared == set(names.values())
    assert decayed.isdisjoint(spared)
    assert [group["weight_decay"] for group in adam.param_groups] == [0.5, 0.0]
    assert all(name.endswith("weight") for name in decayed)
    assert all("norm" in name or name.endswith("bias") for name in spared)
    assert {"target_embedding.weight", "encoder.0.attention.query.weight"} <= decayed
    assert {"encoder_norm.weight", "encoder.0.feed_forward.0.bias"} <= spared


def test_decay_shrinks_weights_apart_from_the_gradient() -> None:
    linear = nn.Linear(3, 2)
    before = {name: parameter.detach().clone() for name, parameter in linear.named_parameters()}
    adam = optim.adam(linear, Preset(lr=0.1, warmup=0, weight_decay=0.5, clip=0.0, schedule="linear"))
    for parameter in linear.parameters():
        parameter.grad = torch.zeros_like(parameter)
    adam.step()
    torch.testing.assert_close(linear.weight.detach(), before["weight"] * (1 - 0.1 * 0.5))
    torch.testing.assert_close(linear.bias.detach(), before["bias"])


@given(st.floats(0, 0.999), st.integers(1, 5))
def test_the_average_follows_its_definition(decay: float, updates: int) -> None:
    averaged, model = nn.Linear(2, 2), nn.Linear(2, 2)
    expected = averaged.weight.detach().clone()
    for seed in range(updates):
        with torch.no_grad():
            model.weight.copy_(torch.rand(2, 2, generator=torch.Generator().manual_seed(seed)))
        expected = decay * expected + (1 - decay) * model.weight.detach()
        kept = model.weight.detach().clone()
        update_average(averaged, model, decay)
        assert torch.equal(model.weight, kept)
    torch.testing.assert_close(averaged.weight.detach(), expected)


def test_without_decay_the_average_is_the_model(model: Translator) -> None:
    """Every weight, and exactly: what is validated with train.ema = 0 is what was trained."""
    other = Translator(model.settings, *(len(e.weight) for e in (model.source_embedding, model.target_embedding)))
    update_average(other.double(), model, 0.0)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_gradients_are_added_as_backward_does(model: Translator) -> None:
    """And those of weights that had no part in the loss stay."""
    one, other = copy.deepcopy(model), copy.deepcopy(model)
    tokens = torch.tensor([[4, 5, 6]])
    for each in (one, other):
        for number, parameter in enumerate(each.parameters()):
            parameter.grad = torch.full_like(parameter, number)
        mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
        loss = each.encode(tokens, torch.arange(3)[None], mask).square().sum()
        if each is one:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            optim.add_gradients(each, loss)
    unused = 0
    for number, (ours, theirs) in enumerate(zip(one.parameters(), other.parameters(), strict=True)):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)
        unused += bool((ours.grad == number).all())
    assert 0 < unused < number
