"""Sufficiency: the figure by hand, whichever run and policy it is of, and how its points are named and drawn."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.helpers.commands import whilst
from tests.helpers.paper_results import rows
from tests.helpers.runs import CPU, elsewhere, short_recipe
from whilst.core import console
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Agent, Data, Evaluate, Objective, Recipe, Search
from whilst.data.dataset import Dataset
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import forced_reads
from whilst.decoding.policies import policy_for
from whilst.evaluation.evaluate import Job
from whilst.evaluation.figure import Line
from whilst.evaluation.metrics import average_lagging
from whilst.model.checkpoint import LoadedRun, load_run, load_tensors, save_tensors
from whilst.model.transformer import Translator
from whilst.policy import patient
from whilst.policy.patient import Patient
from whilst.research import paper
from whilst.research.explain import explain
from whilst.research.paper_tables import Collection
from whilst.research.sufficiency import (
    Aligned,
    Point,
    curves,
    jobs_of,
    measure_points,
    print_points,
    sufficiency,
)
from whilst.training.train import train

parse = PolicySpec.parse
TUNED = "BS-SiMT, ours, fine-tuned"

Files = tuple[Path, Path, Path]


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.fixture(scope="module")
def recipe(toy_data: Data, toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A multi-path model, fine-tuned, with an agent; like all runs here barely trained."""
    assert toy_folder == Path(toy_data.dataset)
    base = short_recipe(toy_data, tmp_path_factory.mktemp("sufficiency") / "run")
    last = dataclasses.replace(base.train, keep="loss", validate_bleu=False)
    made = dataclasses.replace(
        base,
        stages=("translate", "search", "agent"),
        search=Search(intervals=((1, 3), (3, 5)), train=last),
        agent=Agent(hidden=8, train=last),
        evaluate=Evaluate(policies=("wait-1", "full", "agent-3", "oracle-3")),
    )
    train(made, CPU)
    return made


@pytest.fixture(scope="module")
def run(recipe: Recipe) -> Path:
    return Path(recipe.run)


@pytest.fixture(scope="module")
def heads(recipe: Recipe) -> list[Path]:
    """Two runs with monotonic heads, which differ by their weight of latency, and by when they stop."""
    made = []
    for weight, bias in ((0.1, (1.0, -3.0)), (0.4, (-1.0, -2.0))):
        one = dataclasses.replace(
            elsewhere(recipe, f"mma-{weight}"),
            stages=("translate",),
            model=dataclasses.replace(recipe.model, cross="monotone"),
            objective=Objective(name="mma", latency_average=weight),
            evaluate=Evaluate(policies=("mma",)),
        )
        weights = train(one, CPU) / "model.safetensors"
        tensors, about = load_tensors(weights, CPU)
        # Heads as little trained as these do not stop, or all at once.
        save_tensors(weights, tensors | {"decoder.0.cross.bias": torch.tensor(bias)}, about)
        made.append(weights.parent)
    return made


@pytest.fixture(scope="module")
def tuned(recipe: Recipe) -> Path:
    """A run whose translator is another's: it has only RUN/search."""
    search = dataclasses.replace(recipe.search, intervals=((1, 2), (3, 4)))
    one = dataclasses.replace(elsewhere(recipe, "tuned"), start=recipe.run, search=search)
    train(dataclasses.replace(one, stages=("search", "agent")), CPU)
    return Path(one.run)


@pytest.fixture(scope="module")
def files(toy_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Eight toy sentences, aligned any way: in order, and one long link."""
    folder = tmp_path_factory.mktemp("aligned")
    sources, targets = (lines[:8] for lines in toy_dataset.text("test"))
    links = []
    for source, target in zip(sources, targets, strict=True):
        words = len(source.split()), len(target.split())
        links.append(" ".join([*(f"{i}-{i}" for i in range(1, min(words) + 1)), f"{words[0]}p1"]))
    sides = {"s": sources, "t": targets, "a": links}
    return tuple(write(folder, name, "".join(f"{x}\n" for x in lines)) for name, lines in sides.items())  # type: ignore[return-value]


def by_hand(trained: LoadedRun, files: Files, name: str, possible: bool) -> tuple[float, float]:
    """Sentence by sentence; here a word is a unit."""
    met = total = 0
    lags = []
    sources, targets, links = (path.read_text(encoding="utf-8").splitlines() for path in files)
    for source, target, line in zip(sources, targets, links, strict=True):
        ids = [*trained.source.encode(source.split()), EOS]
        wanted = [*trained.target.encode(target.split()), EOS]
        reads = forced_reads(trained.model, [ids], [wanted], policy_for(trained, parse(name), Evaluate()))[0]
        last: dict[int, int] = {}
        for item in line.replace("p", "-" if possible else "p").split():
            if "p" not in item:
                left, right = map(int, item.split("-"))
                last[right] = max(left, last.get(right, 0))
        met += sum(reads[i - 1] >= j for i, j in last.items())
        total += len(last)
        lags.append(average_lagging([min(g, len(ids) - 1) for g in reads[:-1]], len(ids) - 1, len(wanted) - 1))
    return met / total, sum(lags) / len(lags)


def point_of(run: Path, text: Aligned, name: str, *overrides: str) -> Point:
    (point,) = measure_points(jobs_of([run], [name], ["evaluate.batch=3", *overrides], "cpu"), text)
    return point


def labels(line: Line) -> list[str]:
    return [point.label for point in line.points]


def test_forced_decoding_does_not_wait_for_the_end_mark(
    run: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patient policy would, wherever the model itself would end: here, always."""
    text = Aligned.read(*files, False, False)
    monkeypatch.setattr(patient, "most_likely", lambda logits: torch.full(logits.shape[:-1], EOS))
    chosen = policy_for(load_run(run, CPU), parse("wait-1"), Evaluate(ending="patient"))
    assert isinstance(chosen, Patient)
    assert point_of(run, text, "wait-1", "evaluate.ending=patient") == point_of(run, text, "wait-1")


@pytest.mark.parametrize("possible", [False, True])
def test_sufficiency_matches_a_count_by_hand(run: Path, files: Files, possible: bool) -> None:
    trained = load_run(run, CPU)
    text = Aligned.read(*files, possible, False)
    seen = []
    for name in ("wait-1", "wait-3", "diagonal-2", "full"):
        point = point_of(run, text, name)
        share, al = by_hand(trained, files, name, possible)
        assert point.sufficiency == pytest.approx(share, abs=1e-4)
        assert point.al == pytest.approx(al, abs=1e-4)
        assert point.sentences == 8
        seen.append(point.sufficiency)
    # In order, wait-1 meets all but the long links; the whole source meets all.
    assert (seen[0] == 1.0) == (not possible)
    assert seen[-1] == 1.0


def test_sufficiency_of_learned_policies(run: Path, heads: list[Path], files: Files) -> None:
    text = Aligned.read(*files, True, False)
    asked = [(run / "search", f"agent-1.threshold-{value}") for value in (0.0, 1.0)]
    shares = []
    for folder, name in [*asked, *((one, "mma") for one in heads)]:
        point = point_of(folder, text, name)
        share, al = by_hand(load_run(folder, CPU), files, name, True)
        assert point.sufficiency == pytest.approx(share, abs=1e-4)
        assert point.al == pytest.approx(al, abs=1e-4)
        shares.append(share)
    assert shares[0] < shares[1] == 1.0, "who never decides to WRITE reads everything"


def test_an_oracle_follows_the_reference(run: Path, files: Files) -> None:
    trained = load_run(run / "search", CPU)
    text = Aligned.read(*files, False, False)
    for first in (1, 3):
        lags = []
        for source, target in zip(text.source, text.target, strict=True):
            found = explain(trained, source, target, first)
            length = len(found.source) - 1  # without the end mark
            reads = [min(g, length) for g in found.found[:-1]]
            lags.append(average_lagging(reads, length, len(reads)))
        assert point_of(run, text, f"oracle-{first}").al == pytest.approx(sum(lags) / 8, abs=1e-4)


def test_a_threshold_decides_and_is_part_of_the_name(run: Path, files: Files) -> None:
    text = Aligned.read(*files, True, False)
    never, always = (point_of(run, text, f"agent-3.threshold-{value}") for value in ("1.0", "0.0"))
    assert (never.policy, always.policy) == ("agent-3.threshold-1.0", "agent-3.threshold-0.0")
    assert (never.label, always.label) == ("[3,5]", "[3,5]")
    whole = point_of(run, text, "full")
    assert (never.sufficiency, never.al) == (1.0, whole.al), "who is never sure enough reads everything"
    assert always.al < 0, "and who is always sure reads one token"
    # The name says what was used, wherever that was said.
    said = point_of(run, text, "agent-3", "evaluate.threshold=0.0")
    assert said == always
    assert point_of(run, text, "agent-3.threshold-1.0", "evaluate.threshold=0.0") == never
    assert [line.name for line in curves([never, always])] == [
        f"{TUNED}, threshold-{value}" for value in ("1.0", "0.0")
    ]


def test_points_have_different_labels(run: Path, heads: list[Path], files: Files, tmp_path: Path) -> None:
    points = sufficiency(heads, files, [], False, False, tmp_path, [], "cpu")
    others = jobs_of([run], ["wait-3", "agent-3", "diagonal-3"], [], "cpu")
    points += measure_points(others, Aligned.read(*files, False, False))
    assert [point.label for point in points] == ["λ=0.1", "λ=0.4", "k=3", "[3,5]", "k=3"]
    assert [point.run for point in points[:2]] == [str(path) for path in heads]
    table = json.loads((tmp_path / "sufficiency.json").read_text(encoding="utf-8"))
    assert [point["label"] for point in table["points"]] == ["λ=0.1", "λ=0.4"]
    (line,) = curves(points[:2])
    assert set(labels(line)) == {"λ=0.1", "λ=0.4"}
    assert (tmp_path / "sufficiency.svg").stat().st_size > 0
    with console.console.capture() as shown:
        print_points(points)
    assert [name in shown.get() for name in ("λ=0.1", "λ=0.4", "[3,5]")] == [True] * 3
    # The document of `whilst paper` reads the same file.
    parts = paper.sufficiency(tmp_path, Collection([], tmp_path))
    assert len([row for part in parts for row in rows(part)]) == 1 + len(table["points"])


def test_runs_with_one_point_each_share_a_curve(run: Path, tuned: Path, heads: list[Path], files: Files) -> None:
    text = Aligned.read(*files, False, False)
    points = measure_points(jobs_of([run, tuned], ["agent-1", "agent-3"], [], "cpu"), text)
    assert [point.label for point in points] == ["[1,3]", "[3,5]", "[1,2]", "[3,4]"]
    assert [line.name for line in curves(points)] == [f"{TUNED}, {run}", f"{TUNED}, {tuned}"]
    assert [line.name for line in curves(points[::2])] == [TUNED]
    points = measure_points(jobs_of([heads[0], heads[0].parent / heads[0].name], ["mma"], [], "cpu"), text)
    again = [points[0], dataclasses.replace(points[1], run="again")]
    assert [line.name for line in curves(again)] == [f"MMA, {heads[0]}", "MMA, again"], "the same λ is no curve"


def test_full_is_not_part_of_a_curve(run: Path, files: Files) -> None:
    points = measure_points(jobs_of([run], [], [], "cpu"), Aligned.read(*files, False, False))
    assert [point.policy for point in points] == ["wait-1", "full", "agent-3", "oracle-3"]
    drawn = [label for line in curves(points) for label in labels(line)]
    assert drawn == ["k=1", "[3,5]", "[3,5]"]


def test_fixed_policies_are_drawn_once(run: Path, tuned: Path, files: Files) -> None:
    policies = ["wait-1", "wait-3", "agent-3"]
    points = measure_points(jobs_of([run, tuned], policies, [], "cpu"), Aligned.read(*files, False, False))
    drawn = [(line.name, label) for line in curves(points) for label in labels(line)]
    assert [label for _, label in drawn] == ["k=1", "k=3", "[3,5]", "[3,4]"]
    assert len({name for name, label in drawn if label.startswith("k")}) == 1
    moved = [*points[:2], dataclasses.replace(points[4], al=points[4].al + 1)]
    assert [label for line in curves(moved) for label in labels(line)] == ["k=1", "k=3", "k=3"], "other units"


def test_mistakes_show_before_anything_is_measured(
    run: Path, heads: list[Path], files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whilst.research.sufficiency.average_lagging", lambda *_: pytest.fail("measured something"))
    for runs, names, said in (
        ([run], ["wait-1", "agent-9"], "agent-9: this run knows agent-1, agent-3"),
        ([run], ["wait-1", "oracle-9"], "oracle-9: this run knows oracle-1, oracle-3"),
        ([run], ["wait-1", "agent-3.threshold-2"], "a threshold is a number from 0 to 1"),
        ([*heads, run], ["mma"], "mma"),
        ([run, tmp_path], ["wait-1"], "not a run folder"),
    ):
        with pytest.raises(UserError, match=said):
            sufficiency(runs, files, names, False, False, tmp_path, [], "cpu")
    # What only shows when a model is used.
    trained = load_run(run, CPU)
    settings = dataclasses.replace(trained.recipe.model, encoder="bidirectional")
    whole = Translator(settings, len(trained.source), len(trained.target)).eval()
    other = dataclasses.replace(trained, path=tmp_path, model=whole)
    asked = [(run, Job(parse("wait-1"), one)) for one in (trained, other)]
    with pytest.raises(UserError, match="needs the whole source"):
        measure_points(asked, Aligned.read(*files, False, False))


def test_a_translation_based_run_has_the_policy_of_its_agent(recipe: Recipe, files: Files) -> None:
    """Its folder has the translator's recipe, which names policies that this agent does not know."""
    agent = dataclasses.replace(recipe.agent, labels="translation")
    made = dataclasses.replace(recipe, start=recipe.run, stages=("agent",), agent=agent)
    asked_for = Evaluate(policies=("agent-translation",), max_ratio=1.0, max_extra=2)
    made = elsewhere(dataclasses.replace(made, evaluate=asked_for), "translation-based")
    train(made, CPU)
    text = Aligned.read(*files, False, False)
    (point,) = measure_points(jobs_of([Path(made.run)], [], [], "cpu"), text)
    assert (point.system, point.policy) == ("translation-based", "agent-translation")
    # Whoever names policies gets them.
    asked = jobs_of([Path(made.run)], [], ['evaluate.policies=["wait-2"]'], "cpu")
    assert [str(job.policy) for _, job in asked] == ["wait-2"]


def test_a_run_may_have_its_fine_tuned_translator_alone(tuned: Path, files: Files) -> None:
    assert not (tuned / "recipe.json").exists()
    points = measure_points(jobs_of([tuned], ["agent-3", "wait-1"], [], "cpu"), Aligned.read(*files, False, False))
    assert [(point.label, point.run) for point in points] == [("[3,4]", str(tuned)), ("k=1", str(tuned))]


def test_the_command(run: Path, heads: list[Path], files: Files, tmp_path: Path) -> None:
    source, target, links = files
    done = whilst(
        "sufficiency", run, heads[0], "--source", source, "--reference", target, "--alignment", links,
        "--policy", "wait-1", "--policy", "wait-3", "--possible", "--out", tmp_path, "--device", "cpu",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "wait-3" in done.out
    table = json.loads((tmp_path / "sufficiency.json").read_text(encoding="utf-8"))
    found = [(point["system"], point["policy"]) for point in table["points"]]
    assert found == [(name, k) for name in ("multi-path", "MMA, wait-k") for k in ("wait-1", "wait-3")]
    assert table["links"] == "sure and possible"
    assert (tmp_path / "sufficiency.png").stat().st_size > 5000
    assert (tmp_path / "sufficiency.svg").stat().st_size > 5000


def test_mistakes(run: Path, files: Files, tmp_path: Path) -> None:
    source, target, links = files
    lines = links.read_text(encoding="utf-8").splitlines()
    short = write(tmp_path, "short", "\n".join(lines[:7]) + "\n")
    far = write(tmp_path, "far", "\n".join(["1-99", *lines[1:]]) + "\n")
    none = write(tmp_path, "none", "\n".join(["1p1"] * 8) + "\n")
    with pytest.raises(UserError, match="has 7 lines"):
        Aligned.read(source, target, short, False, False)
    with pytest.raises(UserError, match="far:1: a link from source word 1 to target word 99"):
        Aligned.read(source, target, far, False, False)
    with pytest.raises(UserError, match="no word is aligned"):
        sufficiency([run], (source, target, none), ["wait-1"], False, False, tmp_path, [], "cpu")
    sufficiency([run], (source, target, none), ["wait-1"], True, False, tmp_path, [], "cpu")
