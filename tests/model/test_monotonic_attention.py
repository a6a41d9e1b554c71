"""Monotonic heads: alignments match the formulas for any energies, and all ways of decoding agree."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import crosses
from tests.helpers.decoding import bare_context, policy, recomputed_logits, translate_recomputed
from tests.helpers.runs import CPU, assert_same, changed, elsewhere, short_recipe, tensors
from tests.policy.test_learnt import LIMITS, essence, three_ways
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data, Evaluate, Objective, Recipe
from whilst.data.batches import Tokens, pad_batch
from whilst.data.dataset import Dataset, Split
from whilst.data.vocabulary import BOS, EOS, PAD
from whilst.evaluation.curves import Result
from whilst.evaluation.evaluate import evaluate_run
from whilst.evaluation.metrics import differentiable_average_lagging
from whilst.model.attention import dense_mask
from whilst.model.checkpoint import load_run
from whilst.model.monotonic_attention import MonotonicPass, expected_alignment, infinite_lookback
from whilst.model.transformer import Translator, decode_batch
from whilst.policy import make_policy
from whilst.training.losses import cross_entropy, latency_cost
from whilst.training.sampling import rule_reads
from whilst.training.train import train


def draw(*shape: int, seed: int = 1, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def p_choose(energy: Tensor, length: int) -> Tensor:
    """(target, source) of one head, which always stops at the last token of the source."""
    p = energy.sigmoid().clone()
    p[:, length - 1] = 1
    return p[:, :length]


def literal_alignment(p: Tensor) -> Tensor:
    """The recurrence as published: a sum over the previous position of a product over the tokens passed."""
    found = torch.zeros_like(p)
    for i, j in itertools.product(range(p.shape[0]), range(p.shape[1])):
        for k in range(j + 1):
            before = float(k == 0) if i == 0 else found[i - 1, k]
            found[i, j] += before * (1 - p[i, k:j]).prod() * p[i, j]
    return found


def enumerated_alignment(p: Tensor) -> Tensor:
    """From all non-decreasing sequences of stopping positions."""
    found = torch.zeros_like(p)
    total = 0.0
    for stops in itertools.combinations_with_replacement(range(p.shape[1]), p.shape[0]):
        chance, start = 1.0, 0
        for i, stop in enumerate(stops):
            chance *= float((1 - p[i, start:stop]).prod() * p[i, stop])
            start = stop
        total += chance
        found[torch.arange(len(stops)), list(stops)] += chance
    assert total == pytest.approx(1)
    return found


def literal_lookback(energy: Tensor, aligned: Tensor) -> Tensor:
    found = torch.zeros_like(aligned)
    for i, k in itertools.product(range(aligned.shape[0]), range(aligned.shape[1])):
        found[i, : k + 1] += aligned[i, k] * energy[i, : k + 1].softmax(0)
    return found


def visible(lengths: list[int], target: int, source: int) -> Tensor:
    """(rows, 1, target, source) mask as in training."""
    return (torch.arange(source) < torch.tensor(lengths)[:, None])[:, None, None].expand(-1, 1, target, -1)


@pytest.mark.parametrize("target", [1, 2, 3, 5, 8, 11])
def test_expected_alignment_is_the_recurrence(target: int) -> None:
    energy, lengths = draw(3, 2, target, 7, seed=target), [7, 4, 1]
    found = expected_alignment(energy, visible(lengths, target, 7))
    for row, head in itertools.product(range(3), range(2)):
        p = p_choose(energy[row, head], lengths[row])
        torch.testing.assert_close(found[row, head, :, : lengths[row]], literal_alignment(p))
        assert not found[row, head, :, lengths[row] :].any()
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))


def test_expected_alignment_matches_enumeration() -> None:
    energy = draw(1, 1, 4, 5)
    found = expected_alignment(energy, visible([5], 4, 5))[0, 0]
    torch.testing.assert_close(found, enumerated_alignment(p_choose(energy[0, 0], 5)))


def test_expected_attention_is_the_formula() -> None:
    stop, attend, lengths = draw(3, 2, 6, 7), draw(3, 2, 6, 7, seed=2), [7, 4, 1]
    mask = visible(lengths, 6, 7)
    aligned = expected_alignment(stop, mask)
    found = infinite_lookback(attend, aligned, mask)
    for row, head in itertools.product(range(3), range(2)):
        wanted = literal_lookback(attend[row, head, :, : lengths[row]], aligned[row, head, :, : lengths[row]])
        torch.testing.assert_close(found[row, head, :, : lengths[row]], wanted)
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))


def test_gradients_are_right() -> None:
    mask = visible([4, 2], 3, 4)
    stop, attend = draw(2, 1, 3, 4).requires_grad_(), draw(2, 1, 3, 4, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda a, b: infinite_lookback(b, expected_alignment(a, mask), mask), (stop, attend)
    )


@pytest.mark.parametrize("scale", [1.0, 30.0, 3000.0])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_large_energies_are_stable(kind: torch.dtype, scale: float) -> None:
    """Long sentences and probabilities near 0 and 1: distributions close to double precision, finite gradients."""
    stop, attend = (draw(2, 2, 60, 90, seed=seed, scale=scale).to(kind).requires_grad_() for seed in (3, 4))
    mask = visible([90, 31], 60, 90)
    with torch.autocast("cpu", torch.bfloat16):
        aligned = expected_alignment(stop, mask)
        weights = infinite_lookback(attend, aligned, mask)
    assert aligned.dtype == weights.dtype == torch.float32
    # The logarithms of attention are as large as its energies, and as imprecise.
    for found, error in ((aligned, 1e-5), (weights, 1e-3)):
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]), atol=error, rtol=0)
    exact = expected_alignment(stop.detach().double(), mask)
    torch.testing.assert_close(aligned.double(), exact, atol=1e-5, rtol=0)
    gradients = torch.autograd.grad(weights.square().sum() + aligned.square().sum(), (stop, attend))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def lengths_only(source: int, labels: list[int]) -> Any:
    """One sentence of which only the lengths matter."""
    sizes = source, sum(label != PAD for label in labels)
    source_lengths, target_lengths = (torch.full((1, len(labels)), size) for size in sizes)
    return SimpleNamespace(
        labels=torch.tensor([labels]), source_lengths=source_lengths, target_lengths=target_lengths
    )


def test_latency_is_differentiable_average_lagging() -> None:
    """Of heads that stop with certainty, as metrics.py computes it for the latest one."""
    late, early = [2.0, 3.0, 3.0, 6.0], [1.0, 1.0, 2.0, 2.0]
    batch = lengths_only(6, [5, 6, 7, 8, PAD, PAD])
    reads = torch.tensor([[[*late, 9.0, 9.0]], [[*early, 9.0, 9.0]]])
    # Ten thousand tokens apart, the softmax leaves the late head alone.
    far = [reads[:1], reads[1:] - 10_000]
    found = latency_cost(far, batch, 0.5)
    assert float(found) == pytest.approx(0.5 * differentiable_average_lagging([2, 3, 3, 6], 6))


def test_late_heads_have_more_weight() -> None:
    """The average, written out: heads that are near each other all count, by the exponential of their delays."""
    heads = [[2.0, 2.5, 4.0], [1.0, 3.5, 3.0], [1.5, 1.5, 5.0]]
    lag, total = 0.0, 0.0
    for i in range(3):
        shares = [math.exp(head[i]) for head in heads]
        mean = sum(share * head[i] for share, head in zip(shares, heads, strict=True)) / sum(shares)
        lag = max(lag, mean - i * 5 / 3) if i else mean
        total += lag / 3
    delays = [torch.tensor([heads[:2]]), torch.tensor([heads[2:]])]
    found = latency_cost(delays, lengths_only(5, [5, 6, 7]), 1.0)
    assert float(found) == pytest.approx(total)


# The model.


def test_all_ways_of_decoding_agree(monotone: Translator, sources: list[list[int]]) -> None:
    chosen = policy("mma")
    batched, alone, live = three_ways(monotone, sources, chosen)
    assert batched == alone == live
    assert batched == essence([translate_recomputed(monotone, source, chosen, LIMITS) for source in sources])
    waits = [g[i + 1] - g[i] for _, g in batched for i in range(len(g) - 1)]
    assert len(set(waits)) > 2, "waits should vary"


@pytest.mark.parametrize("name", ["wait-2", "full"])
def test_other_policies_limit_what_heads_see(monotone: Translator, sources: list[list[int]], name: str) -> None:
    batched, alone, live = three_ways(monotone, sources, policy(name))
    assert batched == alone == live
    assert batched == essence([translate_recomputed(monotone, source, policy(name), LIMITS) for source in sources])


def test_certain_heads_train_as_they_decode(monotone: Translator) -> None:
    """When every probability is 0 or 1, the expected attention is that of live translation."""
    model = Translator(monotone.settings, 17, 13).double().eval()
    model.load_state_dict(monotone.state_dict())
    with torch.no_grad():
        for cross in crosses(model):
            width = model.settings.width
            cross.query.weight[width:] *= 1e4
            cross.query.bias[width:] *= 1e4
    assert_live(model, MonotonicPass())


def test_validation_stops_as_live_translation_does(monotone: Translator) -> None:
    assert_live(monotone, MonotonicPass(hard=True))


def assert_live(model: Translator, monotonic: MonotonicPass) -> None:
    source, target, reads = [5, 9, 4, 12, 7, EOS], [6, 4, 11], [6, 6, 6, 6]
    at, to = (Tokens(torch.zeros(1, n, dtype=torch.long), torch.arange(n)[None]) for n in (6, 4))
    encoded = model.encode(torch.tensor([source]), at.position, dense_mask(at, at.position + 1, at))
    causal, across = dense_mask(to, to.position + 1, to), dense_mask(to, torch.tensor([reads]), at)
    states = model.decode(torch.tensor([[BOS, *target]]), to.position, encoded, causal, across, monotonic)
    torch.testing.assert_close(model.logits(states)[0, -1], recomputed_logits(model, source, target, reads))
    delays = torch.cat(monotonic.delays)
    torch.testing.assert_close(delays, delays.round())
    assert bool((delays.diff(dim=-1) >= 0).all())
    assert len(set(delays.flatten().tolist())) > 1


def test_a_batch_is_its_sentences(monotone: Translator, split: Split) -> None:
    """Padding changes neither loss nor latency."""
    objective = Objective(name="mma", latency_average=0.3)

    def loss(numbers: list[int]) -> float:
        batch, monotonic = pad_batch(split, np.array(numbers)), MonotonicPass()
        seen = rule_reads(objective, batch, torch.Generator())
        assert torch.equal(seen, batch.source_lengths), "mma sees the whole source"
        states = decode_batch(monotone, batch, seen, monotonic)
        total = cross_entropy(monotone, states, batch.labels, 0.1)
        return (total + latency_cost(monotonic.delays, batch, objective.latency_average)).item()

    assert loss([3, 1, 4, 5]) == pytest.approx(sum(loss([n]) for n in (3, 1, 4, 5)))


def test_a_model_without_monotonic_heads_is_refused(model: Translator) -> None:
    with pytest.raises(UserError, match="policy mma: this model has no monotonic heads"):
        make_policy(PolicySpec("mma"), replace(bare_context(), model=model))
    with pytest.raises(UserError, match="policy mma-3: mma takes no argument"):
        policy("mma-3")


# Training.


@pytest.fixture
def recipe(toy_data: Data, toy_folder: Path, tmp_path: Path) -> Recipe:
    assert toy_folder == Path(toy_data.dataset)
    short = short_recipe(toy_data, tmp_path / "run")
    model = replace(short.model, cross="monotone", decoder_layers=2)
    evaluate = Evaluate(policies=("mma", "wait-3"), max_ratio=1.0, max_extra=3)
    return replace(short, model=model, objective=Objective(name="mma"), evaluate=evaluate)


@torch.inference_mode()
def mean_delay(run: Path, dataset: Dataset) -> float:
    batch, monotonic = pad_batch(dataset.split("valid"), np.arange(20)), MonotonicPass()
    decode_batch(load_run(run, CPU).model, batch, batch.source_lengths, monotonic)
    return float(torch.cat(monotonic.delays).mean())


def test_a_latency_weight_reduces_delays(recipe: Recipe, toy_dataset: Dataset) -> None:
    found = []
    for weight in (0.0, 3.0):
        changes = {"steps": 40, "validate_every": 40, "validate_bleu": False, "keep": "loss"}
        objective = Objective(name="mma", latency_average=weight)
        one = changed(replace(elsewhere(recipe, f"run-{weight}"), objective=objective), **changes)
        found.append(mean_delay(train(one, CPU), toy_dataset))
    assert found[1] < found[0] - 1


def test_a_resumed_run_ends_with_the_same_weights(recipe: Recipe) -> None:
    """The noise of the energies depends on the step. (The learning rate does not depend on the last step.)"""
    recipe = changed(recipe, preset="paper", validate_every=4)
    whole, parts = (elsewhere(recipe, name) for name in ("whole", "parts"))
    train(whole, CPU)
    train(changed(parts, steps=4), CPU)
    train(parts, CPU)
    assert_same(tensors(Path(whole.run), "last"), tensors(Path(parts.run), "last"))


def test_records_name_the_system_mma(recipe: Recipe) -> None:
    records = evaluate_run(train(recipe, CPU), [], None, False, [], "cpu")
    assert [(str(record.system), record.policy) for record in records] == [
        ("MMA", "mma"),
        ("MMA, wait-k", "wait-3"),
    ]
    assert Result((records[0],)).shown_label == "λ=0.1"


@pytest.mark.parametrize("stage", ["search", "agent"])
def test_search_and_agent_are_refused(recipe: Recipe, stage: Literal["search", "agent"]) -> None:
    with pytest.raises(UserError, match=r"^stages: .* has no"):
        replace(recipe, stages=("translate", stage))
    with pytest.raises(UserError, match=r"^train.layout: .* padded"):
        changed(recipe, layout="packed")
