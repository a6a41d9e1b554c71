"""The stage `evaluate`: what was measured is not measured again, so a killed evaluation goes on."""

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.runs import CPU, whole_recipe, write_toml
from whilst.cli.main import main
from whilst.core.files import read_json, sha256, write_json
from whilst.core.settings import Data, Evaluate, Recipe
from whilst.data.dataset import Dataset
from whilst.evaluation import evaluate
from whilst.evaluation import record as scoring
from whilst.evaluation.identity import Decoding
from whilst.evaluation.record import Record, read_record, write_record
from whilst.evaluation.trace import read_trace
from whilst.model.checkpoint import LoadedRun, load_tensors, save_tensors
from whilst.policy import Policy
from whilst.training.train import add_stage_time, read_stage_times, train

POLICIES = ("wait-1", "full", "agent-1", "agent-1.threshold-0.4", "oracle-2")


@pytest.fixture(scope="module")
def made(toy_data: Data, toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Trained and evaluated."""
    assert toy_folder == Path(toy_data.dataset)
    run = tmp_path_factory.mktemp("measured") / "run"
    recipe = whole_recipe(toy_data, run, Evaluate(policies=POLICIES, max_ratio=1.0, max_extra=3))
    train(recipe, CPU)
    return recipe


@pytest.fixture
def recipe(made: Recipe, tmp_path: Path) -> Recipe:
    """A copy, to change what lies there; that it lies elsewhere is no reason to measure it again."""
    shutil.copytree(made.run, tmp_path / "run")
    return dataclasses.replace(made, run=str(tmp_path / "run"))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been translated since."""
    names: list[str] = []
    real = evaluate.evaluate

    def watched(
        trained: LoadedRun, dataset: Dataset, one: Policy, folder: Path, text: bool
    ) -> Callable[[], Record]:
        names.append(str(Decoding.of(one.spec, trained.recipe.evaluate)))
        return real(trained, dataset, one, folder, text)

    monkeypatch.setattr(evaluate, "evaluate", watched)
    return names


def again(recipe: Recipe, **settings: object) -> Recipe:
    return dataclasses.replace(recipe, evaluate=dataclasses.replace(recipe.evaluate, **settings))  # type: ignore[arg-type]


def of(recipe: Recipe, policy: str, ending: str = "json") -> Path:
    return Path(recipe.run) / f"evaluations/test.{policy}.{ending}"


def test_what_is_measured_is_not_measured_again(
    recipe: Recipe, decoded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(recipe.run)
    report = (run / "report/report.md").read_text(encoding="utf-8")
    (run / "report/report.md").unlink()
    took = read_stage_times(run)["evaluate"]
    train(recipe, CPU)
    assert decoded == []
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.endswith(": evaluated already")] == [
        f"{policy}: evaluated already" for policy in POLICIES
    ]
    assert (run / "report/report.md").read_text(encoding="utf-8") == report
    assert read_stage_times(run)["evaluate"] == took, "nothing was measured: its time stays"


def test_a_killed_evaluation_goes_on(recipe: Recipe, monkeypatch: pytest.MonkeyPatch, decoded: list[str]) -> None:
    whole = {policy: read_record(of(recipe, policy)).scores for policy in POLICIES}
    shutil.rmtree(Path(recipe.run) / "evaluations")
    left = iter(range(2))

    def killed(path: Path, record: Record) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        write_record(path, record)

    monkeypatch.setattr(scoring, "write_record", killed)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, CPU)
    assert decoded == ["wait-1", "full", "agent-1"]
    assert of(recipe, "agent-1", "jsonl.xz").is_file(), "killed between trace and record"
    monkeypatch.setattr(scoring, "write_record", write_record)
    decoded.clear()
    add_stage_time(Path(recipe.run), "evaluate", 1000.0, resumed=False)
    train(recipe, CPU)
    assert decoded == list(POLICIES[2:])
    assert {policy: read_record(of(recipe, policy)).scores for policy in POLICIES} == whole
    assert read_stage_times(Path(recipe.run))["evaluate"] > 1000, "the times add up"


def test_records_older_than_a_setting_are_as_its_default(recipe: Recipe, decoded: list[str]) -> None:
    for policy in POLICIES:
        table = read_json(of(recipe, policy))
        del table["settings"]["evaluate"]["ending"]
        write_json(of(recipe, policy), table)
    train(recipe, CPU)
    assert decoded == []


def test_another_ending_is_measured_beside_them(recipe: Recipe, decoded: list[str]) -> None:
    before = {policy: of(recipe, policy).read_bytes() for policy in POLICIES}
    train(again(recipe, ending="patient"), CPU)
    others = [policy for policy in POLICIES if policy != "full"]
    assert decoded == [f"{policy}.ending-patient" for policy in others], "with the whole source there is no other"
    assert {policy: of(recipe, policy).read_bytes() for policy in POLICIES} == before
    for policy in others:
        assert read_record(of(recipe, f"{policy}.ending-patient")).settings["evaluate"]["ending"] == "patient"
    of(recipe, "full").unlink()
    train(again(recipe, ending="patient"), CPU)
    assert read_record(of(recipe, "full")).settings["evaluate"]["ending"] == "free", "it changes nothing"


def test_another_policy_is_measured_beside_them(recipe: Recipe, decoded: list[str]) -> None:
    train(again(recipe, policies=("wait-2", *POLICIES)), CPU)
    assert decoded == ["wait-2"]


def touch(path: Path) -> None:
    """Other weights, a little."""
    tensors, about = load_tensors(path, CPU)
    save_tensors(path, {name: tensor + 1e-3 for name, tensor in tensors.items()}, about)


def lose_checksum(recipe: Recipe) -> None:
    table = read_json(of(recipe, "agent-1"))
    assert table.pop("agent_sha256") == sha256(Path(recipe.run) / "search/agent/model.safetensors")
    write_json(of(recipe, "agent-1"), table)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


CHANGES: dict[str, tuple[Callable[[Recipe], None], tuple[str, ...]]] = {
    "agent": (lambda recipe: touch(Path(recipe.run) / "search/agent/model.safetensors"), POLICIES[2:4]),
    "record without the agent": (lose_checksum, ("agent-1",)),
    "no record": (lambda recipe: of(recipe, "oracle-2").unlink(), ("oracle-2",)),
    "no trace": (lambda recipe: of(recipe, "wait-1", "jsonl.xz").unlink(), ("wait-1",)),
    "damaged trace": (lambda recipe: cut(of(recipe, "full", "jsonl.xz")), ("full",)),
    "damaged record": (lambda recipe: cut(of(recipe, "full")), ("full",)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_in_doubt_is_measured_again(recipe: Recipe, decoded: list[str], name: str) -> None:
    change, expected = CHANGES[name]
    change(recipe)
    train(dataclasses.replace(recipe, stages=("evaluate",)), CPU)
    assert tuple(decoded) == expected


def test_other_settings_and_a_restart_measure_all(recipe: Recipe, decoded: list[str]) -> None:
    train(again(recipe, max_extra=4), CPU)
    assert len(decoded) == len(POLICIES)
    decoded.clear()
    train(again(recipe, max_extra=4), CPU, restart=True)
    assert len(decoded) == len(POLICIES), "though seeds give the same weights"


def test_traces_without_text_at_once(recipe: Recipe, decoded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_toml(recipe, Path(recipe.run).with_name("recipe.toml"))
    for option, expected in (("--no-text", len(POLICIES)), ("--no-text", 0), ("--text", len(POLICIES))):
        monkeypatch.setattr(sys, "argv", ["whilst", "train", str(file), option, "--device", "cpu"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert len(decoded) == expected, option
        decoded.clear()
        for policy in POLICIES:
            sentences = read_trace(of(recipe, policy, "jsonl.xz"))
            assert {sentence.source is None for sentence in sentences} == {option == "--no-text"}


def test_the_command_evaluate_always_measures(recipe: Recipe, decoded: list[str]) -> None:
    evaluate.evaluate_run(Path(recipe.run), ["wait-1"], None, True, [], "cpu")
    assert decoded == ["wait-1"]
