"""The translation-based policy: labels compared with translating every prefix, and an agent trained on them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from tests.conftest import make_model
from tests.helpers.decoding import recomputed_logits
from tests.helpers.runs import CPU, short_recipe
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Agent, Data, Evaluate, Limits, Model, Objective, Recipe, Search
from whilst.data.batches import pad_batch
from whilst.data.dataset import Dataset, Split, TokenSequences
from whilst.data.vocabulary import EOS, PAD
from whilst.decoding.batched import translate
from whilst.decoding.policies import policy_for
from whilst.evaluation.curves import Result
from whilst.evaluation.evaluate import evaluate_run
from whilst.model.checkpoint import load_run
from whilst.model.run_folder import model_folder
from whilst.model.transformer import Translator, most_likely
from whilst.policy.fixed import Full
from whilst.research.explain import explain
from whilst.search.binary_search import Interval, search
from whilst.search.labels import agreement_reads, bounded_agreement, find_agreement_labels
from whilst.training.tasks import AgentTask, make_task
from whilst.training.train import in_order, stages, train, train_all

LIMITS = Limits(1.5, 4)


def with_translations(model: Translator, split: Split) -> Split:
    """The split with the model's translations as targets."""
    lines = [split.source[i].tolist() for i in range(len(split.source))]
    return Split(
        split.source, TokenSequences.from_lists([o.sentence for o in translate(model, lines, Full(), LIMITS, 8)])
    )


def needed_reads(model: Translator, source: list[int], target: list[int]) -> list[int]:
    """`agreement_reads` of one sentence, prefix by prefix; `target` has its end mark."""

    def agrees(count: int, position: int) -> bool:
        prefix = source[:count] + [EOS] * model.bidirectional
        logits = recomputed_logits(model, prefix, target[:position], [len(prefix)] * (position + 1))
        return int(most_likely(logits[None])) == target[position]

    reads = [1]
    for position in range(len(target)):
        reads.append(next((g for g in range(reads[-1], len(source)) if agrees(g, position)), len(source)))
    return reads[1:]


@pytest.mark.parametrize("encoder", ["causal", "bidirectional"])
def test_forced_passes_match_translating_every_prefix(
    tiny: Model, encoder: Literal["causal", "bidirectional"], random_split: Callable[..., Split]
) -> None:
    model = make_model(dataclasses.replace(tiny, encoder=encoder))
    split = with_translations(model, random_split(30, 41))
    batch = pad_batch(split, np.arange(30))
    found = agreement_reads(model, batch)
    assert bool((found[:, 1:] >= found[:, :-1]).all())
    spread = set()
    for number, row in enumerate(found.tolist()):
        source, target = split.source[number].tolist(), split.target[number].tolist()
        wanted = needed_reads(model, source, target)
        assert row[: len(target)] == wanted
        assert all(1 <= g <= len(source) for g in row)
        spread |= {g / len(source) for g in wanted}
    assert len(spread) > 10, "the reads should vary"


def test_bounded_reads_agree_or_are_the_end_of_the_interval(
    model: Translator, random_split: Callable[..., Split]
) -> None:
    split, interval = with_translations(model, random_split(30, 44)), Interval(1, 6, "ratio")
    batch = pad_batch(split, np.arange(30))
    settings = bounded_agreement(Search(intervals=((1, 6),), slope="ratio", target="belief"))
    found = search(model, batch, settings, 1)
    paths = [interval.reads(batch, offset).tolist() for offset in range(6)]
    agreed, waited = 0, 0
    for number, row in enumerate(found.tolist()):
        source, target = split.source[number].tolist(), split.target[number].tolist()
        for place, reads in enumerate(row[: len(target)]):
            if reads == paths[-1][number][place]:
                waited += reads < len(source)
            elif not place or reads > row[place - 1]:  # else the reads of the token before
                path = next(path[number] for path in paths if path[number][place] == reads)
                logits = recomputed_logits(model, source, target[:place], path[: place + 1])
                assert int(most_likely(logits[None])) == target[place]
                agreed += 1
    assert min(agreed, waited) > 10
    assert bool((found < agreement_reads(model, batch)).any()), "bounded reads are sometimes fewer"


def test_labels_of_a_split_serve_any_batch(model: Translator, random_split: Callable[..., Split]) -> None:
    split = with_translations(model, random_split(25, 43))
    labels = find_agreement_labels(model, split, tokens=60)
    batch = pad_batch(split, np.random.default_rng(1).permutation(25)[:9])
    stored = labels.reads_of(batch, torch.zeros(9, dtype=torch.long))
    real = batch.labels != PAD
    assert torch.equal(stored[real], agreement_reads(model, batch)[real])


@pytest.fixture(scope="module")
def recipe(toy_data: Data, toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A full-sentence model and its translation-based agent, both barely trained."""
    assert toy_folder == Path(toy_data.dataset)
    base = short_recipe(toy_data, tmp_path_factory.mktemp("prefixes") / "run")
    agent = Agent(hidden=8, labels="translation", train=dataclasses.replace(base.train, keep="loss"))
    made = dataclasses.replace(
        base,
        stages=("translate", "agent"),
        objective=Objective(name="full"),
        agent=agent,
        evaluate=Evaluate(policies=("agent-translation",), max_ratio=1.0, max_extra=2),
    )
    assert train(made, CPU) == Path(made.run) / "agent"
    return made


def test_the_run_has_the_policy_agent_translation(recipe: Recipe) -> None:
    (record,) = evaluate_run(Path(recipe.run), [], None, True, [], "cpu")
    assert (str(record.system), record.policy) == ("translation-based", "agent-translation")
    trained = load_run(Path(recipe.run), CPU)
    with pytest.raises(UserError, match="agent-1: this run knows agent-translation"):
        policy_for(trained, PolicySpec.parse("agent-1"), Evaluate())
    assert explain(trained, "a b c", None, 3).agent is not None


def test_an_agent_learns_bounded_labels_in_one_interval(recipe: Recipe, tmp_path: Path) -> None:
    agent = dataclasses.replace(recipe.agent, agreement="within")
    made = dataclasses.replace(
        recipe,
        run=str(tmp_path / "within"),
        start=recipe.run,
        stages=("agent",),
        agent=agent,
        search=Search(intervals=((2, 6),)),
    )
    train(made, CPU)
    (record,) = evaluate_run(Path(made.run), [], None, True, [], "cpu")
    assert (str(record.system), record.policy) == ("translation-based", "agent-translation")
    assert record.settings["search"]["intervals"] == [[2, 6]]
    assert Result((record,)).change == "within [2,6]"
    with pytest.raises(UserError, match="was trained with other settings"):
        evaluate_run(Path(made.run), [], tmp_path / "out", True, ["search.intervals=[[1, 5]]"], "cpu")
    trained = load_run(Path(made.run), CPU)
    shown = explain(trained, "a b c d e f", None, 2)
    wanted = dataclasses.replace(
        trained, recipe=dataclasses.replace(trained.recipe, search=bounded_agreement(made.search))
    )
    assert shown.found == explain(dataclasses.replace(wanted, agent=None), "a b c d e f", None, 2).found
    with pytest.raises(UserError, match="intervals: give one"):
        dataclasses.replace(made, search=Search(intervals=((1, 5), (2, 6))))


def test_the_translation_based_agent_has_its_own_folder(tmp_path: Path) -> None:
    for name in ("model.safetensors", "search/model.safetensors", "search/agent/model.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert model_folder(tmp_path, PolicySpec.parse("agent-translation")) == tmp_path / "search"
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/model.safetensors").touch()
    assert model_folder(tmp_path, PolicySpec.parse("agent-translation")) == tmp_path
    assert model_folder(tmp_path, PolicySpec.parse("agent-1")) == tmp_path / "search"


def test_translations_are_made_once(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("whilst.training.distil.translate", lambda *_: pytest.fail("translated once more"))
    train(recipe, CPU)
    assert capsys.readouterr().err.count("nothing left to do") == 2


def test_a_bidirectional_encoder_has_no_agent(recipe: Recipe, tmp_path: Path) -> None:
    """Refused before any training."""
    bidirectional = dataclasses.replace(recipe.model, encoder="bidirectional")
    whole = dataclasses.replace(recipe, run=str(tmp_path / "whole"), stages=("translate",), model=bidirectional)
    train(whole, CPU)
    agent = dataclasses.replace(recipe, run=str(tmp_path / "agent"), start=whole.run, stages=("agent",))
    with pytest.raises(UserError, match="no agent can use"):
        train(agent, CPU)


def test_a_full_sentence_model_can_make_the_labels(recipe: Recipe, tmp_path: Path) -> None:
    full = dataclasses.replace(
        recipe,
        run=str(tmp_path / "full"),
        stages=("translate",),
        model=dataclasses.replace(recipe.model, encoder="bidirectional"),
    )
    agent = dataclasses.replace(recipe.agent, labeller=full.run)
    made = dataclasses.replace(recipe, run=str(tmp_path / "run"), start=recipe.run, stages=("agent",), agent=agent)
    assert in_order([made, full]) == [full, made]
    train_all([made, full], CPU)
    task = make_task(stages(made)[0], Dataset.open(Path(made.data.dataset)), CPU)
    assert isinstance(task, AgentTask)
    labeller = load_run(Path(full.run), CPU).model
    split = task.dataset.split("valid")
    wanted = find_agreement_labels(labeller, split, 100).reads
    assert torch.equal(task.labels["valid"].reads, wanted)
    assert not torch.equal(find_agreement_labels(task.translator, split, 100).reads, wanted)
    (record,) = evaluate_run(Path(made.run), [], None, True, [], "cpu")
    assert (str(record.system), record.deciding["agent.labeller"]) == ("translation-based", True)
    with pytest.raises(UserError, match=r"agent\.labeller: needs labels"):
        Agent(labeller="runs/full")
