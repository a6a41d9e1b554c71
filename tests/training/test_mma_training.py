"""How monotonic heads are trained: what latency costs, when, and from which weights they may begin."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.conftest import crosses, make_model
from tests.helpers.runs import CPU, assert_same, changed, elsewhere, short_recipe, tensors
from whilst.core.errors import UserError
from whilst.core.settings import Data, Model, Objective, Recipe
from whilst.data.batches import pad_batch
from whilst.data.dataset import Dataset, Split
from whilst.model.monotonic_attention import weights_from_soft_attention
from whilst.model.transformer import Translator, decode_batch
from whilst.training.tasks import TranslatorTask, make_task
from whilst.training.train import train


@pytest.fixture
def recipe(toy_data: Data, toy_folder: Path, tmp_path: Path) -> Recipe:
    assert toy_folder == Path(toy_data.dataset)
    short = short_recipe(toy_data, tmp_path / "run")
    return replace(short, model=replace(short.model, cross="monotone"), objective=Objective(name="mma"))


def test_converted_heads_attend_as_before(tiny: Model, model: Translator, split: Split) -> None:
    """Of heads that read everything before they stop, nothing else is left: the old model."""
    made = make_model(replace(tiny, cross="monotone"), seed=5)
    made.load_state_dict(weights_from_soft_attention(made, dict(model.state_dict())))
    for cross in crosses(made):
        assert bool(cross.query.weight[tiny.width :].any()), "where to stop begins with weights of its own"
        cross.bias.data.fill_(-1e6)
    batch = pad_batch(split, torch.arange(6).numpy())
    found, wanted = (decode_batch(one, batch, batch.source_lengths) for one in (made, model))
    torch.testing.assert_close(found, wanted)


def test_weights_of_monotonic_heads_are_not_converted(monotone: Translator) -> None:
    weights = dict(monotone.state_dict())
    assert_same(weights_from_soft_attention(make_model(monotone.settings, seed=5), weights), weights)


def test_monotonic_heads_can_start_from_soft_attention(recipe: Recipe, toy_data: Data) -> None:
    before = train(elsewhere(short_recipe(toy_data, Path(recipe.run)), "before"), CPU)
    after = train(changed(replace(recipe, start=str(before)), lr=1e-9, warmup=0, ema=0.0), CPU)
    given, found = tensors(before, "model"), tensors(after, "model")
    width = recipe.model.width
    torch.testing.assert_close(found["decoder.0.cross.query.weight"][:width], given["decoder.0.cross.query.weight"])
    key, value = given["decoder.0.cross.key_value.weight"].chunk(2)
    torch.testing.assert_close(found["decoder.0.cross.key_value.weight"][:width], key)
    torch.testing.assert_close(found["decoder.0.cross.key_value.weight"][2 * width :], value)
    torch.testing.assert_close(found["source_embedding.weight"], given["source_embedding.weight"])


def test_a_start_of_another_size_is_refused(recipe: Recipe, toy_data: Data, toy_dataset: Dataset) -> None:
    other = short_recipe(toy_data, Path(recipe.run))
    before = train(elsewhere(replace(other, model=replace(other.model, width=16)), "before"), CPU)
    with pytest.raises(UserError, match=r"has model\.width = 16; set the same in the recipe of"):
        make_task(replace(recipe, start=str(before)), toy_dataset, CPU)


def test_the_weight_of_latency_rises_with_the_steps(recipe: Recipe, toy_dataset: Dataset) -> None:
    def losses(objective: Objective) -> list[float]:
        task = make_task(replace(recipe, objective=objective), toy_dataset, CPU)
        assert isinstance(task, TranslatorTask)
        task.module.eval()
        batch = pad_batch(toy_dataset.split("valid"), torch.arange(4).numpy())
        found = []
        for step in (0, 10, 15, 20, 30):
            task.set_step(step)
            found.append(task.loss(batch, batch.source_lengths).item())
        return found

    without = losses(Objective(name="mma", latency_average=0.0))
    whole = losses(Objective(name="mma", latency_average=0.5))
    assert len(set(without)) == len(set(whole)) == 1
    cost = whole[0] - without[0]
    assert cost > 1
    rising = losses(Objective(name="mma", latency_average=0.5, latency_rise=20))
    shares = [(one - without[0]) / cost for one in rising]
    assert shares == pytest.approx([0, 0.5, 0.75, 1, 1], abs=1e-4)
