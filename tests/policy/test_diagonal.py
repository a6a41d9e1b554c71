"""The diagonal policy: its reads, and the length ratio of the training data."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.runs import CPU
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data, Evaluate, Limits, Model, Recipe
from whilst.data.dataset import Dataset, Split, length_ratio, read_manifest
from whilst.decoding.batched import translate, translate_batch
from whilst.decoding.policies import policy_for
from whilst.evaluation.identity import System
from whilst.model.checkpoint import LoadedRun
from whilst.model.transformer import Translator
from whilst.policy import View
from whilst.policy.fixed import Diagonal, WaitK


@given(st.integers(1, 9), st.integers(1, 50), st.integers(1, 50), st.integers(0, 40))
def test_decisions_follow_the_formula(k: int, source: int, target: int, written: int) -> None:
    needed = k + (written * source) // target
    read = torch.arange(needed + 3)
    empty = torch.zeros(len(read), 1, dtype=torch.long)
    view = View(read, torch.full_like(read, written), empty, empty[:, 0], empty[..., None], empty)
    assert Diagonal(k, (source, target)).start(read).write(view).tolist() == [r >= needed for r in read.tolist()]


def test_reads_of_batches_equal_single_sentences(model: Translator, random_split: Callable[..., Split]) -> None:
    split = random_split(12, 31)
    sources = [split.source[i].tolist() for i in range(12)]
    policy, limits = Diagonal(2, (7, 10)), Limits(1.5, 4)
    outputs = translate(model, sources, policy, limits, 5)
    for number, (source, output) in enumerate(zip(sources, outputs, strict=True)):
        assert output.reads == [min(2 + i * 7 // 10, len(source)) for i in range(len(output.reads))]
        alone = translate_batch(model, [source], policy, limits, [number])[0]
        assert (alone.units, alone.reads) == (output.units, output.reads)


def test_a_length_ratio_of_one_is_wait_k(model: Translator, random_split: Callable[..., Split]) -> None:
    sources = [random_split(8, 32).source[i].tolist() for i in range(8)]
    first, second = (translate(model, sources, p, Limits(1.5, 4), 8) for p in (Diagonal(3, (5, 5)), WaitK(3)))
    assert [output.reads for output in first] == [output.reads for output in second]


def test_the_length_ratio_of_a_run(toy_dataset: Dataset, toy_data: Data, tiny: Model) -> None:
    split = toy_dataset.split("train")
    pace = length_ratio(read_manifest(toy_dataset.path))
    assert pace == (len(split.source.tokens), len(split.target.tokens))
    model = Translator(tiny, len(toy_dataset.source), len(toy_dataset.target)).to(CPU)
    recipe = Recipe(model=tiny, data=toy_data)
    trained = LoadedRun(Path("run"), recipe, toy_dataset.source, toy_dataset.target, model, {})
    chosen = policy_for(trained, PolicySpec.parse("diagonal-4"), Evaluate())
    assert chosen == Diagonal(4, pace)
    assert chosen.name == "diagonal-4"
    assert str(System.of(trained.recipe, chosen.spec)) == "multi-path, diagonal"
    for name in ("diagonal", "diagonal-0", "diagonal-x"):
        with pytest.raises(UserError, match="K must be a whole number from 1, as in diagonal-3"):
            PolicySpec.parse(name)
