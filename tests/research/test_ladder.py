"""From the paper's system to ours: recipes that differ by one setting, and the table of what each is worth."""

import itertools
from pathlib import Path

import pytest

from tests.helpers.paper_results import RECIPES, add_record, rows, section, write
from whilst.core.config import flatten, load_sweep, to_table
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Recipe
from whilst.evaluation.curves import group_seeds, to_curves
from whilst.evaluation.identity import System
from whilst.evaluation.record import read_records
from whilst.evaluation.report import report
from whilst.training.train import stages

CHANGES = {
    "paper": {"search.intervals"},
    "shared": {"search.slope"},
    "slope": {"search.target"},
    "target": {"search.tolerance"},
    "tolerance": {"agent.inputs"},
    "inputs": {"stages"},
    "not-fine-tuned": {"evaluate.unknown"},
    "copying": {"objective.draw"},
    "draw": {"train.preset", "train.batch_tokens"},  # one thing, the schedule
    "schedule": {"objective.longest"},
    "longest": {"objective.whole"},
    "whole": {"teacher"},
}
PAIRS = ["iwslt15.en-vi", "iwslt15.vi-en"]


def only_seed(path: Path, seed: int = 1) -> list[Recipe]:
    return [recipe for recipe in load_sweep(path, []) if recipe.train.seed == seed]


@pytest.mark.parametrize("pair", PAIRS)
def test_each_rung_of_the_ladder_changes_one_setting(pair: str) -> None:
    rungs = only_seed(RECIPES / pair / "ladder.toml")
    first, ours = only_seed(RECIPES / pair / "paper.toml")[0], load_sweep(RECIPES / pair / "bs-simt.toml", [])[0]
    assert first.rung == "paper"
    recipes = [first, *rungs, ours]
    assert [recipe.rung for recipe in recipes] == [*CHANGES, ""]
    for before, after in itertools.pairwise(recipes):
        left, right = (flatten(to_table(recipe)) for recipe in (before, after))
        changed = {name for name in left if left[name] != right[name]}
        free = {"run", "file", "start", "rung", "evaluate.policies"}
        free |= {"stages"} if before.rung == "copying" else set()  # from here on, the translator is trained too
        if after is ours:  # not fine-tuned, so nothing reads these
            free |= {name for name in left if name.startswith(("search.train.", "search.objective."))}
            free |= {"search.multi_path"}
        assert changed - free == CHANGES[before.rung], before.rung


@pytest.mark.parametrize("pair", PAIRS)
def test_the_trained_rungs_start_from_what_the_plan_trains(pair: str) -> None:
    plan = (RECIPES / pair / "plan.txt").read_text(encoding="utf-8").split()
    names = [name for name in plan if name.endswith(".toml") and (RECIPES / pair / name).is_file()]
    recipes = [recipe for name in names for recipe in load_sweep(RECIPES / pair / name, [])]
    trained = {stage.run for recipe in recipes for stage in stages(recipe)} | {""}
    for recipe in recipes:
        assert {recipe.start, recipe.teacher, recipe.agent.labeller} <= trained, recipe.run


def test_the_papers_systems_have_names_of_their_own() -> None:
    recipes = {recipe.rung: recipe for recipe in only_seed(RECIPES / "iwslt15.en-vi/paper.toml")}
    agent, oracle = PolicySpec("agent", "1"), PolicySpec("oracle", "1")
    names = {rung: str(System.of(stages(one)[0], agent, "multi-path")) for rung, one in recipes.items()}
    assert names == {
        "paper": "BS-SiMT, as in the paper: slope 1",
        "authors": "BS-SiMT, as in the paper: authors' code",
    }
    found = System.of(stages(recipes["paper"])[0], oracle, "multi-path")
    assert str(found) == "BS-SiMT, as in the paper: slope 1, oracle"
    base = only_seed(RECIPES / "iwslt15.en-vi/paper-multi-path.toml")[0]
    assert str(System.of(base, PolicySpec("wait", "3"))) == "multi-path, as in the paper"


@pytest.mark.parametrize(
    ("recipe", "change"),
    [
        ("paper", "search.tolerance=0.1"),
        ("paper", "agent.inputs=states"),
        ("paper", "search.slope=ratio"),
        ("paper-multi-path", "objective.draw=sentence"),
        ("paper-multi-path", "teacher=runs/x"),
        ("paper-multi-path", "train.preset=fast"),
    ],
)
def test_the_name_of_the_paper_is_for_its_settings_only(recipe: str, change: str, tmp_path: Path) -> None:
    path = tmp_path / "changed.toml"
    text = f'base = "{RECIPES / "iwslt15.en-vi" / recipe}.toml"\nsweep = []\nrung = "paper"\n'
    path.write_text(text, encoding="utf-8")
    load_sweep(path, [])
    with pytest.raises(UserError, match='rung: "paper" is for the settings of recipes/paper'):
        load_sweep(path, [change])


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two rungs of two seeds, and ours: each 1 BLEU above the one before, the second seed 0.2 above the first."""
    root = tmp_path / "results"
    seeds = ("search.train.seed={0}", "agent.train.seed={0}")
    for seed in (1, 2):
        own = [text.format(seed) for text in seeds]
        for first, al in ((1, 2.0), (3, 4.0), (5, 6.0)):
            more = al / 2 + seed / 5
            where = ("iwslt15.en-vi/ladder", "", f"agent-{first}", al)
            rungs = ("rung=inputs", 'stages=["search"]', "objective.name=search", "evaluate.unknown=keep")
            for name, bleu, sets in (("a", 25.0, rungs), ("b", 26.0, ("rung=copying",))):
                add_record(root / name / str(seed), *where, bleu + more, *sets, *own, seed=seed)
            add_record(
                root / "c" / str(seed), "iwslt15.en-vi", "", f"agent-{first}", al, 27.0 + more, *own, seed=seed
            )
    return root


def test_the_ladder_has_a_row_for_each_rung_with_its_deviation(results: Path, tmp_path: Path) -> None:
    part = section(write(results, tmp_path / "out"), "From the paper's system to ours")
    heading, *found = [row for row in rows(part) if len(row) > 5]
    assert heading[3:6] == ["AL 2.00", "AL 3.40", "AL 5.39"]
    assert [row[:3] for row in found] == [
        ["inputs", "lookahead state as input of the agent", "2"],
        ["copying", "names copied for unknown words", "2"],
        ["ours", "teacher: ours", "2"],
    ]
    # Seeds have 26.20 and 26.40 at AL 2, and rise by 0.5 for each AL.
    assert found[0][3:8] == ["26.30 ± 0.14", "27.00 ± 0.14", "27.99 ± 0.14", "—", "—"]
    assert [row[-2] for row in found] == ["—", "+1.00", "+1.00"]
    assert (tmp_path / "out/ladder.iwslt15.en-vi.svg").is_file()
    assert "a/1/test.agent-3.json" in part, "the records are linked"


def test_rungs_stand_in_no_other_comparison(results: Path, tmp_path: Path) -> None:
    text = write(results, tmp_path / "out")
    assert "rung inputs" not in section(text, "Table 8")
    names = {curve.name for curve in to_curves(group_seeds(read_records([results])))}
    assert names == {"BS-SiMT, rung inputs", "BS-SiMT, rung copying", "BS-SiMT, ours"}, "<unk> is usual on the way"
    report(read_records([results]), tmp_path / "report")
    _, _, compared = (tmp_path / "report/report.md").read_text(encoding="utf-8").partition("## At equal latency")
    assert "rung" not in compared
