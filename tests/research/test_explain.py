"""Explaining a sentence: probabilities against the slow reference, forced decoding, the picture."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.decoding import recomputed_logits
from tests.helpers.runs import CPU
from whilst.core.errors import UserError
from whilst.core.settings import Limits, Model, Recipe, Search
from whilst.data.dataset import Dataset
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import forced_reads, translate_batch
from whilst.model.checkpoint import LoadedRun
from whilst.model.transformer import Translator
from whilst.policy.fixed import WaitK
from whilst.research.explain import draw, explain


@pytest.fixture(scope="module")
def trained(toy_dataset: Dataset) -> LoadedRun:
    """An untrained model of the toy languages."""
    torch.manual_seed(1)
    settings = Model(width=16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16)
    recipe = Recipe(model=settings, search=Search(intervals=((1, 4), (2, 5)), slope="one"))
    model = Translator(settings, len(toy_dataset.source), len(toy_dataset.target)).to(CPU).eval()
    return LoadedRun(Path("run"), recipe, toy_dataset.source, toy_dataset.target, model, {})


@pytest.fixture(scope="module")
def pair(toy_dataset: Dataset) -> tuple[str, str]:
    sources, targets = toy_dataset.text("test")
    return sources[0], targets[0]


def test_probabilities_match_the_slow_reference(trained: LoadedRun, pair: tuple[str, str]) -> None:
    found = explain(trained, *pair, first=2)
    source = [*trained.source.encode(pair[0].split()), EOS]
    target = [*trained.target.encode(pair[1].split()), EOS]
    assert found.probabilities.shape == (len(target), len(source))
    for i, g in ((0, 1), (2, 3), (3, len(source)), (len(target) - 1, 4)):
        path = [min(max(g - i + j, 1), len(source)) for j in range(i + 1)]
        chance = recomputed_logits(trained.model, source, target[:i], path).softmax(-1)[target[i]]
        assert found.probabilities[i, g - 1] == pytest.approx(float(chance), rel=1e-4)
    assert found.low == [min(2 + i, len(source)) for i in range(len(target))]
    assert found.high == [min(5 + i, len(source)) for i in range(len(target))]
    assert all(low <= g <= high for low, g, high in zip(found.low, found.found, found.high, strict=True))
    assert found.agent is None


def test_without_a_target_the_models_translation_is_explained(trained: LoadedRun, pair: tuple[str, str]) -> None:
    found = explain(trained, pair[0], None, 1)
    assert found.target[-1] == "</s>"
    assert np.all((found.probabilities >= 0) & (found.probabilities <= 1))


def test_forced_decoding_along_its_own_translation_is_decoding(trained: LoadedRun, pair: tuple[str, str]) -> None:
    source = [*trained.source.encode(pair[0].split()), EOS]
    for k in (1, 3):
        output = translate_batch(trained.model, [source], WaitK(k), Limits(1.0, 0))[0]
        assert forced_reads(trained.model, [source], [output.units], WaitK(k)) == [
            output.reads[: len(output.units)]
        ]


def test_picture(trained: LoadedRun, pair: tuple[str, str], tmp_path: Path) -> None:
    found = explain(trained, *pair, first=1)
    for name in ("one.png", "one.svg"):
        draw(found, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000


def test_mistakes(trained: LoadedRun) -> None:
    with pytest.raises(UserError, match="source sentence is empty"):
        explain(trained, "  ", None, 1)
    with pytest.raises(UserError, match="this run knows 1, 2"):
        explain(trained, "a", None, 7)
