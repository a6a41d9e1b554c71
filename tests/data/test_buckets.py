"""Padded batches in buckets: every sentence fits into one, and empty rows change nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.helpers.runs import CPU, assert_same, changed, elsewhere, short_recipe, tensors
from whilst.core.errors import UserError
from whilst.core.settings import Data, Model, Objective, Recipe
from whilst.data.batches import (
    LENGTH_MULTIPLE,
    MAX_BUCKETS,
    Batch,
    Batches,
    Buckets,
    bucket_lengths,
    pad_batch,
)
from whilst.data.dataset import Dataset, Split
from whilst.model.monotonic_attention import MonotonicPass
from whilst.model.transformer import Translator, decode_batch
from whilst.training import loop as loops
from whilst.training.losses import cross_entropy, latency_cost
from whilst.training.sampling import rule_reads
from whilst.training.tasks import Task, make_task
from whilst.training.train import train


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(1, 12))
def test_bucket_lengths_are_few_and_hold_every_sentence(sizes: list[int], most: int) -> None:
    lengths = bucket_lengths(np.array(sizes), most)
    assert 1 <= len(lengths) <= most
    assert not (lengths % LENGTH_MULTIPLE).any()
    assert (np.diff(lengths) > 0).all()
    assert max(sizes) <= lengths[-1] < max(sizes) + LENGTH_MULTIPLE


def test_bucket_lengths_are_where_sentences_are() -> None:
    sizes = np.array([8] * 1000 + [24] * 1000 + [32] * 3 + [160] * 5)
    assert bucket_lengths(sizes, 3).tolist() == [8, 24, 160]
    assert bucket_lengths(sizes, 2).tolist() == [24, 160]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=200), st.integers(60, 300))
def test_every_sentence_is_in_one_bucket_and_all_but_one_are_full(sizes: list[int], tokens: int) -> None:
    lengths = np.array(sizes)
    buckets = Buckets(bucket_lengths(lengths), tokens)
    batches = buckets.batches(np.arange(len(sizes))[::-1], lengths[::-1])
    assert sorted(np.concatenate(batches)) == list(range(len(sizes)))
    shapes = [buckets.shape_for(lengths[chosen]) for chosen in batches]
    assert all(rows >= len(chosen) for (rows, _), chosen in zip(shapes, batches, strict=True))
    full = {buckets.rows(number) for number in range(len(buckets.lengths))}
    assert sum(len(chosen) not in full for chosen in batches) <= 1


def test_what_fits_no_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Buckets(np.array([8]), 16).shape_for(np.array([8, 8, 8]))


@pytest.fixture
def boxed(random_split: Callable[..., Split]) -> Batches:
    return Batches(random_split(300, seed=3, longest=30), 96, 1, "boxed")


def test_an_epoch_has_few_shapes(boxed: Batches) -> None:
    plan = boxed.plan(0)
    assert sorted(np.concatenate(plan)) == list(range(300))
    made = [boxed.make(chosen) for chosen in plan]
    assert len({batch.source.shape for batch in made}) <= min(MAX_BUCKETS, 4)
    assert all(batch.source.shape == batch.target.shape for batch in made)
    assert sum(batch.target_tokens for batch in made) == boxed.split.target.lengths.sum()
    assert [chosen.tolist() for chosen in plan] == [chosen.tolist() for chosen in boxed.plan(0)]
    assert [chosen.tolist() for chosen in plan] != [chosen.tolist() for chosen in boxed.plan(1)]


def loss_and_gradients(model: Translator, objective: Objective, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    seen = rule_reads(objective, batch, torch.Generator().manual_seed(1))
    monotonic = MonotonicPass() if objective.name == "mma" else None
    loss = cross_entropy(model, decode_batch(model, batch, seen, monotonic), batch.labels, 0.1)
    if monotonic is not None:
        loss = loss + latency_cost(monotonic.delays, batch, objective.latency_average)
    return loss, list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))


@pytest.mark.parametrize("name", ["mma", "full", "multi-path"])
def test_empty_rows_and_padding_change_nothing(
    model: Translator, monotone: Translator, split: Split, name: str
) -> None:
    """Neither the loss nor any gradient, with as many empty rows as sentences."""
    objective = Objective(latency_average=0.3, name=name)  # type: ignore[arg-type]
    chosen, one = np.array([3, 1, 4, 5]), monotone if name == "mma" else model
    plain, boxed = pad_batch(split, chosen), pad_batch(split, chosen, (8, 24))
    assert boxed.source.shape == boxed.target.shape == (8, 24)
    assert (plain.sentences, plain.target_tokens) == (boxed.sentences, boxed.target_tokens)
    torch.testing.assert_close(*(loss_and_gradients(one, objective, batch) for batch in (plain, boxed)))


def test_empty_rows_have_zero_loss_and_gradients(monotone: Translator, split: Split) -> None:
    """Exactly zero, not small."""
    batch = pad_batch(split, np.array([3, 1]), (5, 16))
    empty = batch.with_tensors([tensor[2:].clone() for tensor in batch.tensors()])
    loss, gradients = loss_and_gradients(monotone, Objective(name="mma"), empty)
    assert loss.item() == 0
    assert not any(bool(gradient.any()) for gradient in gradients)


# Training.


@pytest.fixture
def recipe(toy_data: Data, toy_folder: Path, tmp_path: Path) -> Recipe:
    assert toy_folder == Path(toy_data.dataset)
    short = changed(short_recipe(toy_data, tmp_path / "run"), layout="boxed", validate_every=8, accumulate=2)
    model = Model(width=16, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=16, cross="monotone")
    return replace(short, model=model, objective=Objective(name="mma"))


class Recorded:
    """CapturedGraph without a graph: runs the work three times when it is made, on its own tensors."""

    made: list[torch.Size]

    def __init__(
        self, work: Callable[..., Tensor], inputs: Sequence[Tensor], beside: "Recorded | None" = None
    ) -> None:
        assert (beside is None) == (not self.made)
        self.made.append(inputs[0].shape)
        self.work, self.inputs = work, [tensor.clone() for tensor in inputs]
        for _ in range(3):
            work(*self.inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        torch._foreach_copy_(self.inputs, list(inputs))
        return self.work(*self.inputs)


def test_captured_updates_match_plain_ones(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a shape first occurs within an update, after random numbers have been drawn."""
    plain = train(recipe, CPU)
    monkeypatch.setattr("whilst.training.train.announce", lambda *_: None)  # measures with graphs of its own
    Recorded.made = []
    monkeypatch.setattr(loops, "CapturedGraph", Recorded)
    begin = loops.Loop.__init__

    def begin_capturing(self: loops.Loop, recipe: Recipe, task: Task) -> None:
        begin(self, recipe, task)
        self.use_graphs = True

    monkeypatch.setattr(loops.Loop, "__init__", begin_capturing)
    recorded = train(elsewhere(recipe, "recorded"), CPU)
    assert len(Recorded.made) == len(set(Recorded.made)) > 1
    assert_same(tensors(plain), tensors(recorded))


def test_boxed_and_padded_batches_train_alike(recipe: Recipe, toy_dataset: Dataset) -> None:
    """Without dropout and noise the loss and the gradients are the same up to rounding."""
    objective = replace(recipe.objective, stop_noise=0.0)
    recipe = replace(recipe, model=replace(recipe.model, dropout=0.0), objective=objective)
    found = []
    for layout in ("boxed", "padded"):
        one = loops.Loop(changed(recipe, layout=layout), make_task(recipe, toy_dataset, CPU))
        assert one.batches.layout == layout
        batch = one.make_batch(np.arange(9))
        loss = one.backward(batch, one.draw(0, batch), torch.tensor(0.01))
        found.append([loss, *(parameter.grad for parameter in one.state.model.parameters())])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


def test_boxed_batches_need_monotonic_heads(recipe: Recipe, toy_dataset: Dataset) -> None:
    other = changed(short_recipe(recipe.data, Path(recipe.run)), layout="boxed")
    with pytest.raises(UserError, match=r'train.layout: "boxed" is for model.cross = "monotone"'):
        loops.Loop(other, make_task(other, toy_dataset, CPU))
