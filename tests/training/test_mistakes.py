"""Mistakes with runs and datasets are reported in one line, and nothing is lost or mixed up."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.evaluations import make
from tests.helpers.runs import CPU, elsewhere, short_recipe, whole_recipe
from whilst.core.config import load_recipe
from whilst.core.errors import UserError
from whilst.core.files import sha256
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data, Evaluate, Objective, Recipe
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.engine.export import export
from whilst.evaluation.curves import group_seeds
from whilst.evaluation.evaluate import check_evaluation, evaluate_run, translate_text
from whilst.evaluation.metrics import score
from whilst.evaluation.record import read_record, rescore
from whilst.evaluation.trace import read_trace
from whilst.live.evaluate_export import evaluate_exported
from whilst.model.checkpoint import load_run, save_tensors
from whilst.research.explain import explain
from whilst.research.sufficiency import jobs_of, sufficiency
from whilst.training.train import train


@pytest.fixture(scope="module")
def whole(toy_data: Data, toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A run with all stages."""
    assert toy_folder == Path(toy_data.dataset)
    evaluate = Evaluate(policies=("wait-1", "wait-1"), max_ratio=0.2, max_extra=2)  # one of them twice
    recipe = whole_recipe(toy_data, tmp_path_factory.mktemp("whole") / "run", evaluate)
    train(recipe, CPU)
    return recipe


@pytest.fixture(scope="module")
def reversed_data(toy_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """The same text in the other direction."""
    folder = tmp_path_factory.mktemp("turned")
    there = Path(prepare(dataclasses.replace(toy_data, dataset=str(folder / "there"))))
    valid, test = ((f"{split}.target.txt", f"{split}.source.txt") for split in ("valid", "test"))
    data = Data(str(folder / "turned"), folder=str(there), source="tgt", target="src", units="word")
    data = dataclasses.replace(data, train=valid, valid=valid, test=test)
    prepare(data)
    return data


@pytest.fixture(scope="module")
def offline(toy_data: Data, toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A run with a bidirectional encoder."""
    assert toy_folder == Path(toy_data.dataset)
    recipe = short_recipe(toy_data, tmp_path_factory.mktemp("offline") / "run")
    model = dataclasses.replace(recipe.model, encoder="bidirectional")
    recipe = dataclasses.replace(recipe, model=model, objective=Objective(name="full"))
    train(recipe, CPU)
    return recipe


def copy(recipe: Recipe, name: str) -> Recipe:
    other = elsewhere(recipe, name)
    shutil.copytree(recipe.run, other.run)
    return other


@pytest.mark.parametrize("name", ["last.safetensors", "recipe.json", "model.safetensors"])
def test_a_finished_run_that_lost_a_file_is_refused(whole: Recipe, name: str) -> None:
    recipe = copy(whole, f"without {name}")
    run = Path(recipe.run)
    (run / name).unlink()
    before = {path.name: sha256(path) for path in run.glob("*.safetensors")}
    with pytest.raises(UserError, match=f"^{run}: its training has finished, but {name} is missing; put it back"):
        train(recipe, CPU)
    assert {path.name: sha256(path) for path in run.glob("*.safetensors")} == before


def test_a_folder_with_other_files_is_refused(whole: Recipe) -> None:
    recipe = elsewhere(whole, "letters")
    (folder := Path(recipe.run)).mkdir()
    (folder / "to my aunt.txt").write_text("Dear aunt,")
    for restart in (False, True):
        with pytest.raises(UserError, match=rf"^run: {folder} is not a run folder \(it has to my aunt\.txt\)"):
            train(recipe, CPU, restart)
    assert [path.name for path in folder.iterdir()] == ["to my aunt.txt"]


def test_a_run_cannot_start_from_itself(whole: Recipe) -> None:
    with pytest.raises(UserError, match=r"^start: .* is the run itself"):
        train(dataclasses.replace(whole, start=whole.run), CPU)
    with pytest.raises(UserError, match=r"^start: "):
        train(dataclasses.replace(whole, stages=("agent",), start=""), CPU)


def first_lines(dataset: str, folder: Path, count: int) -> list[str]:
    """The settings of a dataset with so much of the test text."""
    shutil.copytree(dataset, folder)
    for side in ("source", "target"):
        text = folder / f"test.{side}.txt"
        text.write_text("".join(text.read_text().splitlines(keepends=True)[:count]))
    return [f"data.dataset={folder}"]


def test_evaluations_of_an_export_are_not_overwritten_by_others(
    whole: Recipe, reversed_data: Data, tmp_path: Path
) -> None:
    export(Path(whole.run), out := tmp_path / "engine")
    two, three = (first_lines(whole.data.dataset, tmp_path / f"{count}", count) for count in (2, 3))
    (record,) = evaluate_exported(out, ["wait-1", "wait-1"], "fp32", None, False, two, "cpu")
    assert (record.policy, record.scores.sentences) == ("wait-1.fp32", 2)
    before = sha256(path := out / "evaluations" / "test.wait-1.fp32.json")
    with pytest.raises(UserError, match=f"^{path}: is an evaluation of another text"):
        evaluate_exported(out, ["wait-1"], "fp32", None, False, three, "cpu")
    with pytest.raises(UserError, match=f"^data.dataset: .* is tgt to src, but {out} translates src to tgt$"):
        evaluate_exported(out, ["wait-1"], "fp32", None, False, [f"data.dataset={reversed_data.dataset}"], "cpu")
    with pytest.raises(UserError, match="was trained with it"):
        evaluate_exported(out, ["wait-1"], "fp32", None, False, ["search.slope=one"], "cpu")
    assert sha256(path) == before
    export(Path(whole.run) / "search", tuned := tmp_path / "tuned")
    with pytest.raises(UserError, match=f"^{path}: is an evaluation of {whole.run}; choose another folder"):
        evaluate_exported(tuned, ["wait-1"], "fp32", out / "evaluations", False, two, "cpu")
    assert sha256(path) == before


def test_evaluations_are_not_overwritten_by_those_of_other_texts(
    whole: Recipe, reversed_data: Data, tmp_path: Path
) -> None:
    run = Path(whole.run)
    with pytest.raises(UserError, match=f"^data.dataset: .* is tgt to src, but {run} translates src to tgt$"):
        evaluate_run(run, ["wait-1"], None, False, [f"data.dataset={reversed_data.dataset}"], "cpu")
    other = first_lines(whole.data.dataset, tmp_path / "other", 3)
    record = run / "evaluations" / "test.wait-1.json"
    before = sha256(record)
    with pytest.raises(UserError, match=f"^{record}: is an evaluation of another text; choose another folder with"):
        evaluate_run(run, ["wait-1"], None, False, other, "cpu")
    assert sha256(record) == before
    (twice,) = evaluate_run(run, ["wait-1", "wait-1"], tmp_path / "out", False, other, "cpu")
    assert twice.scores.sentences == 3
    (tmp_path / "other" / "test.target.txt").write_text("one line\n")
    with pytest.raises(UserError, match=r"test\.source\.txt has 3 lines but .*test\.target\.txt has 1; line i"):
        evaluate_run(run, ["wait-1"], tmp_path / "out", False, other, "cpu")


def test_records_contain_the_dataset_and_the_start(whole: Recipe) -> None:
    checksum = Dataset.open(Path(whole.data.dataset)).checksum
    record = read_record(Path(whole.run) / "evaluations" / "test.wait-1.json")
    assert record.origin == {"dataset_sha256": checksum}
    (tuned,) = evaluate_run(Path(whole.run), ["agent-1"], None, False, [], "cpu")
    assert tuned.origin == {"dataset_sha256": checksum, "began_with": "multi-path"}
    alone = elsewhere(dataclasses.replace(whole, stages=("agent",), start=whole.run), "an agent alone")
    train(alone, CPU)
    (steered,) = evaluate_run(Path(alone.run), ["agent-1"], None, False, [], "cpu")
    assert steered.origin == {"dataset_sha256": checksum}


@pytest.mark.parametrize("origin", [{"dataset_sha256": "other"}, {"began_with": "full"}])
def test_seeds_of_other_text_or_another_start_are_not_pooled(origin: dict[str, str]) -> None:
    one, other = (make("wait-k", "wait-3", 4.0, 28.0, seed=seed) for seed in (1, 2))
    assert len(group_seeds([one, other])) == 1
    first = dataclasses.replace(one, origin=dict.fromkeys(origin, "multi-path"))
    assert len(group_seeds([first, dataclasses.replace(other, origin=origin)])) == 2


def test_the_seed_of_train_is_the_default_of_later_stages(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("[train]\nseed = 4\n[agent.train]\nseed = 7\n")
    recipe = load_recipe(tmp_path / "one.toml", [])
    assert [part.train.seed for part in (recipe, recipe.search, recipe.agent)] == [4, 4, 7]
    recipe = load_recipe(tmp_path / "one.toml", ["train.seed=5", "search.train.seed=1"])
    assert [part.train.seed for part in (recipe, recipe.search, recipe.agent)] == [5, 1, 7]


def test_bidirectional_encoders_are_refused_where_prefixes_matter(offline: Recipe, tmp_path: Path) -> None:
    trained = load_run(Path(offline.run), CPU)
    with pytest.raises(UserError, match="its encoder is bidirectional, so it needs the whole source"):
        explain(trained, "kan musak", None, 1)
    asked = dataclasses.replace(offline, evaluate=Evaluate(policies=("full", "wait-3", "diagonal-3")))
    asked = dataclasses.replace(asked, stages=("translate", "evaluate"))
    with pytest.raises(UserError, match=r"^policy diagonal-3: a full-sentence model only supports full"):
        check_evaluation(asked, Dataset.open(Path(offline.data.dataset)), CPU)
    for name, line in (("s", "kan musak\n"), ("r", "kan musak\n"), ("a", "1-1 2-2\n")):
        (tmp_path / name).write_text(line)
    files = tmp_path / "s", tmp_path / "r", tmp_path / "a"
    with pytest.raises(UserError, match=r"^policy full: reads everything first"):
        sufficiency([Path(offline.run)], files, ["full"], False, False, tmp_path, [], "cpu")


def test_impossible_policies_are_refused_before_training(whole: Recipe) -> None:
    asked = dataclasses.replace(whole, evaluate=Evaluate(policies=("mma",)))
    with pytest.raises(UserError, match="monotone"):
        check_evaluation(asked, Dataset.open(Path(whole.data.dataset)), CPU)


def test_runs_of_other_languages_do_not_compare(whole: Recipe, reversed_data: Data, tmp_path: Path) -> None:
    other = dataclasses.replace(short_recipe(reversed_data, tmp_path / "turned"), stages=("translate",))
    train(other, CPU)
    with pytest.raises(UserError, match=r"^these runs cannot be compared: .* src to tgt, .* tgt to src$"):
        jobs_of([Path(whole.run), Path(other.run)], ["wait-1"], [], "cpu")


def test_translating_finds_the_agent_of_a_run(
    whole: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("kan musak\n")
    translate_text(Path(whole.run), tmp_path / "text", PolicySpec.parse("agent-1"), False, [], "cpu")
    assert len(capsys.readouterr().out.splitlines()) == 1
    with pytest.raises(UserError, match=r"is an agent; name its translator, .*/search$"):
        load_run(Path(whole.run) / "search" / "agent", CPU)


def test_a_damaged_dataset_can_be_made_anew(toy_data: Data, tmp_path: Path) -> None:
    data = dataclasses.replace(toy_data, dataset=str(tmp_path / "set"))
    checksum = Dataset.open(prepare(data)).checksum
    (tmp_path / "set" / "train.source.tokens.npy").unlink()
    assert Dataset.open(prepare(data, overwrite=True)).checksum == checksum


def test_weights_that_cannot_be_written_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    def full(*_: Any) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("whilst.model.checkpoint.save_file", full)
    with pytest.raises(UserError, match=r"cannot be written \(I/O error: No space left on device\); the old"):
        save_tensors(tmp_path / "model.safetensors", {}, {})


def test_mistakes_in_scoring_name_the_sentence_or_file(whole: Recipe) -> None:
    trace = Path(whole.run) / "evaluations" / "test.wait-1.jsonl.xz"
    sentences = read_trace(trace)
    with pytest.raises(UserError, match=r"by index: sentence 1 \(from 0\) is missing$"):
        score([sentences[0], *sentences[2:]], ["a"] * len(sentences))
    with pytest.raises(UserError, match=r"by index: sentence 1 \(from 0\) is one too many$"):
        score([*sentences, sentences[1]], ["a"] * len(sentences))
    with pytest.raises(UserError, match=r"is a record; name its trace, such as test\.wait-1\.jsonl\.xz"):
        rescore(trace.with_name("test.wait-1.json"))
    with pytest.raises(UserError, match=r"is a folder; name a file in it$"):
        read_trace(trace.parent)
