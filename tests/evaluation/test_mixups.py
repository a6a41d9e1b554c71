"""Evaluations and runs that look alike and are not: nothing runs, is named or is kept as what it is not."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs import CPU, elsewhere, short_recipe, whole_recipe
from whilst.cli.study import paper
from whilst.core.config import from_json, override, read_recipe
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec, distinct
from whilst.core.settings import MAX_POSITIONS, Data, Evaluate, Objective, Recipe
from whilst.data.dataset import Dataset, length_ratio, read_manifest
from whilst.data.prepare import prepare
from whilst.evaluation.evaluate import check_evaluation, evaluate_run, find_jobs, loader, translate_text
from whilst.evaluation.metrics import Scores
from whilst.evaluation.record import origin, read_records, record_path, rescore
from whilst.model.checkpoint import LoadedRun, load_run
from whilst.model.run_folder import base_objective, length_ratio_of
from whilst.training.tasks import Validation
from whilst.training.train import TIMES, read_stage_times, train

SHORT = Evaluate(policies=("wait-1",), max_ratio=0.2, max_extra=2)


@pytest.fixture(scope="module")
def whole(toy_data: Data, toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A run with all stages."""
    assert toy_folder == Path(toy_data.dataset)
    recipe = whole_recipe(toy_data, tmp_path_factory.mktemp("whole") / "run", SHORT)
    train(recipe, CPU)
    return recipe


def ask(recipe: Recipe, policy: str, out: Path | None, *sets: str) -> Any:
    return evaluate_run(Path(recipe.run), [policy], out, True, list(sets), "cpu")[0]


def test_an_agent_keeps_the_latencies_that_it_has_learnt(whole: Recipe, tmp_path: Path) -> None:
    """The second of two intervals alone would be taken for the first."""
    for setting in ("intervals=[[2,6]]", "intervals=[[1,5],[2,6],[9,13]]", "intervals=[[1,3],[2,4]]", "slope=one"):
        with pytest.raises(UserError, match=r"--set search.…: the agent of .* was trained with other settings"):
            ask(whole, "agent-2", tmp_path / "out", f"search.{setting}")
    found = ask(whole, "oracle-9", tmp_path / "out", "search.intervals=[[9,13]]")
    assert found.settings["search"]["intervals"] == [[9, 13]], "an oracle has learnt nothing"


def test_the_diagonals_pace_is_that_of_the_training_text(whole: Recipe, toy_data: Data, tmp_path: Path) -> None:
    """Not that of a text which it is evaluated on."""
    other = dataclasses.replace(toy_data, dataset=str(tmp_path / "other"), train=("train.tsv",))
    sides = [(Path(toy_data.folder) / f"train.{side}").read_text().splitlines() for side in ("src", "tgt")]
    lines = [f"{source}\t{target} {target}" for source, target in zip(*sides, strict=True)]
    (Path(toy_data.folder) / "train.tsv").write_text("\n".join(lines) + "\n")
    prepare(other)
    paces = [length_ratio(read_manifest(Path(data.dataset))) for data in (toy_data, other)]
    assert paces[0] != paces[1]
    run = Path(whole.run)
    assert length_ratio_of(run, dataclasses.replace(whole, data=other)) == paces[0]
    moved = dataclasses.replace(whole, data=dataclasses.replace(toy_data, dataset=str(tmp_path / "gone")))
    (tmp_path / "run").mkdir()
    table = json.loads((run / "recipe.json").read_text())
    table["recipe"]["data"]["dataset"] = moved.data.dataset
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(table))
    assert length_ratio_of(tmp_path / "run", whole) == paces[0], "it may have moved"


def test_a_run_remembers_what_it_began_with(toy_data: Data, tmp_path: Path) -> None:
    base = dataclasses.replace(short_recipe(toy_data, tmp_path / "base"), objective=Objective(name="full"))
    train(base, CPU)
    made = whole_recipe(toy_data, tmp_path / "run", SHORT)
    made = dataclasses.replace(made, start=base.run, stages=("search", "agent"))
    tuned = train(made, CPU).parent
    assert ask(made, "agent-1", tmp_path / "before").title == "BS-SiMT, ours, fine-tuned from full-sentence"
    shutil.move(base.run, tmp_path / "moved")
    after = ask(made, "agent-1", tmp_path / "after")
    assert (after.title, after.origin["began_with"]) == ("BS-SiMT, ours, fine-tuned from full-sentence", "full")
    recipe = read_recipe(tuned)
    assert base_objective(recipe) == ""
    assert base_objective(dataclasses.replace(recipe, start="another"), tuned) == "", "that of another start"


def test_a_run_does_not_go_on_with_another_text(toy_data: Data, tmp_path: Path) -> None:
    data = dataclasses.replace(toy_data, dataset=str(tmp_path / "set"))
    prepare(data)
    recipe = short_recipe(data, tmp_path / "run")
    train(recipe, CPU)
    prepare(data, overwrite=True)
    longer = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, steps=10))
    train(longer, CPU)  # the same, made again
    path = tmp_path / "set" / "train.target.tokens.npy"
    whole = bytearray(path.read_bytes())
    whole[-4:-2], whole[-8:-6] = whole[-8:-6], whole[-4:-2]
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"the text in .*set has changed since this run began"):
        train(dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, steps=12)), CPU)


def test_evaluations_of_other_runs_and_searches_stay(whole: Recipe, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ask(whole, "wait-1", out)
    ask(whole, "wait-1", out)  # its own may be made again
    tuned = dataclasses.replace(whole, run=f"{whole.run}/search")
    with pytest.raises(UserError, match=r"wait-1.json: is an evaluation of .*run; choose another folder"):
        ask(tuned, "wait-1", out)
    ask(whole, "oracle-1", out)
    for place in (out, None):  # beside the run's own as well
        kept = ask(whole, "oracle-1", place)
        with pytest.raises(UserError, match=r"oracle-1.json: is an oracle of another search"):
            ask(whole, "oracle-1", place, "search.tolerance=0.5")
        folder = place or Path(whole.run) / "evaluations"
        assert read_records([folder / "test.oracle-1.json"])[0].scores.to_table() == kept.scores.to_table()


def test_all_commands_take_the_agents_word_for_how_to_evaluate(
    whole: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's recipe came last, and has a threshold."""
    run = Path(whole.run).with_name("thresholds")
    shutil.copytree(whole.run, run)
    path = run / "search" / "agent" / "recipe.json"
    table = json.loads(path.read_text())
    table["recipe"]["evaluate"]["threshold"] = 0.9
    path.write_text(json.dumps(table))
    assert load_run(run / "search", CPU).recipe.evaluate.threshold == 0.9
    assert load_run(run, CPU).recipe.evaluate.threshold == 0.5
    for named, wanted in (("agent-1", 0.9), ("agent-1.threshold-0.2", 0.2)):
        (asked,) = find_jobs(run, [named], loader([], "cpu"))[1]
        assert asked.settings.threshold == wanted

    def tell(trained: LoadedRun, name: PolicySpec, settings: Evaluate, _: object) -> None:
        raise UserError(f"{name} at {settings.threshold} of {trained.path.name}")

    monkeypatch.setattr("whilst.evaluation.evaluate.policy_for", tell)
    with pytest.raises(UserError, match=r"agent-1 at 0\.9 of search"):
        translate_text(run, None, PolicySpec.parse("agent-1"), False, [], "cpu")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policies": ("wait-3", "agent-1")}, r"policy agent-1: .* has no agent"),
    ],
)
def test_what_cannot_be_evaluated_is_told_before_it_is_trained(
    toy_data: Data, toy_dataset: Dataset, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    recipe = short_recipe(toy_data, tmp_path / "run")
    recipe = dataclasses.replace(recipe, stages=("translate", "evaluate"), evaluate=Evaluate(**changes))
    with pytest.raises(UserError, match=said):
        check_evaluation(recipe, toy_dataset, CPU)


def test_a_record_says_how_its_text_was_cleaned(whole: Recipe, toy_data: Data, tmp_path: Path) -> None:
    """Of the dataset that was evaluated on: or the trace could not be scored again with the files."""
    folder = tmp_path / "text"
    shutil.copytree(toy_data.folder, folder, ignore=shutil.ignore_patterns("dataset"))
    for side in ("src", "tgt"):
        (folder / f"test.{side}").write_text((folder / f"test.{side}").read_text().title())
    data = dataclasses.replace(toy_data, folder=str(folder), dataset=str(tmp_path / "set"), lowercase=True)
    prepare(data)
    record = evaluate_run(Path(whole.run), ["wait-1"], tmp_path, False, [f"data.dataset={data.dataset}"], "cpu")[0]
    assert record.settings["data"]["lowercase"]
    found = rescore(tmp_path / "test.wait-1.jsonl.xz", folder / "test.src", folder / "test.tgt")
    assert found.differences == {}
    assert found.scores.bleu == pytest.approx(record.scores.bleu)


def test_patience_between_two_rows_of_the_history_is_an_end_too(toy_data: Data, tmp_path: Path) -> None:
    recipe = short_recipe(toy_data, tmp_path / "run")

    def trained(**settings: Any) -> dict[str, Any]:
        train(dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, **settings)), CPU)
        found = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert isinstance(found, dict)
        return found

    assert trained(steps=2)["steps"] == 2
    found = trained(steps=400, patience=1, log_every=300, lr=0.01)
    assert 2 < found["steps"] < 300
    assert found["target_tokens_per_second"] > 0
    assert trained(steps=400, patience=1, log_every=300) == found, "nothing was left to do"


def test_a_policy_is_one_however_it_is_spelled(whole: Recipe, tmp_path: Path) -> None:
    spelled = ["wait-03", "wait-3", "agent-translation", "full", "agent-01"]
    assert [str(PolicySpec.parse(name)) for name in spelled] == [
        "wait-3", "wait-3", "agent-translation", "full", "agent-1",
    ]  # fmt: skip
    spelled = ["agent-1", "wait-1", "agent-1.threshold-0.5", "wait-01", "agent-1.threshold-0.50", "agent-2"]
    found = [[*map(str, distinct(spelled, threshold))] for threshold in (0.5, 0.6)]
    assert found[0] == ["agent-1", "wait-1", "agent-2"]
    assert found[1] == [
        "agent-1",
        "wait-1",
        "agent-1.threshold-0.5",
        "agent-2",
    ]
    records = evaluate_run(Path(whole.run), spelled, tmp_path / "out", True, [], "cpu")
    assert [record.policy for record in records] == ["agent-1", "wait-1", "agent-2"]
    again = elsewhere(whole, "spelled")
    shutil.copytree(whole.run, again.run)
    again = dataclasses.replace(again, evaluate=dataclasses.replace(SHORT, policies=tuple(spelled)))
    for _ in range(2):
        train(dataclasses.replace(again, stages=("evaluate",)), CPU)
    trace = tmp_path / "out" / "test.wait-1.jsonl.xz"
    assert len(read_records([trace, record_path(trace), tmp_path / "out"])) == 3, "each once"


def test_a_sentence_that_no_model_can_take_is_told(toy_data: Data, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"data.max_length: must be from 2 to {MAX_POSITIONS - 1}"):
        override(Recipe(), [f"data.max_length={MAX_POSITIONS}"])
    folder = tmp_path / "text"
    shutil.copytree(toy_data.folder, folder, ignore=shutil.ignore_patterns("dataset"))
    for side in ("src", "tgt"):
        word = (folder / f"valid.{side}").read_text().split()[0]
        (folder / f"valid.{side}").write_text(f"{word}\n{f'{word} ' * (MAX_POSITIONS + 1)}\n")
    data = dataclasses.replace(toy_data, folder=str(folder), dataset=str(tmp_path / "set"))
    prepare(data)
    with pytest.raises(UserError, match=f"a sentence of {MAX_POSITIONS + 2} units is too long"):
        train(short_recipe(data, tmp_path / "run"), CPU)


def test_files_of_the_wrong_shape_are_told(whole: Recipe, tmp_path: Path) -> None:
    table: dict[str, Any] = dataclasses.asdict(Scores(1, 0, al=1.0, cw=1.0, al_word=1.0, laal=1.0, ap=1.0, dal=1.0))
    assert from_json(Scores, table, "scores").bleu is None
    for name, value in (("al", None), ("bleu", "x"), ("sentences", [1]), ("signatures", "x")):
        with pytest.raises(UserError, match=f"^scores: {name}: must be a "):
            from_json(Scores, table | {name: value}, "scores")
    (tmp_path / "manifest.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        read_manifest(tmp_path)
    (tmp_path / TIMES).write_text("[]")
    assert read_stage_times(tmp_path) == {}
    (tmp_path / "summary.json").write_text("[]")
    assert origin(tmp_path, whole) == {}
    with pytest.raises(UserError, match=r"nowhere: no such folder"):
        paper(tmp_path / "nowhere", tmp_path / "out")


def test_text_that_is_not_utf8_and_folders_at_home(
    toy_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "home" / "texts"
    shutil.copytree(toy_data.folder, folder, ignore=shutil.ignore_patterns("dataset"))
    (folder / "broken").write_bytes(b"one\n\xff \xfe\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    data = dataclasses.replace(toy_data, folder="~/texts", dataset="set", train=("broken", "broken"))
    with pytest.raises(UserError, match=r"texts/broken:2: not valid UTF-8"):
        prepare(data)
    monkeypatch.chdir(tmp_path)
    toy = Data(corpus="toy", folder="~/toy", dataset=str(tmp_path / "toy"), toy_pairs=50, units="word")
    prepare(toy)
    assert (tmp_path / "home" / "toy").is_dir()
    assert not (tmp_path / "~").exists()


def test_a_loss_that_is_no_number_is_never_the_best() -> None:
    nan, good, better = (Validation(value) for value in (math.nan, 2.0, 1.0))
    assert nan.better(None, "loss"), "or there would be nothing to look at"
    assert [one.better(other, "loss") for one, other in ((nan, good), (nan, nan), (good, nan), (better, good))] == [
        False, False, True, True,
    ]  # fmt: skip
