"""Monotone heads: fast alignments are the literal ones, no energy breaks them, all ways to decode agree."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import crosses
from tests.helpers.runs import CPU, assert_same, changed, elsewhere, short_recipe, tensors
from tests.policy.test_learnt import LIMITS, essence, three_ways
from whilst.core.errors import UserError
from whilst.core.files import read_json
from whilst.core.settings import Data, Evaluate, Objective, Recipe
from whilst.data.batches import Tokens, pack_batch, pad_batch
from whilst.data.dataset import Dataset, Split
from whilst.data.vocabulary import BOS, EOS
from whilst.decoding.batched import translate_batch
from whilst.decoding.reference import masked_logits, translate_recomputed
from whilst.evaluation.evaluate import evaluate_run
from whilst.evaluation.metrics import differentiable_average_lagging
from whilst.evaluation.seeds import Result
from whilst.evaluation.tables import point_label
from whilst.model.attention import dense_mask
from whilst.model.checkpoint import load_run
from whilst.model.forward import cross_mask, decode_batch
from whilst.model.monotonic_alignment import alignment, lookback
from whilst.model.monotonic_attention import Delays, latency
from whilst.model.transformer import Translator
from whilst.policy import policy
from whilst.training.losses import cross_entropy, latency_cost
from whilst.training.sampling import RULES
from whilst.training.train import train


def draw(*shape: int, seed: int = 1, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def chances(energy: Tensor, length: int) -> Tensor:
    """(target, source) of one head: the last token of the source always stops it."""
    p = energy.sigmoid().clone()
    p[:, length - 1] = 1
    return p[:, :length]


def literal_alignment(p: Tensor) -> Tensor:
    """The recurrence as it is written: sum over where the token before stopped, product of what was passed."""
    found = torch.zeros_like(p)
    for i, j in itertools.product(range(p.shape[0]), range(p.shape[1])):
        for k in range(j + 1):
            before = float(k == 0) if i == 0 else found[i - 1, k]
            found[i, j] += before * (1 - p[i, k:j]).prod() * p[i, j]
    return found


def enumerated_alignment(p: Tensor) -> Tensor:
    """From every way that there is to stop: (target) places that never go back."""
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
    """(rows, 1, target, source) as training makes it."""
    return (torch.arange(source) < torch.tensor(lengths)[:, None])[:, None, None].expand(-1, 1, target, -1)


@pytest.mark.parametrize("target", [1, 2, 3, 5, 8, 11])
def test_alignments_are_the_literal_ones(target: int) -> None:
    energy, lengths = draw(3, 2, target, 7, seed=target), [7, 4, 1]
    found = alignment(energy, visible(lengths, target, 7))
    for row, head in itertools.product(range(3), range(2)):
        p = chances(energy[row, head], lengths[row])
        torch.testing.assert_close(found[row, head, :, : lengths[row]], literal_alignment(p))
        assert not found[row, head, :, lengths[row] :].any()
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))


def test_alignments_are_those_of_all_ways_to_walk() -> None:
    energy = draw(1, 1, 4, 5)
    found = alignment(energy, visible([5], 4, 5))[0, 0]
    torch.testing.assert_close(found, enumerated_alignment(chances(energy[0, 0], 5)))


def test_attention_is_the_literal_one() -> None:
    stop, attend, lengths = draw(3, 2, 6, 7), draw(3, 2, 6, 7, seed=2), [7, 4, 1]
    seen = visible(lengths, 6, 7)
    aligned = alignment(stop, seen)
    found = lookback(attend, aligned, seen)
    for row, head in itertools.product(range(3), range(2)):
        wanted = literal_lookback(attend[row, head, :, : lengths[row]], aligned[row, head, :, : lengths[row]])
        torch.testing.assert_close(found[row, head, :, : lengths[row]], wanted)
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))


def test_gradients_are_right() -> None:
    seen = visible([4, 2], 3, 4)
    stop, attend = draw(2, 1, 3, 4).requires_grad_(), draw(2, 1, 3, 4, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: lookback(b, alignment(a, seen), seen), (stop, attend))


@pytest.mark.parametrize("scale", [1.0, 30.0, 3000.0])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_no_energy_is_too_large(kind: torch.dtype, scale: float) -> None:
    """Long sentences and chances of nearly 0 and 1: still distributions, close to double precision, and finite."""
    stop, attend = (draw(2, 2, 60, 90, seed=seed, scale=scale).to(kind).requires_grad_() for seed in (3, 4))
    seen = visible([90, 31], 60, 90)
    with torch.autocast("cpu", torch.bfloat16):
        aligned = alignment(stop, seen)
        weights = lookback(attend, aligned, seen)
    assert aligned.dtype == weights.dtype == torch.float32
    # The logarithms of attention are as large as its energies, and as exact.
    for found, error in ((aligned, 1e-5), (weights, 1e-3)):
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]), atol=error, rtol=0)
    exact = alignment(stop.detach().double(), seen)
    torch.testing.assert_close(aligned.double(), exact, atol=1e-5, rtol=0)
    gradients = torch.autograd.grad(weights.square().sum() + aligned.square().sum(), (stop, attend))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_latency_is_differentiable_average_lagging() -> None:
    """Of heads that stop with certainty, as metrics.py computes it for the latest one."""
    late, early = [2.0, 3.0, 3.0, 6.0], [1.0, 1.0, 2.0, 2.0]
    lengths, real = (torch.tensor([[n] * 6]) for n in (6, 4)), torch.tensor([[True] * 4 + [False] * 2])
    reads = torch.tensor([[[*late, 9.0, 9.0]], [[*early, 9.0, 9.0]]])
    # Ten thousand tokens apart, the softmax leaves the late head alone.
    far = Delays([reads[:1], reads[1:] - 10_000])
    source_lengths, target_lengths = lengths
    found = latency(far, source_lengths, target_lengths, real, 0.5)
    assert float(found) == pytest.approx(0.5 * differentiable_average_lagging([2, 3, 3, 6], 6))


def test_late_heads_weigh_more() -> None:
    """The average, written out: heads that are near each other all count, by the exponential of their delays."""
    heads = [[2.0, 2.5, 4.0], [1.0, 3.5, 3.0], [1.5, 1.5, 5.0]]
    lag, total = 0.0, 0.0
    for i in range(3):
        shares = [math.exp(head[i]) for head in heads]
        mean = sum(share * head[i] for share, head in zip(shares, heads, strict=True)) / sum(shares)
        lag = max(lag, mean - i * 5 / 3) if i else mean
        total += lag / 3
    delays = Delays([torch.tensor([heads[:2]]), torch.tensor([heads[2:]])])
    lengths = [torch.full((1, 3), count) for count in (5, 3)]
    found = latency(delays, lengths[0], lengths[1], torch.ones(1, 3, dtype=torch.bool), 1.0)
    assert float(found) == pytest.approx(total)


# The model.


def test_it_decides_the_same_every_way(monotone: Translator, sources: list[list[int]]) -> None:
    chosen = policy("mma")
    batched, alone, live = three_ways(monotone, sources, chosen)
    assert batched == alone == live
    assert batched == essence([translate_recomputed(monotone, source, chosen, LIMITS) for source in sources])
    waits = [g[i + 1] - g[i] for _, g in batched for i in range(len(g) - 1)]
    assert len(set(waits)) > 2, "heads that always do the same show nothing"


@pytest.mark.parametrize("name", ["wait-2", "full"])
def test_other_policies_cap_what_heads_may_see(monotone: Translator, sources: list[list[int]], name: str) -> None:
    batched, alone, live = three_ways(monotone, sources, policy(name))
    assert batched == alone == live
    assert batched == essence([translate_recomputed(monotone, source, policy(name), LIMITS) for source in sources])


def test_heads_that_are_sure_make_one_walk(monotone: Translator) -> None:
    """When every chance is 0 or 1, the expected attention of training is that of live translation."""
    model = Translator(monotone.settings, 17, 13).double().eval()
    model.load_state_dict(monotone.state_dict())
    with torch.no_grad():
        for cross in crosses(model):
            width = model.settings.width
            cross.query.weight[width:] *= 1e4
            cross.query.bias[width:] *= 1e4
    assert_live(model, Delays())


def test_validation_follows_one_walk_as_live_translation_does(monotone: Translator) -> None:
    assert_live(monotone, Delays(live=True))


def assert_live(model: Translator, walk: Delays) -> None:
    source, target, reads = [5, 9, 4, 12, 7, EOS], [6, 4, 11], [6, 6, 6, 6]
    at, to = (Tokens(torch.zeros(1, n, dtype=torch.long), torch.arange(n)[None]) for n in (6, 4))
    encoded = model.encode(torch.tensor([source]), at.position, dense_mask(at, at.position + 1, at))
    causal, across = dense_mask(to, to.position + 1, to), dense_mask(to, torch.tensor([reads]), at)
    states = model.decode(torch.tensor([[BOS, *target]]), to.position, encoded, causal, across, walk)
    torch.testing.assert_close(model.logits(states)[0, -1], masked_logits(model, source, target, reads))
    delays = torch.cat(walk.layers)
    torch.testing.assert_close(delays, delays.round())
    assert bool((delays.diff(dim=-1) >= 0).all())
    assert len(set(delays.flatten().tolist())) > 1


def test_a_batch_is_its_sentences(monotone: Translator, split: Split) -> None:
    """Padding changes neither loss nor latency."""
    objective = Objective(name="mma", latency_average=0.3)

    def loss(numbers: list[int]) -> float:
        batch, walk = pad_batch(split, np.array(numbers)), Delays()
        seen = RULES["mma"](objective, batch, torch.Generator())
        assert torch.equal(seen, batch.source_lengths), "heads decide for themselves how much they see"
        states = decode_batch(monotone, batch, seen, walk)
        total = cross_entropy(monotone, states, batch.labels, 0.1)
        return (total + latency_cost(objective, batch, walk)).item()

    assert loss([3, 1, 4, 5]) == pytest.approx(sum(loss([n]) for n in (3, 1, 4, 5)))


def test_packed_batches_are_refused(monotone: Translator, split: Split) -> None:
    batch = pack_batch(split, np.arange(4), 128, 128)
    cross = crosses(monotone)[0]
    states = draw(1, 128, 16)
    with pytest.raises(UserError, match="needs padded batches"):
        cross(states, cross.keys_values(states), cross_mask(batch, batch.source_lengths), None)


def test_a_model_without_such_heads_cannot(model: Translator) -> None:
    with pytest.raises(UserError, match="policy mma: this model has no monotone heads"):
        translate_batch(model, [[5, EOS]], policy("mma"), LIMITS)
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
    batch, walk = pad_batch(dataset.split("valid"), np.arange(20)), Delays()
    decode_batch(load_run(run, CPU).model, batch, batch.source_lengths, walk)
    return float(torch.cat(walk.layers).mean())


def test_the_weight_of_latency_makes_heads_hurry(recipe: Recipe, toy_dataset: Dataset) -> None:
    found = []
    for weight in (0.0, 3.0):
        changes = {"steps": 40, "validate_every": 40, "validate_bleu": False, "keep": "loss"}
        objective = Objective(name="mma", latency_average=weight)
        one = changed(replace(elsewhere(recipe, f"run-{weight}"), objective=objective), **changes)
        found.append(mean_delay(train(one, CPU), toy_dataset))
    assert found[1] < found[0] - 1


def test_a_run_that_was_stopped_ends_with_the_same_weights(recipe: Recipe) -> None:
    """The noise of the energies follows from the step too. (The schedule does not know which step is the last.)"""
    recipe = changed(recipe, preset="paper", validate_every=4)
    whole, parts = (elsewhere(recipe, name) for name in ("whole", "parts"))
    train(whole, CPU)
    train(changed(parts, steps=4), CPU)
    train(parts, CPU)
    assert_same(tensors(Path(whole.run), "last"), tensors(Path(parts.run), "last"))


def test_it_is_evaluated_under_its_name(recipe: Recipe) -> None:
    records = evaluate_run(train(recipe, CPU), [], None, False, [], "cpu")
    assert [(record.system, record.policy) for record in records] == [("mma", "mma"), ("mma (wait)", "wait-3")]
    table = read_json(Path(recipe.run) / "evaluations" / "test.mma.heads.json")
    assert [(head["layer"], head["head"]) for head in table["heads"]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert point_label(Result((records[0],))) == "λ=0.1"


@pytest.mark.parametrize("stage", ["search", "agent"])
def test_nothing_else_is_learnt_from_its_heads(recipe: Recipe, stage: Literal["search", "agent"]) -> None:
    with pytest.raises(UserError, match=r"^stages: .* has no"):
        replace(recipe, stages=("translate", stage))
    with pytest.raises(UserError, match=r"^train.layout: .* padded"):
        changed(recipe, layout="packed")
