"""Training: learning, the best checkpoint, patience, and which settings may change in a run."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.runs import (
    CPU,
    LAST,
    about,
    assert_same,
    changed,
    elsewhere,
    history,
    short_recipe,
    tensors,
    whole_recipe,
)
from whilst.core.config import to_table
from whilst.core.distributed import Processes
from whilst.core.errors import UserError
from whilst.core.files import read_json
from whilst.core.settings import Agent, Data, Evaluate, Objective, Recipe
from whilst.data.dataset import Dataset, Split
from whilst.data.vocabulary import PAD
from whilst.model.checkpoint import load_run, load_tensors
from whilst.model.transformer import Translator, decode_batch
from whilst.search.labels import Labels
from whilst.training.loop import Loop
from whilst.training.losses import cross_entropy
from whilst.training.tasks import AgentTask, Validation, make_task, validate
from whilst.training.train import train


@pytest.fixture
def recipe(toy_data: Data, toy_folder: Path, tmp_path: Path) -> Recipe:
    assert toy_folder == Path(toy_data.dataset)
    return short_recipe(toy_data, tmp_path / "run")


def best_step(run: Path) -> int:
    step: int = about(run, "model")["step"]
    return step


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Translator]]:
    """`script((loss, bleu), …)` makes up what validations find; returns the models that were validated."""

    def use(*figures: tuple[float, float | None]) -> list[Translator]:
        found: Iterator[tuple[float, float | None]] = iter(figures)
        validated: list[Translator] = []

        def invented(model: Translator, recipe: Recipe, dataset: Dataset) -> Validation:  # noqa: ARG001
            validated.append(model)
            return Validation(*next(found))

        monkeypatch.setattr("whilst.training.tasks.validate", invented)
        return validated

    return use


# Learning.


def test_training_learns_and_leaves_a_loadable_model(
    recipe: Recipe, toy_dataset: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = changed(recipe, steps=160, validate_every=80, save_every=500, log_every=20, lr=0.02)
    recipe = dataclasses.replace(recipe, logger="tensorboard")
    run = train(recipe, CPU)
    rows = history(run)
    losses = [row["train/loss"] for row in rows if "train/loss" in row]
    assert [row["step"] for row in rows if "train/loss" in row] == list(range(20, 161, 20))
    assert losses[-1] < 0.6 * losses[0]
    validations = [row for row in rows if "valid/loss" in row]
    assert [row["step"] for row in validations] == [80, 160]
    assert validations[1]["valid/loss"] < validations[0]["valid/loss"]
    assert validations[1]["valid/bleu"] > 3

    trained = load_run(run, CPU)
    assert trained.recipe == recipe
    best = trained.about["validation"]
    assert dataclasses.asdict(validate(trained.model, recipe, toy_dataset)) == best

    summary = read_json(run / "summary.json")
    assert (summary["steps"], summary["best_step"], summary["best"]) == (160, trained.about["step"], best)
    assert summary["parameters"] == trained.model.parameter_count()
    assert summary["target_tokens_per_second"] > 0

    said = capsys.readouterr().err
    assert "step    160  validation loss" in said
    assert "best so far" in said
    assert "\x1b" not in said
    assert "\r" not in said  # no bar

    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    events = EventAccumulator(str(run / "tensorboard")).Reload()
    tags = events.Tags()["scalars"]
    assert set(tags) == {"train/loss", "train/lr", "train/tokens_per_second", "valid/loss", "valid/bleu"}
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(losses)
    assert [event.step for event in events.Scalars("valid/bleu")] == [80, 160]


@pytest.mark.parametrize(
    "objective",
    [
        Objective(name="full"),
        Objective(name="wait-k", k=2),
        Objective(draw="batch"),
        Objective(r_drop=2.0, label_smoothing=0.0),
    ],
    ids=lambda objective: f"{objective.name}-{objective.draw}-{objective.r_drop}",
)
def test_every_objective_goes_down(recipe: Recipe, objective: Objective) -> None:
    run = train(dataclasses.replace(changed(recipe, steps=16, validate_every=100), objective=objective), CPU)
    losses = [row["train/loss"] for row in history(run) if "train/loss" in row]
    assert losses[-1] < 0.9 * losses[0]


def test_the_agent_learns_from_so_many_pairs(toy_data: Data, toy_dataset: Dataset, tmp_path: Path) -> None:
    recipe = whole_recipe(toy_data, tmp_path / "run", Evaluate())
    recipe = dataclasses.replace(recipe, stages=("translate", "agent"), agent=Agent(hidden=8, pairs=50, train=LAST))
    run = train(recipe, CPU).parent
    [labels] = (run / "labels").glob("train.*.safetensors")
    sentences = toy_dataset.split("train").target
    chosen = [sentences[number * len(sentences) // 50] for number in range(50)]
    assert load_tensors(labels, CPU)[0]["reads"].shape == (2, sum(map(len, chosen)))


@pytest.mark.slow
def test_the_search_for_labels_is_not_counted_as_training(
    toy_data: Data, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toy_folder == Path(toy_data.dataset)
    find = AgentTask.find

    def slow(task: AgentTask, split: Split) -> Labels:
        time.sleep(0.5)
        return find(task, split)

    monkeypatch.setattr(AgentTask, "find", slow)
    monkeypatch.setattr("whilst.training.train.announce", lambda *_: None)
    recipe = whole_recipe(toy_data, tmp_path / "run", Evaluate())
    run = train(dataclasses.replace(recipe, stages=("translate", "agent")), CPU)
    assert read_json(run / "summary.json")["seconds"] < 1  # two splits


def test_an_update_is_the_mean_over_all_tokens(
    recipe: Recipe, toy_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the tokens of all micro-batches, whatever their sizes; padding counts for nothing."""
    monkeypatch.setattr("whilst.training.loop.computes_bf16", lambda _: False)  # compared with gradients in fp32
    recipe = dataclasses.replace(
        changed(recipe, accumulate=3, clip=0.0),
        objective=Objective(name="full"),
        model=dataclasses.replace(recipe.model, dropout=0.0),
    )
    loop = Loop(recipe, make_task(recipe, toy_dataset, CPU))
    model = loop.state.model
    assert isinstance(model, Translator)
    micros, count, place = next(loop.updates())
    assert place == (0, 3)
    total, tokens = torch.zeros(()), 0
    for _, batch in micros:
        states = decode_batch(model, batch, batch.source_lengths)
        total = total + cross_entropy(model, states, batch.labels, 0.1)
        tokens += int((batch.labels != PAD).sum())
    assert count == tokens
    expected = torch.autograd.grad(total / tokens, list(loop.state.model.parameters()))
    monkeypatch.setattr(loop.state.adam, "step", lambda: None)
    monkeypatch.setattr(loop.state.adam, "zero_grad", lambda set_to_none: None)  # noqa: ARG005
    torch.testing.assert_close(loop.update(micros, count), total.detach())
    for parameter, gradient in zip(loop.state.model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_the_moving_average_is_validated(recipe: Recipe) -> None:
    recipe = changed(recipe, steps=4, validate_every=4)  # the only validation is the best
    plain = train(changed(recipe, ema=0.0), CPU)
    last = tensors(plain)
    for name, tensor in tensors(plain, "model").items():
        assert torch.equal(tensor, last[f"averaged.{name}"])
        assert torch.equal(tensor, last[f"model.{name}"])
    averaged = train(elsewhere(recipe, "averaged"), CPU)
    last = tensors(averaged)
    name = "target_embedding.weight"
    assert torch.equal(tensors(averaged, "model")[name], last[f"averaged.{name}"])
    assert not torch.equal(last[f"model.{name}"], last[f"averaged.{name}"])
    # The average does not influence training.
    assert torch.equal(last[f"model.{name}"], tensors(plain)[f"model.{name}"])


def test_the_same_seed_gives_the_same_weights(recipe: Recipe) -> None:
    runs = [train(elsewhere(changed(recipe, seed=seed), f"run-{i}"), CPU) for i, seed in enumerate((1, 1, 2))]
    assert_same(tensors(runs[0]), tensors(runs[1]))
    name = "model.target_embedding.weight"
    assert not torch.equal(tensors(runs[0])[name], tensors(runs[2])[name])


def test_a_budget_too_small_for_a_sentence_is_refused(recipe: Recipe) -> None:
    with pytest.raises(UserError, match=r"train\.batch_tokens: 5 is too small"):
        train(changed(recipe, batch_tokens=5), CPU)


# The best, and when to stop.


def test_which_validation_is_better() -> None:
    low, high = Validation(loss=3.0, bleu=10.0), Validation(loss=4.0, bleu=20.0)
    assert low.better(None, "bleu")
    assert high.better(low, "bleu")
    assert not high.better(low, "loss")
    assert low.better(high, "loss")
    assert not low.better(low, "bleu")  # the first of equals stays
    assert Validation(2.9, 10.0).better(low, "bleu")  # equal BLEU: the loss decides
    assert Validation(2.9, None).better(low, "bleu")


@pytest.mark.parametrize(("keep", "step"), [("bleu", 6), ("loss", 4)])
def test_the_best_by_the_chosen_figure_is_kept(recipe: Recipe, script: Any, keep: str, step: int) -> None:
    script((4.0, 5.0), (1.0, 6.0), (3.0, 9.0), (2.0, 8.0))
    run = train(changed(recipe, keep=keep), CPU)
    assert best_step(run) == read_json(run / "summary.json")["best_step"] == step
    figures = {4: {"loss": 1.0, "bleu": 6.0}, 6: {"loss": 3.0, "bleu": 9.0}}
    assert about(run, "model")["validation"] == figures[step] | {"figures": {}}


def test_without_bleu_the_loss_decides(recipe: Recipe, toy_dataset: Dataset) -> None:
    recipe = changed(recipe, validate_bleu=False, keep="loss")
    run = train(recipe, CPU)
    rows = [row for row in history(run) if "valid/loss" in row]
    assert all(row["valid/bleu"] is None for row in rows)
    assert best_step(run) == min(rows, key=lambda row: row["valid/loss"])["step"]
    assert validate(load_run(run, CPU).model, recipe, toy_dataset).bleu is None


def test_patience_stops_training(recipe: Recipe, script: Any) -> None:
    recipe = changed(recipe, steps=100, patience=2)
    validated = script((4.0, 5.0), (3.0, 6.0), (2.0, 5.0), (2.0, 5.5))
    run = train(recipe, CPU)
    assert len(validated) == 4
    assert read_json(run / "summary.json")["steps"] == 8
    assert best_step(run) == 4
    before = tensors(run)
    train(recipe, CPU)  # would fail at a fifth validation
    assert_same(tensors(run), before)
    # More patience, and it goes on.
    validated = script((1.0, 7.0), *[(1.0, 1.0)] * 3)
    train(changed(recipe, patience=3), CPU)
    assert len(validated) == 4
    assert read_json(run / "summary.json")["steps"] == 16


def test_files_of_a_run(recipe: Recipe) -> None:
    run = train(recipe, CPU)
    assert {path.name for path in run.iterdir()} == {
        *(".lock", "recipe.json", "source.json", "target.json", "times.json", "history.jsonl", "summary.json"),
        *("model.safetensors", "last.safetensors"),
    }


# Resuming and restarting.


def test_a_run_can_be_made_longer(recipe: Recipe) -> None:
    recipe = changed(recipe, preset="paper")  # whose rate does not depend on the length of the run
    whole = train(recipe, CPU)
    recipe = elsewhere(recipe, "longer")
    train(changed(recipe, steps=4), CPU)
    run = train(changed(recipe, validate_every=4, save_every=1), CPU)
    assert_same(tensors(run), tensors(whole))
    assert read_json(run / "recipe.json")["recipe"]["train"]["steps"] == 8


def test_other_settings_are_refused_by_name(recipe: Recipe) -> None:
    run = train(changed(recipe, steps=2), CPU)
    before = tensors(run)
    other = dataclasses.replace(
        changed(recipe, lr=0.02, seed=5),
        model=dataclasses.replace(recipe.model, dropout=0.2),
        objective=Objective(name="full"),
    )
    with pytest.raises(UserError) as caught:
        train(other, CPU)
    message = str(caught.value)
    assert message.startswith(f"{run}: was trained with other settings (")
    named = message[message.index("(") + 1 : message.index(")")]
    assert named == "model.dropout, objective.name, train.lr, train.seed"
    assert "--restart" in message
    assert_same(tensors(run), before)
    assert read_json(run / "recipe.json")["recipe"] == json.loads(json.dumps(to_table(changed(recipe, steps=2))))


def test_restart_begins_anew(recipe: Recipe) -> None:
    run = train(changed(recipe, steps=12, lr=0.02), CPU)
    assert train(recipe, CPU, restart=True) == run
    fresh = train(elsewhere(recipe, "fresh"), CPU)
    assert {path.name for path in run.iterdir()} == {path.name for path in fresh.iterdir()}
    for name in ("last", "model"):
        assert_same(tensors(run, name), tensors(fresh, name))
    assert history(run) == history(fresh)


def test_a_damaged_checkpoint_is_a_user_error(recipe: Recipe, tmp_path: Path) -> None:
    run = train(changed(recipe, steps=2), CPU)
    (run / "last.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"last\.safetensors: cannot be read"):
        train(changed(recipe, steps=2), CPU)
    missing = dataclasses.replace(recipe, data=Data(dataset=str(tmp_path / "absent")))
    with pytest.raises(UserError, match="absent: no such dataset"):
        train(missing, CPU)


# Several processes (test_torchrun.py tests that they agree).


def test_work_must_be_shared_evenly(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "join", lambda device: Processes(0, 2))  # noqa: ARG005
    monkeypatch.setattr(Processes, "broadcast", lambda self, value, device: value)  # noqa: ARG005
    with pytest.raises(UserError, match=r"train\.accumulate: 3 micro-batches cannot be shared evenly by 2"):
        train(changed(recipe, accumulate=3), CPU)


def test_only_the_first_process_validates_and_writes(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of two processes; the first is simulated and adds nothing."""
    monkeypatch.setattr(Processes, "join", lambda device: Processes(1, 2))  # noqa: ARG005
    for name in ("sum_gradients", "leave"):
        monkeypatch.setattr(Processes, name, lambda *_: None)
    monkeypatch.setattr(Processes, "sum", lambda self, value: value)  # noqa: ARG005
    for name in ("broadcast", "largest"):
        monkeypatch.setattr(Processes, name, lambda self, value, device: value)  # noqa: ARG005
    validated = script()
    run = train(changed(recipe, accumulate=2), CPU)
    assert validated == []
    assert not run.exists()
    assert capsys.readouterr().err == ""
