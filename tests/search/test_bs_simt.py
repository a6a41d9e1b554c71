"""BS-SiMT on a small toy corpus: three stages, and an agent that is better than wait-k."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from tests.helpers.runs import CPU, about, history
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Agent, Data, Evaluate, Model, Recipe, Search, Train
from whilst.data import toy
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.decoding.policies import policy_for, searched_reads
from whilst.evaluation.curves import Point, interpolate
from whilst.evaluation.evaluate import evaluate_run
from whilst.evaluation.record import Record, read_record
from whilst.model.checkpoint import load_run
from whilst.training.train import read_stage_times, stages, train

PAIRS = {"train": 6000, "valid": 200, "test": 200}


def quick(steps: int, lr: float, warmup: int) -> Train:
    return Train(
        steps=steps,
        lr=lr,
        warmup=warmup,
        validate_every=steps,
        save_every=steps,
        batch_tokens=1024,
        ema=0.97,
        validate_bleu=False,
        keep="loss",
    )


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """All stages trained, in about 20 seconds."""
    folder = tmp_path_factory.mktemp("bs-simt")
    pairs = toy.pairs(sum(PAIRS.values()), 5, toy.build_lexicon(0.1))
    files: dict[str, tuple[str, str]] = {}
    for name, count in PAIRS.items():
        part = [next(pairs) for _ in range(count)]
        files[name] = f"{name}.src", f"{name}.tgt"
        (folder / f"{name}.src").write_text("".join(f"{' '.join(p.source)}\n" for p in part), encoding="utf-8")
        (folder / f"{name}.tgt").write_text("".join(f"{' '.join(p.target)}\n" for p in part), encoding="utf-8")
    data = Data(
        dataset=str(folder / "data"),
        folder=str(folder),
        train=files["train"],
        valid=files["valid"],
        test=files["test"],
        units="word",
    )
    made = Recipe(
        run=str(folder / "run"),
        stages=("translate", "search", "agent"),
        data=data,
        model=Model(width=64, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=128, dropout=0.0),
        train=quick(400, 6e-3, 60),
        search=Search(
            intervals=((1, 6), (3, 8)), slope="one", tolerance=0.02, multi_path=0.3, train=quick(60, 1e-3, 10)
        ),
        agent=Agent(hidden=48, train=quick(200, 6e-3, 10)),
        evaluate=Evaluate(policies=("wait-1", "wait-2", "wait-3", "wait-5", "wait-7")),
    )
    prepare(data)
    assert train(made, CPU) == Path(made.run) / "search/agent"
    return made


@pytest.fixture(scope="module")
def records(recipe: Recipe) -> dict[str, Record]:
    run = Path(recipe.run)
    found = evaluate_run(run, [], None, True, [], "cpu")
    found += evaluate_run(run / "search", ["agent-1", "agent-3", "oracle-1", "oracle-3"], None, True, [], "cpu")
    return {record.policy: record for record in found}


@pytest.mark.parametrize(("first", "margin"), [(1, 12.0), (3, 7.0)])  # the difference is smaller at high latency
def test_the_agent_beats_wait_k_at_equal_latency(records: dict[str, Record], first: int, margin: float) -> None:
    points = [
        Point(name, record.scores.al, record.scores.bleu or 0.0)
        for name, record in records.items()
        if name.startswith("wait-")
    ]
    agent = records[f"agent-{first}"].scores
    level = interpolate(sorted(points, key=lambda point: point.al or 0.0), agent.al)
    assert level is not None
    assert agent.bleu is not None
    assert agent.bleu > level + margin
    assert str(records[f"agent-{first}"].system) == "BS-SiMT, ours, fine-tuned"


def test_later_intervals_have_higher_latency(records: dict[str, Record]) -> None:
    for kind in ("agent", "oracle"):
        low, high = records[f"{kind}-1"].scores, records[f"{kind}-3"].scores
        assert low.al + 0.7 < high.al


def test_the_agent_is_close_to_the_oracle(records: dict[str, Record]) -> None:
    for first in (1, 3):
        agent, oracle = records[f"agent-{first}"].scores, records[f"oracle-{first}"].scores
        assert abs(agent.al - oracle.al) < 0.5
        assert (oracle.bleu or 0) - (agent.bleu or 0) < 4


def test_the_agent_reports_its_accuracy(recipe: Recipe) -> None:
    figures = history(Path(recipe.run) / "search/agent")[-1]
    assert figures["valid/accuracy"] > 0.85
    assert 0 < figures["valid/f1_write"] < 1
    assert 0 < figures["valid/f1_read"] < 1
    assert about(Path(recipe.run) / "search/agent", "model")["validation"]["figures"]["accuracy"] > 0.85


def test_trained_stages_are_not_repeated(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    weights = [stage.run for stage in stages(recipe)]
    before = [(Path(run) / "model.safetensors").read_bytes() for run in weights]
    train(recipe, CPU)
    assert capsys.readouterr().err.count("nothing left to do") == 3
    assert [(Path(run) / "model.safetensors").read_bytes() for run in weights] == before


def test_a_stage_does_not_depend_on_later_ones(recipe: Recipe) -> None:
    """Other agent settings do not invalidate the translator."""
    only = dataclasses.replace(recipe, stages=("translate", "search"), agent=Agent(kind="gru"))
    train(only, CPU)
    for name, search in {
        "multi_path": dataclasses.replace(recipe.search, multi_path=0.5),
        "intervals": dataclasses.replace(recipe.search, intervals=((1, 6),)),
    }.items():
        changed = dataclasses.replace(recipe, search=search)
        with pytest.raises(UserError, match=rf"search: was trained with other settings \(search.{name}\)"):
            train(changed, CPU)


def test_oracle_reads_are_in_the_order_of_the_split(recipe: Recipe) -> None:
    trained = load_run(Path(recipe.run) / "search", CPU)
    split = Dataset.open(Path(recipe.data.dataset)).split("test")
    reads = searched_reads(trained, Evaluate(), split, PolicySpec("oracle", "1"))
    assert [len(row) for row in reads] == split.target.lengths.tolist()
    for row, length in zip(reads, split.source.lengths.tolist(), strict=True):
        assert all(min(i + 1, length) <= g <= min(i + 6, length) for i, g in enumerate(row))


def test_unknown_policies_of_a_run(recipe: Recipe) -> None:
    base, tuned = load_run(Path(recipe.run), CPU), load_run(Path(recipe.run) / "search", CPU)
    with pytest.raises(UserError, match="has no agent"):
        policy_for(base, PolicySpec.parse("agent-1"), Evaluate())
    with pytest.raises(UserError, match=r"agent-2: this run knows agent-1, agent-3"):
        policy_for(tuned, PolicySpec.parse("agent-2"), Evaluate())
    with pytest.raises(UserError, match="an oracle needs the reference"):
        policy_for(tuned, PolicySpec.parse("oracle-1"), Evaluate())


def test_changed_weights_of_an_earlier_stage_are_detected(recipe: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(recipe.run, run)
    (run / "model.safetensors").write_bytes((run / "search/model.safetensors").read_bytes())
    with pytest.raises(UserError, match="have changed since this run began"):
        train(dataclasses.replace(recipe, run=str(run)), CPU)


def test_evaluation_can_be_a_stage(recipe: Recipe) -> None:
    """Wait-k uses the multi-path model, the agent the fine-tuned one."""
    settings = Evaluate(policies=("wait-1", "agent-1", "agent-1.threshold-0.9"))
    train(dataclasses.replace(recipe, stages=("evaluate",), evaluate=settings), CPU)
    times = read_stage_times(Path(recipe.run))
    assert list(times) == ["translate", "search", "agent", "evaluate"]
    assert all(seconds > 0 for seconds in times.values())
    assert f"| agent | {times['agent']:,.1f} |" in (Path(recipe.run) / "report" / "report.md").read_text()
    run = Path(recipe.run)
    assert (run / "report" / "report.md").is_file()
    for policy, folder in (("wait-1", run), ("agent-1", run / "search")):
        record = read_record(run / "evaluations" / f"test.{policy}.json")
        assert record.model_sha256 == load_run(folder, CPU).checksum
    bold, wary = (read_record(run / "evaluations" / f"test.agent-1{name}.json") for name in ("", ".threshold-0.9"))
    assert bold.scores.al < wary.scores.al
    assert (bold.policy, wary.policy) == ("agent-1", "agent-1.threshold-0.9")
    with pytest.raises(UserError, match="a threshold is a number"):
        evaluate_run(run, ["wait-1", "agent-1.threshold-high"], None, True, [], "cpu")
    with pytest.raises(UserError, match="only agents have a threshold"):
        evaluate_run(run, ["wait-1.threshold-0.6"], None, True, [], "cpu")
