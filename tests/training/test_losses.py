"""Reads that each objective draws, operations on reads against plain loops, and losses against their formulas."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from torch import Tensor

from whilst.core.settings import Model, Objective
from whilst.data.batches import BLOCK, Batch, pack_batch, pad_batch
from whilst.data.dataset import Split
from whilst.data.vocabulary import PAD
from whilst.model.transformer import Translator, decode_batch
from whilst.training.losses import ChunkedCrossEntropy, cross_entropy, divergence, r_drop
from whilst.training.sampling import draw_k, rule_reads, wait_k


def draw(objective: Objective, batch: Batch, seed: int = 0) -> Tensor:
    return rule_reads(objective, batch, torch.Generator().manual_seed(seed))


def loss(model: Translator, batch: Batch, objective: Objective, smoothing: float = 0.1) -> Tensor:
    return cross_entropy(model, decode_batch(model, batch, draw(objective, batch)), batch.labels, smoothing)


def both_layouts(split: Split, chosen: list[int]) -> tuple[Batch, Batch]:
    """Padded; and packed, but with dense masks, for want of FlexAttention's backward on CPUs."""
    indices = np.array(chosen)
    return pad_batch(split, indices), dataclasses.replace(pack_batch(split, indices, BLOCK, BLOCK), packed=False)


OBJECTIVES = [
    Objective("full"),
    Objective("wait-k", k=2),
    Objective("multi-path", draw="batch"),
    Objective("multi-path", draw="sentence"),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: f"{o.name}-{o.draw}")
@given(chosen=st.lists(st.integers(0, 99), min_size=1, max_size=9))
@limit(max_examples=8)
def test_both_layouts_have_the_same_loss_and_gradient(
    split: Split, model: Translator, objective: Objective, chosen: list[int]
) -> None:
    results = []
    for batch in both_layouts(split, chosen):
        found = loss(model, batch, objective)
        results.append([found.detach(), *torch.autograd.grad(found, list(model.parameters()))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)  # the loss is taken in single precision


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: f"{o.name}-{o.draw}")
@pytest.mark.parametrize("layout", [0, 1], ids=["padded", "packed"])
@given(chosen=st.lists(st.integers(0, 99), min_size=1, max_size=9), seed=st.integers(0, 999))
@limit(max_examples=10)
def test_reads_rise_within_bounds(
    split: Split, objective: Objective, layout: int, chosen: list[int], seed: int
) -> None:
    batch = both_layouts(split, chosen)[layout]
    found = draw(objective, batch, seed)
    assert found.shape == batch.target.shape
    assert bool(((found >= 1) & (found <= batch.source_lengths)).all())
    inside = batch.target_at.position[:, 1:] > 0
    assert bool((found.diff(dim=1) >= 0)[inside].all())


def first_reads(objective: Objective, batch: Batch, times: int) -> Tensor:
    """(times, sentences): g_1, which for a wait-k path up to J is its k."""
    random = torch.Generator().manual_seed(0)
    drawn = torch.stack([rule_reads(objective, batch, random) for _ in range(times)])
    return drawn[:, batch.target_at.position == 0][:, : batch.sentences]


@pytest.mark.parametrize("layout", [0, 1], ids=["padded", "packed"])
def test_multi_path_draws_k_uniformly_for_each_sentence(split: Split, layout: int) -> None:
    batch = both_layouts(split, list(range(8)))[layout]
    k = first_reads(Objective("multi-path", draw="sentence"), batch, 2000)
    for sentence in range(8):
        longest = len(split.source[sentence])
        shares = torch.bincount(k[:, sentence], minlength=longest + 1)[1:] / 2000
        assert shares.shape == (longest,)
        assert (shares - 1 / longest).abs().max() < 0.05
    long = [i for i in range(8) if len(split.source[i]) > 6]
    correlation = torch.corrcoef(k[:, long].T.double()) - torch.eye(len(long))
    assert correlation.abs().max() < 0.1  # sentences are independent


@pytest.mark.parametrize("layout", [0, 1], ids=["padded", "packed"])
def test_multi_path_of_the_paper_draws_one_k_for_a_batch(split: Split, layout: int) -> None:
    batch = both_layouts(split, list(range(8)))[layout]
    lengths = torch.tensor([len(split.source[i]) for i in range(8)])
    longest = int(lengths.max())
    k = first_reads(Objective("multi-path", draw="batch"), batch, 2000)
    assert torch.equal(k, torch.minimum(k.max(dim=1, keepdim=True).values, lengths))
    shares = torch.bincount(k.max(dim=1).values, minlength=longest + 1)[1:] / 2000
    assert (shares - 1 / longest).abs().max() < 0.05


@pytest.mark.parametrize("kind", ["batch", "sentence"])
def test_multi_path_up_to_a_largest_k(split: Split, kind: Literal["batch", "sentence"]) -> None:
    batch = both_layouts(split, list(range(8)))[0]
    lengths = torch.tensor([len(split.source[i]) for i in range(8)])
    k = first_reads(Objective("multi-path", draw=kind, longest=3), batch, 300)
    assert torch.equal(k.max(dim=0).values, lengths.clamp(max=3))
    assert set(k.flatten().tolist()) == {1, 2, 3}


@pytest.mark.parametrize("layout", [0, 1], ids=["padded", "packed"])
def test_multi_path_with_a_share_of_whole_sources(split: Split, layout: int) -> None:
    batch = both_layouts(split, list(range(8)))[layout]
    k = first_reads(Objective("multi-path", longest=3, whole=0.25), batch, 2000)
    for sentence in range(8):
        length = len(split.source[sentence])
        if length > 3:
            assert set(k[:, sentence].tolist()) == {1, 2, 3, length}
            assert abs(float((k[:, sentence] == length).double().mean()) - 0.25) < 0.05


def test_draws_depend_on_the_generator_only(split: Split) -> None:
    batch = pad_batch(split, np.arange(8))
    for objective in OBJECTIVES[2:]:
        assert torch.equal(draw(objective, batch, 1), draw(objective, batch, 1))
        assert len({tuple(draw(objective, batch, seed).flatten().tolist()) for seed in range(5)}) > 1


@pytest.mark.parametrize("layout", [0, 1], ids=["padded", "packed"])
def test_wait_k_beyond_the_source_is_full(split: Split, model: Translator, layout: int) -> None:
    batch = both_layouts(split, list(range(8)))[layout]
    longest = int(split.source.lengths[:8].max())
    full = loss(model, batch, Objective("full"))
    torch.testing.assert_close(loss(model, batch, Objective("wait-k", k=longest)), full)
    assert not torch.isclose(loss(model, batch, Objective("wait-k", k=1)), full)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_label_smoothing_is_the_formula(split: Split, model: Translator, smoothing: float) -> None:
    """(1 - s) times the label's surprisal plus s times the mean surprisal of all units."""
    batch = pad_batch(split, np.arange(6))
    states = decode_batch(model, batch, batch.source_lengths).detach()
    surprisals = -(states @ model.target_embedding.weight.detach().T).log_softmax(-1)
    wanted = 0.0
    for row in range(6):
        for place, label in enumerate(split.target[row].tolist()):
            each = surprisals[row, place].tolist()
            wanted += (1 - smoothing) * each[label] + smoothing * sum(each) / len(each)
    found = cross_entropy(model, states, batch.labels, smoothing).item()
    assert found == pytest.approx(wanted, rel=1e-5)  # the loss is taken in single precision


def test_r_drop_is_zero_without_dropout(split: Split, model: Translator) -> None:
    batch = pad_batch(split, np.arange(6))
    states = decode_batch(model, batch, batch.source_lengths)
    plain = cross_entropy(model, states, batch.labels, 0.1)
    torch.testing.assert_close(r_drop(model, (states, states), batch.labels, 0.1, 5.0), plain)


def test_r_drop_is_the_formula_with_dropout(split: Split, model: Translator) -> None:
    batch = pad_batch(split, np.arange(6))
    noisy = copy.deepcopy(model).train()
    torch.manual_seed(0)
    one, other = (decode_batch(noisy, batch, batch.source_lengths).detach() for _ in range(2))
    p, q = (model.logits(states).detach().float().softmax(-1) for states in (one, other))
    kept = batch.labels != PAD
    apart = (p * (p / q).log()).sum(-1)[kept].sum() + (q * (q / p).log()).sum(-1)[kept].sum()
    assert apart > 0.01
    halves = [cross_entropy(model, states, batch.labels, 0.1) for states in (one, other)]
    found = r_drop(model, (one, other), batch.labels, 0.1, 3.0)
    torch.testing.assert_close(found, sum(halves) / 2 + 3.0 / 4 * apart, rtol=1e-4, atol=1e-3)


def test_divergence_is_the_formula(split: Split, model: Translator) -> None:
    batch = pad_batch(split, np.arange(6))
    few = decode_batch(model, batch, torch.ones_like(batch.source_lengths)).detach()
    whole = decode_batch(model, batch, batch.source_lengths).detach()
    p, q = (model.logits(states).detach().float().softmax(-1) for states in (whole, few))
    apart = (p * (p / q).log()).sum(-1)[batch.labels != PAD].sum()
    assert apart > 0.01
    torch.testing.assert_close(divergence(model, few, whole, batch.labels), apart, rtol=1e-4, atol=1e-3)


def test_no_gradient_flows_into_the_belief(split: Split, model: Translator) -> None:
    batch = pad_batch(split, np.arange(6))
    few = decode_batch(model, batch, torch.ones_like(batch.source_lengths)).detach().requires_grad_()
    whole = decode_batch(model, batch, batch.source_lengths).detach().requires_grad_()
    divergence(model, few, whole, batch.labels).backward()  # type: ignore[no-untyped-call]
    assert few.grad is not None
    assert bool(few.grad.any())
    assert whole.grad is None or not bool(whole.grad.any())


def test_padding_costs_nothing(split: Split, model: Translator) -> None:
    """The same sentence beside a longer one."""
    lengths = split.target.lengths
    short, long = int(lengths.argmin()), int(lengths.argmax())
    assert lengths[short] < lengths[long]
    alone = [loss(model, pad_batch(split, np.array([i])), Objective("full")).item() for i in (short, long)]
    both = loss(model, pad_batch(split, np.array([short, long])), Objective("full")).item()
    assert both == pytest.approx(sum(alone), rel=1e-6)


@pytest.mark.parametrize(("training", "fast"), [(True, False), (False, False), (False, True)])
def test_half_precision_is_for_training_under_autocast(
    split: Split, tiny: Model, translator: Callable[..., Translator], training: bool, fast: bool
) -> None:
    """There the states between layers are bf16 too, and the loss is nearly the same."""
    batch = pad_batch(split, np.arange(20))
    model = translator(dataclasses.replace(tiny, dropout=0.0)).float().train(training)
    model.bf16_in_eval = fast
    exact = loss(model, batch, Objective("full"))
    seen = []
    watch = model.encoder[1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)  # what a GPU's autocast sets; that of the CPU does the work
    try:
        with torch.autocast("cpu", torch.bfloat16):
            rough = loss(model, batch, Objective("full"))
    finally:
        torch.set_autocast_enabled("cuda", before)
        watch.remove()
    assert seen == [torch.bfloat16 if training or fast else torch.float32]
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.0)
    assert not torch.equal(rough, exact)


lengths = st.integers(1, 30)


def wait_k_loop(k: int, source: int, target: int) -> list[int]:
    """Read k tokens, then write and read in turn, until nothing is left to read."""
    seen, out = min(k, source), []
    for _ in range(target):
        out.append(seen)
        seen = min(seen + 1, source)
    return out


@given(lengths, lengths, lengths)
def test_wait_k_matches_a_loop(k: int, source: int, target: int) -> None:
    found = wait_k(k, torch.arange(target), torch.full((target,), source)).tolist()
    assert found == wait_k_loop(k, source, target)
    assert found == sorted(found)
    assert all(1 <= g <= source for g in found)
    if k >= source:
        assert found == [source] * target


@given(st.lists(st.tuples(lengths, lengths), min_size=1, max_size=5), st.integers(1, 12))
def test_wait_k_takes_a_k_and_a_length_for_each_sentence(rows: list[tuple[int, int]], target: int) -> None:
    k, source = torch.tensor(rows).T[..., None]
    found = wait_k(k, torch.arange(target)[None], source)
    assert found.tolist() == [wait_k_loop(k, source, target) for k, source in rows]


@given(lengths)
def test_draw_k_is_uniform(longest: int) -> None:
    random = torch.arange(longest * 8) / (longest * 8)  # an even grid of [0, 1)
    k = draw_k(torch.tensor(longest), random + 1e-6)
    assert torch.bincount(k, minlength=longest + 1).tolist() == [0] + [8] * longest


@given(st.lists(lengths, min_size=1, max_size=10))
def test_draw_k_stays_in_bounds(rows: list[int]) -> None:
    longest = torch.tensor(rows)
    below_one = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    assert draw_k(longest, torch.zeros(len(rows))).tolist() == [1] * len(rows)
    assert draw_k(longest, below_one.expand(len(rows))).tolist() == rows


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunks_of_the_loss_add_up(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss and its gradients, a few tokens at a time, are those of PyTorch's own."""
    monkeypatch.setattr(ChunkedCrossEntropy, "TOKENS", 3)
    random = torch.Generator().manual_seed(1)
    states = torch.randn(7, 5, dtype=torch.double, generator=random).requires_grad_()
    weight = torch.randn(11, 5, dtype=torch.double, generator=random).requires_grad_()
    labels = torch.randint(11, (7,), generator=random)
    chunked = ChunkedCrossEntropy.apply(states, weight, labels, smoothing)  # type: ignore[no-untyped-call]
    whole = F.cross_entropy(states @ weight.T, labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(chunked, whole)
    found, expected = (torch.autograd.grad(3 * loss, (states, weight)) for loss in (chunked, whole))
    torch.testing.assert_close(found, expected)
