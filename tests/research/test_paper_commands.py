"""The commands of the paper's document for what was not run: in an empty folder, one after the other, they work."""

import re
from pathlib import Path

import pytest

from tests.helpers.kept_results import ROOT, keep, section, write
from whilst.core.config import load_recipe
from whilst.core.policy_spec import agent_policies
from whilst.core.settings import Recipe
from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.identity import pair_of
from whilst.research.paper.provenance import maker, read_recipes
from whilst.training.stages import in_order, stages

GERMAN = "iwslt14+europarl+tatoeba.de-en"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The document where nothing was run."""
    folder = tmp_path_factory.mktemp("nothing")
    (folder / "results").mkdir()
    return write(folder / "results", folder / "out").replace(f"{ROOT}/", "")


def blocks(text: str) -> list[list[str]]:
    return [block.splitlines() for block in re.findall(r"```sh\n(.*?)\n```", text, flags=re.DOTALL)]


class Folder:
    """What commands leave behind, as far as others need it."""

    def __init__(self) -> None:
        self.prepared: set[str] = set()
        self.makers: dict[str, Recipe] = {}  # of each run folder

    def do(self, line: str) -> None:
        command, *words = line.removeprefix("whilst ").split()
        if command == "prepare":
            self.prepared.add(load_recipe(ROOT / words[0], []).data.dataset)
        elif command == "train":
            self.train([load_recipe(ROOT / word, []) for word in words])
        else:
            assert command in ("evaluate", "analyse", "sufficiency", "explain"), line
            runs = [word for word in words if word.startswith("runs/")]
            assert runs, line
            for run in runs:
                assert run in self.makers or f"{run}/search" in self.makers or f"{run}/agent" in self.makers, line
            if command == "evaluate":
                self.evaluate(runs[0], line)

    def train(self, recipes: list[Recipe]) -> None:
        for recipe in in_order(recipes):
            assert recipe.data.dataset in self.prepared, recipe.run
            for needed in filter(None, (recipe.start, recipe.teacher)):
                assert needed in self.makers, f"{recipe.run} needs {needed}"
            self.makers |= {stage.run: recipe for stage in stages(recipe)}

    def evaluate(self, run: str, line: str) -> None:
        [recipe] = {id(recipe): recipe for recipe in self.makers.values() if recipe.run == run}.values()
        out = line.rpartition(" ")[2]
        assert out.startswith(f"results/{pair_of(recipe.data)}/"), line
        for policy in re.findall(r"--policy (\S+)", line):
            kind = policy.partition("-")[0]
            if kind == "agent":
                assert "agent" in recipe.stages, line
                assert policy in map(str, agent_policies(recipe.search.intervals, recipe.agent.labels)), line
            elif kind == "oracle":
                assert policy in [f"oracle-{first}" for first, _ in recipe.search.intervals], line
            elif kind == "mma":
                assert out.endswith(f"/{recipe.objective.latency_average}"), line
                assert recipe.model.cross == "monotone", line
            elif recipe.objective.name == "wait-k":
                assert policy == f"wait-{recipe.objective.k}", line
            else:
                assert run in self.makers, line


def test_what_was_not_run_comes_with_commands_that_work_in_an_empty_folder(text: str) -> None:
    found = blocks(text)
    assert len(found) > 30
    for lines in found:
        folder = Folder()
        for line in lines:
            folder.do(line)
    assert "No recipe in this checkout" not in text


def test_what_is_left_of_a_curve_is_trained_alone(tmp_path: Path) -> None:
    for k in (1, 3, 5, 7):
        sets = f"objective.k={k}", f"train.validate_k={k}"
        keep(tmp_path / "r" / str(k), "iwslt15.en-vi.wait-k", "wait-k", f"wait-{k}", k + 1.5, 26.0, *sets)
    found = section(write(tmp_path / "r", tmp_path / "out"), "Table 8").replace(f"{ROOT}/", "")
    assert "Not run: wait-k 9. What would run it" in found
    before = "recipes/iwslt15.en-vi.full.toml recipes/iwslt15.en-vi.toml"
    assert f"whilst train {before} recipes/wait-k/iwslt15.en-vi.9.toml\n" in found
    assert "whilst evaluate runs/iwslt15.en-vi.wait-k/9 --policy wait-9 " in found


def test_the_rest_of_a_curve_and_its_control_are_made_on_the_same_text(tmp_path: Path) -> None:
    keep(tmp_path / "r", "german.de-en", "multi-path", "wait-3", 2.6, 28.0)
    table = section(write(tmp_path / "r", tmp_path / "out"), "Table 10")
    assert "whilst evaluate runs/german.de-en --policy wait-1 --policy wait-5 " in table
    assert "whilst evaluate runs/german.de-en --policy diagonal-1 " in table
    assert "whilst evaluate runs/iwslt14.de-en --policy agent-3 " in table, "of which there is nothing yet"


def test_a_point_is_made_by_its_own_recipe_and_a_system_by_the_main_one(text: str) -> None:
    table = section(text, "Table 9")
    assert "whilst train recipes/iwslt15.vi-en.full.toml recipes/iwslt15.vi-en.toml\nwhilst evaluate" in table
    assert "separate" not in table
    assert "no-teacher" not in text
    assert "--policy mma --no-text --out results/iwslt15.vi-en/mma/0.05" in table
    assert "recipes/iwslt15.vi-en.toml recipes/mma/iwslt15.vi-en.0.4.toml" in table, "its start comes first"
    known = read_recipes(ROOT / "recipes")
    for label, name in (("[5,9]", "iwslt15.vi-en"), ("[13,17]", "iwslt15.vi-en"), ("[2,6]", None)):
        item = maker("iwslt15.vi-en", paper.BEST, label, known)
        assert (item and item.path.stem) == name


def test_whoever_lacks_a_start_or_a_teacher_is_no_maker() -> None:
    known = [item for item in read_recipes(ROOT / "recipes") if not item.path.name.endswith(".full.toml")]
    assert maker("iwslt15.en-vi", "wait-k", "3", known) is None
    german = maker("iwslt14.de-en", "wait-k", "3", known)
    assert german is not None
    assert german.path.name == "german.de-en.wait-k.toml"


def test_a_study_compares_models_of_one_training_text(text: str) -> None:
    [lines] = blocks(section(text, "Figure 5"))
    runs = re.findall(r"runs/\S+", lines[-1])
    assert runs[0] == "runs/german.de-en"
    assert {"runs/german.de-en.mma/0.4", "runs/german.de-en.wait-k/3"} <= set(runs)
    assert all(run.startswith("runs/german.de-en") for run in runs)
    assert lines[-1].endswith(f"--out results/{GERMAN}")


def test_the_drawing_is_of_a_run_that_the_recipe_makes(text: str) -> None:
    [lines] = blocks(section(text, "Figure 2"))
    assert lines[-1].startswith("whilst explain runs/iwslt15.en-vi "), "it is not fine-tuned, so there is no search"
