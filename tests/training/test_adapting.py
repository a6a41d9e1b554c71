"""A run that starts from another one, on other text in that run's units."""

import dataclasses
import signal
from pathlib import Path

import pytest

from tests.helpers.runs import CPU, assert_same, changed, elsewhere, short_recipe, tensors, whole_recipe
from whilst.core.config import load_recipe, read_recipe
from whilst.core.errors import UserError
from whilst.core.files import read_json
from whilst.core.settings import Data, Evaluate, Model, Objective, Recipe
from whilst.data import toy
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.data.toy import Lexicon
from whilst.model.checkpoint import load_run
from whilst.model.transformer import Translator
from whilst.training.loop import Loop
from whilst.training.tasks import Validation, make_task, validate
from whilst.training.train import train


def other_meanings(lexicon: Lexicon) -> Lexicon:
    """Nouns and verbs mean what others of the same gender or any number did."""
    exchanged = {
        kind: [one._replace(target=lexicon[kind][place - 2].target) for place, one in enumerate(lexicon[kind])]
        for kind in ("nouns", "split_verbs")
    }
    return lexicon | exchanged


def write_text(folder: Path, name: str, lexicon: Lexicon, count: int, seed: int) -> None:
    """NAME.train and NAME.valid of this toy language."""
    drawn = list(toy.pairs(count + 40, seed, lexicon))
    for split, pairs in (("train", drawn[40:]), ("valid", drawn[:40])):
        lines = (f"{' '.join(pair.source)}\t{' '.join(pair.target)}\n" for pair in pairs)
        (folder / f"{name}.{split}").write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def domain(toy_data: Data, toy_folder: Path, tmp_path: Path) -> Data:
    """Text with other meanings, in the units of the shared dataset."""
    write_text(tmp_path, "domain", other_meanings(toy.build_lexicon(scale=0.1)), 60, seed=3)
    base = short_recipe(toy_data, tmp_path / "base")
    assert toy_folder == Path(toy_data.dataset)
    train(changed(base, steps=30, validate_every=30), CPU)
    text = ("domain.train",), ("domain.valid",)
    data = dataclasses.replace(toy_data, dataset=str(tmp_path / "domain"), like=base.run, folder=str(tmp_path))
    data = dataclasses.replace(data, train=text[0], valid=text[1], test=text[1])
    prepare(data)
    return data


RECIPE = """
run = "{folder}/{name}"
{start}
[data]
dataset = "{folder}/{name}.set"
folder = "{folder}"
train = ["{name}.train"]
valid = ["{name}.valid"]
{data}
[train]
batch_tokens = 1000
lr = 5e-3
warmup = 30
ema = 0.9
steps = {steps}
validate_every = {steps}
"""
BASE = """
units = "word"
[model]
width = 48
heads = 2
encoder_layers = 1
decoder_layers = 1
feed_forward = 96
dropout = 0.0
"""


@pytest.mark.slow
def test_a_model_that_is_adapted_to_other_text_improves_there(tmp_path: Path) -> None:
    """By more than 20 BLEU in 60 updates, after which a model with random weights has none."""
    lexicon = toy.build_lexicon(scale=0.1)
    write_text(tmp_path, "general", lexicon, 1500, seed=1)
    write_text(tmp_path, "domain", other_meanings(lexicon), 400, seed=2)

    def recipe(name: str, steps: int, start: str, data: str) -> Recipe:
        text = RECIPE.format(folder=tmp_path, name=name, steps=steps, start=start, data=data)
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        return load_recipe(tmp_path / f"{name}.toml", [])

    general = recipe("general", 250, "", BASE)
    prepare(general.data)
    train(general, CPU)
    like = f'like = "{general.run}"'
    adapted = recipe("domain", 60, f'start = "{general.run}"', like)
    assert adapted.model == general.model, "its sizes come from the run"
    dataset = Dataset.open(prepare(adapted.data))
    before = validate(load_run(Path(general.run), CPU).model, adapted, dataset).bleu
    after = load_run(train(adapted, CPU), CPU).about["validation"]["bleu"]
    assert before is not None
    assert after > before + 20
    untrained = dataclasses.replace(elsewhere(adapted, "random"), start="")
    assert load_run(train(untrained, CPU), CPU).about["validation"]["bleu"] < 5


def test_every_stage_is_trained_on_the_new_text(domain: Data, tmp_path: Path) -> None:
    start = domain.like
    evaluate = Evaluate(policies=("wait-1", "agent-1"), max_ratio=0.2, max_extra=2)
    for stages in (("translate", "search", "agent"), ("search", "agent"), ("agent",)):
        recipe = whole_recipe(domain, tmp_path / "-".join(stages), evaluate)
        recipe = dataclasses.replace(recipe, start=start, stages=(*stages, "evaluate"))
        train(recipe, CPU)
        found = read_recipe(Path(recipe.run) / "search" if stages == ("search", "agent") else Path(recipe.run))
        assert found.data.dataset == domain.dataset
        text = Dataset.open(Path(domain.dataset)).manifest["splits"]["test"]["source"]["text_sha256"]
        records = [read_json(path) for path in Path(recipe.run).glob("evaluations/*.json")]
        assert [record["source_sha256"] for record in records] == [text, text]


MULTI_PATH = Model(), Objective()
OFFLINE = Model(encoder="bidirectional"), Objective(name="full")


@pytest.mark.parametrize(("model", "objective"), [MULTI_PATH, OFFLINE], ids=["multi-path", "offline"])
def test_it_begins_with_the_weights_and_resumes_to_the_bit(
    domain: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model, objective: Objective
) -> None:
    base = short_recipe(domain, tmp_path / "begun")
    model = dataclasses.replace(base.model, encoder=model.encoder)
    base = dataclasses.replace(base, model=model, objective=objective)
    train(base, CPU)
    recipe = dataclasses.replace(elsewhere(base, "whole"), start=base.run)
    loop = Loop(recipe, make_task(recipe, Dataset.open(Path(domain.dataset)), CPU))
    assert_same(dict(loop.state.model.state_dict()), tensors(Path(base.run), "model"))
    whole, parts = train(recipe, CPU), elsewhere(recipe, "parts")

    def interrupting(model: Translator, recipe: Recipe, dataset: Dataset) -> Validation:
        signal.raise_signal(signal.SIGINT)
        return validate(model, recipe, dataset)

    with monkeypatch.context() as patch:
        patch.setattr("whilst.training.tasks.validate", interrupting)
        with pytest.raises(UserError, match="stopped after step 2"):
            train(parts, CPU)
    assert_same(tensors(train(parts, CPU)), tensors(whole))


def test_a_run_cleans_text_as_its_dataset_was_cleaned(toy_data: Data, tmp_path: Path) -> None:
    prepared = dataclasses.replace(toy_data, dataset=str(tmp_path / "data"), lowercase=True)
    prepare(prepared)
    recipe = changed(short_recipe(dataclasses.replace(prepared, lowercase=False), tmp_path / "run"), steps=1)
    train(recipe, CPU)
    assert read_recipe(tmp_path / "run").data.lowercase
    train(recipe, CPU)  # which is the same run


def test_another_run_than_the_dataset_is_like_is_refused(domain: Data, toy_data: Data, tmp_path: Path) -> None:
    recipe = dataclasses.replace(short_recipe(toy_data, tmp_path / "run"), start=domain.like)
    message = r"start: .*base has model\.width = 32, model\.heads = 2; set the same in the recipe of .*run"
    with pytest.raises(UserError, match=message):
        train(dataclasses.replace(recipe, model=Model(48, 4, 1, 1, 64)), CPU)
    own = dataclasses.replace(domain, dataset=str(tmp_path / "own"), like="", units="bpe", size=20)
    prepare(own)
    with pytest.raises(UserError, match=r"start: .*base reads other units than .*own; it must be the same"):
        train(dataclasses.replace(recipe, data=own), CPU)


def test_the_example_of_the_page_is_a_recipe(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "adapting.md").read_text(encoding="utf-8")
    (tmp_path / "medical.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    recipe = load_recipe(tmp_path / "medical.toml", [])
    assert recipe.start == recipe.data.like == "runs/general"
