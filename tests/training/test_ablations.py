"""Recipes based on others, several recipes in one command, and runs that share a translator."""

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.runs import CPU, LAST, whole_recipe, write_toml
from whilst.core.config import load_recipe, load_sweep, read_recipe, to_table
from whilst.core.errors import UserError
from whilst.core.settings import Data, Evaluate, Model, Recipe, Search
from whilst.data.prepare import prepare
from whilst.evaluation.evaluate import evaluate_run
from whilst.evaluation.record import Record, read_records
from whilst.model.checkpoint import load_run
from whilst.research.paper import write_paper
from whilst.training.train import in_order, stages, train_all

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
# What the paper varies (its tables 1, 2, 4, 5 and 6), and what each recipe may therefore change.
CHANGES = {
    "interval-3": {"search.intervals"},
    "interval-7": {"search.intervals"},
    "agent-reference": {"agent.reference"},
    "condition": {"search.condition"},
    "base-full": {"objective.name", "train.validate_k", "train.keep"},
    "base-none": {f"search.train.{name}" for name in ("steps", "lr", "warmup", "validate_every", "save_every")},
    "agent-kind/gru": {"agent.kind"},
    "agent-kind/linear": {"agent.kind"},
}


def flat(table: dict[str, object], where: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in table.items():
        found |= flat(value, f"{where}{name}.") if isinstance(value, dict) else {f"{where}{name}": value}
    return found


@pytest.fixture(scope="module", params=["german.de-en", "iwslt14.de-en"])
def ablations(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recipe]:
    """By run folder: those of the repository, and those that the document's commands make for the paper's text."""
    folder, pair = RECIPES, request.param
    if pair != "german.de-en":
        folder = tmp_path_factory.mktemp("copy") / "recipes"
        shutil.copytree(RECIPES, folder)
        text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
        for line in re.findall(r"^    ((?:cp|sed) .*)", text, re.MULTILINE):
            subprocess.run(line, shell=True, cwd=folder.parent, check=True)
    default = load_recipe(folder / pair / "bs-simt.toml", [])
    recipes = [run for path in sorted((folder / pair / "ablations").glob("*.toml")) for run in load_sweep(path, [])]
    assert {recipe.data.dataset for recipe in recipes} == {default.data.dataset}
    return {"default": default} | {recipe.run.removeprefix(f"runs/{pair}.ablations/"): recipe for recipe in recipes}


def test_every_ablation_recipe_changes_one_setting(ablations: dict[str, Recipe]) -> None:
    assert set(ablations) == {"default", *CHANGES}
    default = flat(to_table(ablations["default"]))
    for stem in CHANGES:
        own = flat(to_table(ablations[stem]))
        changed = {name for name in own if own[name] != default[name]} - {"run", "file", "start", "stages"}
        kept = {"train.keep"} if default["train.keep"] == own["train.keep"] else set()
        assert changed - {"evaluate.policies"} == CHANGES[stem] - kept, stem
    full = ablations["base-full"].train
    assert (full.validate_k, full.keep) == (0, "loss"), "wait-5 says nothing about a model that reads all first"


def test_the_ablations_can_be_trained_by_one_command(ablations: dict[str, Recipe]) -> None:
    """Whatever one starts from is trained by another of them, and before it."""
    trained: set[str] = set()
    for recipe in in_order(list(ablations.values())):
        for stage in stages(recipe):
            assert stage.start in trained | {""}, f"{stage.run} needs {stage.start}"
            trained.add(stage.run)
    assert len([name for name in trained if name.endswith("agent")]) == len(ablations)


def test_all_recipes_load_and_have_folders_of_their_own() -> None:
    """Except those that only evaluate another recipe's run."""
    recipes = [recipe for path in sorted(RECIPES.rglob("*.toml")) for recipe in load_sweep(path, [])]
    runs = [recipe.run for recipe in recipes if recipe.stages != ("evaluate",)]
    assert len(set(runs)) == len(runs) > 60


def test_recipes_are_sorted_by_what_they_start_from() -> None:
    base, tuned = Recipe(run="b"), Recipe(run="a", start="b", stages=("search", "agent"))
    agent = Recipe(run="c", start="a/search", stages=("agent",))
    assert in_order([agent, tuned, base]) == [base, tuned, agent]
    assert in_order([agent, base]) == [agent, base]  # none of them trains a/search
    other = Recipe(run="c", stages=("evaluate",))
    assert in_order([other, agent, base]) == [agent, other, base], "it evaluates what another one trains"
    twice = [Recipe(run="b", stages=("evaluate",)) for _ in range(2)]
    assert in_order(twice) == twice  # which trains nothing
    with pytest.raises(UserError, match="two recipes train b"):
        in_order([base, Recipe(run="b", stages=("translate", "search"))])
    with pytest.raises(UserError, match="start, teacher: x and y each need the run of another"):
        in_order([Recipe(run="x", start="y"), Recipe(run="y", start="x")])
    with pytest.raises(UserError, match=r"start: b has model\.width = 64; set the same in the recipe of a"):
        in_order([tuned, dataclasses.replace(base, model=Model(width=64))])


@pytest.fixture(scope="module")
def trained(toy_data: Data, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recipe]:
    """Five small ablations of a small system, trained by one call in the wrong order."""
    folder = tmp_path_factory.mktemp("ablations")
    default = whole_recipe(toy_data, folder / "default", Evaluate(policies=("wait-1", "agent-1", "agent-2")))
    write_toml(default, folder / "default.toml")
    head = 'base = "default.toml"\nrun = "{0}/{1}"\n'
    texts = {
        "gru": 'start = "{0}/default/search"\nstages = ["agent", "evaluate"]\nagent.kind = "gru"',
        "wide": 'start = "{0}/default"\nstages = ["search", "agent", "evaluate"]\n'
        "search.intervals = [[1, 7], [2, 8]]",
        "scratch": 'stages = ["search", "agent", "evaluate"]',
        "full": 'objective.name = "full"',
    }
    for name, text in texts.items():
        policies = 'evaluate.policies = ["agent-1", "agent-2"]\n'
        (folder / f"{name}.toml").write_text((head + text + "\n" + policies).format(folder, name), encoding="utf-8")
    recipes = {name: load_recipe(folder / f"{name}.toml", []) for name in [*texts, "default"]}
    prepare(toy_data)
    train_all(list(recipes.values()), CPU)
    return recipes


def records_of(recipe: Recipe) -> dict[str, Record]:
    return {record.policy: record for record in read_records([Path(recipe.run) / "evaluations"])}


def test_records_contain_the_changed_settings(trained: dict[str, Recipe]) -> None:
    found = {name: records_of(recipe)["agent-2"] for name, recipe in trained.items()}
    assert {name: str(record.system) for name, record in found.items()} == {
        "default": "BS-SiMT, ours, fine-tuned",
        "gru": "BS-SiMT, ours, fine-tuned",
        "wide": "BS-SiMT, ours, fine-tuned",
        "scratch": "BS-SiMT, ours, from scratch",
        "full": "BS-SiMT, ours, fine-tuned from full-sentence",
    }
    kinds = {name: record.settings["agent"]["kind"] for name, record in found.items()}
    assert kinds == {"default": "lstm", "gru": "gru", "wide": "lstm", "scratch": "lstm", "full": "lstm"}
    assert found["wide"].settings["search"]["intervals"] == [[1, 7], [2, 8]]
    assert (Path(trained["gru"].run) / "report/report.md").is_file()


def test_an_agent_alone_gets_a_copy_of_the_translator(trained: dict[str, Recipe]) -> None:
    run, base = Path(trained["gru"].run), Path(trained["default"].run) / "search"
    assert load_run(run, CPU).checksum == load_run(base, CPU).checksum
    assert (read_recipe(run / "agent").agent.kind, read_recipe(base / "agent").agent.kind) == ("gru", "lstm")
    assert load_run(run, CPU).recipe.agent.kind == "gru"


def test_what_is_trained_is_not_trained_again(
    trained: dict[str, Recipe], capsys: pytest.CaptureFixture[str]
) -> None:
    weights = [path for recipe in trained.values() for path in Path(recipe.run).rglob("last.safetensors")]
    assert len(weights) == 3 + 1 + 2 + 2 + 3
    before = [path.stat().st_mtime_ns for path in weights]
    train_all(list(trained.values()), CPU)
    assert [path.stat().st_mtime_ns for path in weights] == before
    assert capsys.readouterr().err.count("nothing left to do") == len(weights)


def test_agent_policies_are_named_by_the_agents_intervals(trained: dict[str, Recipe], tmp_path: Path) -> None:
    """Its intervals are not those of the translator's recipe, where agent-2 has another number."""
    recipe = dataclasses.replace(
        trained["default"],
        run=str(tmp_path / "other"),
        start=trained["default"].run,
        stages=("agent", "evaluate"),
        search=Search(intervals=((2, 4), (5, 7)), train=LAST),
        evaluate=Evaluate(policies=("agent-2", "agent-5")),
    )
    train_all([recipe], CPU)
    assert set(records_of(recipe)) == {"agent-2", "agent-5"}
    assert {str(record.system) for record in records_of(recipe).values()} == {"BS-SiMT, ours"}


def test_an_agent_alone_is_evaluated_by_its_own_recipe(trained: dict[str, Recipe], tmp_path: Path) -> None:
    """Not as that of the translator, whose policies may not even exist here."""
    run = Path(trained["gru"].run)
    assert [record.policy for record in evaluate_run(run, [], tmp_path, True, [], "cpu")] == ["agent-1", "agent-2"]
    own = ['evaluate.policies=["wait-2"]']
    assert [record.policy for record in evaluate_run(run, [], tmp_path, True, own, "cpu")] == ["wait-2"]
    default = trained["default"]
    recipe = dataclasses.replace(
        default,
        run=str(tmp_path / "translation"),
        start=default.run,
        stages=("agent",),
        agent=dataclasses.replace(default.agent, labels="translation"),
        evaluate=Evaluate(policies=("agent-translation",), threshold=0.4, max_extra=3),
    )
    train_all([recipe], CPU)
    (record,) = evaluate_run(Path(recipe.run), [], tmp_path, True, [], "cpu")
    assert (record.policy, record.settings["evaluate"]["max_extra"]) == ("agent-translation.threshold-0.4", 3)


def test_the_document_has_the_ablations_in_its_tables(trained: dict[str, Recipe], tmp_path: Path) -> None:
    runs = Path(trained["default"].run).parent
    write_paper(runs, tmp_path)
    text = (tmp_path / "paper.md").read_text(encoding="utf-8")
    for table, value, label, recipe in (
        ("Table 1", "7", "[1,7]", "wide"),
        ("Table 5", "scratch", "[1,5]", "scratch"),
        ("Table 5", "full-sentence", "[1,5]", "full"),
        ("Table 6", "gru", "[1,5]", "gru"),
    ):
        part = text.partition(f"\n## {table}:")[2].partition("\n## ")[0]
        assert f"\n| {value} | {label} | dataset.src-tgt |" in part
        assert f"/{recipe}.toml]" in part


# The key `base`.


def test_a_recipe_is_merged_into_its_base(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.toml").write_text('run = "a"\n[search]\nintervals = [[1, 5]]\n[search.train]\nsteps = 7\n')
    (tmp_path / "deep/b.toml").write_text('base = "../a.toml"\n[search]\nintervals = [[1, 2]]\n')
    (tmp_path / "c.toml").write_text('base = "deep/b.toml"\nrun = "c"\n[search.train]\nlr = 0.5\n')
    recipe = load_recipe(tmp_path / "c.toml", ["train.steps=3"])
    assert (recipe.run, recipe.search.intervals, recipe.train.steps) == ("c", ((1, 2),), 3)
    assert (recipe.search.train.steps, recipe.search.train.lr, recipe.search.train.keep) == (7, 0.5, "loss")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "absent.toml"', "base: {0}/absent.toml: no such recipe"),
        ('base = "a.toml"', "base: {0}/a.toml is itself based on this recipe"),
        ('base = "b.toml"', "base: {0}/a.toml is itself based on this recipe"),
        ("base = 3", "base: must be text in quotes or a list of texts, not 3"),
        ('base = "c.toml"', "unknown setting 'train.stpes'; did you mean 'train.steps'?"),
    ],
)
def test_mistakes_in_a_base(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    (tmp_path / "b.toml").write_text('base = "a.toml"')
    (tmp_path / "c.toml").write_text("[train]\nstpes = 1")
    with pytest.raises(UserError) as caught:
        load_recipe(tmp_path / "a.toml", [])
    named = tmp_path / ("b.toml" if "b.toml" in text else "a.toml")
    assert str(caught.value) == f"{named}: {message.format(tmp_path)}"
