"""Recipes: every value has its type, every name is known, and a mistake is answered with the nearest right one."""

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.config import build, load_recipe, override, to_table, values_with
from whilst.core.errors import UserError
from whilst.core.settings import (
    Data,
    Evaluate,
    Model,
    Objective,
    Recipe,
    Role,
    Search,
    Train,
    names_with,
)


@pytest.fixture
def recipe_file(tmp_path: Path) -> typing.Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_recipe(path, list(overrides))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_recipe_sets_what_it_names_and_leaves_the_rest(recipe_file: Any) -> None:
    path = recipe_file(
        """
        run = "runs/mine"
        [data]
        train = ["a.en", "a.de"]
        lowercase = true
        [model]
        dropout = 0  # a whole number is a number
        norm = "post"
        [train]
        lr = 2e-3
        """
    )
    recipe = load_recipe(path, [])
    assert recipe == Recipe(
        run="runs/mine",
        data=Data(train=("a.en", "a.de"), lowercase=True),
        model=Model(dropout=0.0, norm="post"),
        train=Train(lr=0.002),
    )
    assert type(recipe.model.dropout) is float
    assert load_recipe(recipe_file(""), []) == Recipe()


def test_set_wins_over_the_file_and_later_over_earlier(recipe_file: Any) -> None:
    path = recipe_file("[train]\nsteps = 5\nlr = 0.1\n")
    recipe = load_recipe(
        path,
        [
            "train.steps=7",
            "train.steps = 8",  # spaces do not matter
            "train.lr=none",
            "train.compile=false",
            "run=runs/a=b",  # only the first = divides
            "data.train=['x y.src', \"x.tgt\"]",
            "data.source=",
            "objective.name=full",
            "objective.label_smoothing=0",
            'data.folder="12"',  # quotes make text of what looks like a number
        ],
    )
    assert recipe.train == Train(steps=8, lr=None, compile=False)
    assert recipe.run == "runs/a=b"
    assert recipe.data == Data(train=("x y.src", "x.tgt"), source="", folder="12")
    assert recipe.objective == Objective(name="full", label_smoothing=0.0)


def test_none_switches_off_only_what_may_be_absent(recipe_file: Any) -> None:
    assert load_recipe(recipe_file('[train]\nwarmup = "none"\n'), []).train.warmup is None
    assert complaint(recipe_file(""), "train.steps=none") == "train.steps: must be a whole number, not 'none'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rnu = 'x'", "unknown setting 'rnu'; did you mean 'run'?"),
        ("[trian]\nsteps = 1", "unknown setting 'trian'; did you mean 'train'?"),
        ("[train]\nstep = 1", "unknown setting 'train.step'; did you mean 'train.steps'?"),
        ("[model.heads]\nsize = 1", "model.heads: must be a whole number, not {'size': 1}"),
        ("train = 3", "train: is a section, write [train]"),
        ("[[train]]\nsteps = 1", "train: is a section, write [train]"),
        ("[train]\nsteps = 1.5", "train.steps: must be a whole number, not 1.5"),
        ("[train]\nsteps = true", "train.steps: must be a whole number, not True"),
        ("[train]\nema = true", "train.ema: must be a number, not True"),
        ("[train]\nlr = 'high'", "train.lr: must be a number, not 'high'"),
        ("[train]\ncompile = 1", "train.compile: must be true or false, not 1"),
        ("[data]\ndataset = 5", "data.dataset: must be text in quotes, not 5"),
        ("[data]\ntrain = 'a.en'", "data.train: must be a list, not 'a.en'"),
        ("[data]\ntrain = ['a.en', 2]", "data.train: must be text in quotes, not 2"),
        ("logger = 'wandb'", "logger: must be \"tensorboard\" or MODULE:FUNCTION, not 'wandb'"),
        ("[model]\nnorm = 'per'", "model.norm: must be one of pre, post, not 'per'"),
        ("[model]\nnorm = ['pre']", "model.norm: must be one of pre, post, not ['pre']"),
        ("[model]\nnorm = 1979-05-27", "model.norm: must be one of pre, post, not datetime.date(1979, 5, 27)"),
    ],
)
def test_a_mistake_in_the_file_is_named(recipe_file: Any, text: str, message: str) -> None:
    path = recipe_file(text)
    assert complaint(path) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("train.stpes=1", "unknown setting 'train.stpes'; did you mean 'train.steps'?"),
        ("tarin.steps=1", "unknown setting 'tarin'; did you mean 'train'?"),
        ("steps=1", "unknown setting 'steps'"),
        ("train.steps", "--set train.steps: write it as section.key=value"),
        ("train.steps.x=1", "train.steps: must be a whole number, not {'x': 1}"),
        ("run.x=1", "run: must be text in quotes, not {'x': 1}"),
        ("train=1", "train: is a section"),
        ("train.steps=ten", "train.steps: must be a whole number, not 'ten'"),
        ("objective.name=multipath", "objective.name: must be one of full, wait-k, multi-path, search, mma, not"),
        ("=1", "unknown setting ''"),
    ],
)
def test_a_mistake_in_set_is_named(recipe_file: Any, item: str, message: str) -> None:
    assert complaint(recipe_file(""), item).startswith(message)


def test_files_that_are_no_recipes(tmp_path: Path, recipe_file: Any) -> None:
    assert complaint(tmp_path / "absent.toml") == f"{tmp_path / 'absent.toml'}: no such recipe"
    assert complaint(tmp_path) == f"{tmp_path}: no such recipe"
    assert "not valid TOML" in complaint(recipe_file("[train\nsteps = 1"))
    assert "not valid TOML" in complaint(recipe_file("[train]\nsteps = 1\nsteps = 2"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"run = '\xff\xfe'")
    assert "not valid TOML" in complaint(binary)


@pytest.mark.parametrize(
    "item",
    [
        "data.corpus=iwslt",
        "data.size=0",
        "data.max_ratio=-1",
        "data.max_ratio=nan",
        "objective.r_drop=inf",
        "search.intervals=[[1, 5], [1, 5]]",
        "evaluate.max_ratio=1e308",
        'data.valid=["a", "b", "c"]',
        "model.heads=3",
        "model.dropout=1",
        "model.dropout=nan",
        "model.encoder=bidirectional",  # with multi-path
        "model.cross=monotone",  # with multi-path
        "objective.name=mma",  # without monotonic heads
        "objective.latency_average=-1",
        "objective.stop_noise=inf",
        "objective.k=0",
        "objective.label_smoothing=1.0",
        "train.steps=0",
        "train.ema=1",
        "train.validate_bleu=false",  # train.keep is "bleu"
        "train.seed=-1",
        "train.patience=-1",
        "train.validate_k=-1",
        "train.lr=-0.1",
        "train.warmup=-1",
        "train.clip=nan",
        "train.weight_decay=inf",
        "evaluate.batch=0",
        "evaluate.max_ratio=-1",
        "evaluate.max_ratio=inf",
        "evaluate.max_extra=0",
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(recipe_file: Any, item: str) -> None:
    key = item.partition("=")[0]
    named = {"model.heads": "model.width", "train.validate_bleu": "train.keep"}.get(key, key)
    assert complaint(recipe_file(""), item).startswith(f"{named}: ")


@pytest.mark.parametrize(
    ("section", "table", "message"),
    [
        ("objective", {"latency_variance": 0.0}, ""),
        ("objective", {"latency_variance": 0.2}, "objective.latency_variance: 0.2 is no longer supported; commit "),
        ("search", {"objective": {"latency_variance": 0.0}}, ""),
        ("agent", {"stray": 0.0, "agreement": "lasting"}, ""),
        ("train", {"average": 0}, ""),
        ("train", {"tensorboard": True, "shortcuts": ["dropout", "looks"]}, ""),
        ("train", {"average": 3}, "train.average: 3 is no longer supported; commit "),
        ("agent", {"stray": 0.5}, "agent.stray: 0.5 is no longer supported; commit "),
        (
            "agent",
            {"labels": "translation", "agreement": "lasting"},
            "agent.agreement: must be one of token, within",
        ),
    ],
)
def test_settings_of_old_files_load_if_they_had_no_effect(section: str, table: Any, message: str) -> None:
    if not message:
        assert build(Recipe, {section: table}) == Recipe()
        return
    with pytest.raises(UserError, match=f"^{message}"):
        build(Recipe, {section: table})


def test_values_of_old_files_have_their_new_names() -> None:
    old = {"agent": {"inputs": "ahead", "train": {"shortcuts": ["looks"]}}}
    assert build(Recipe, old).agent.inputs == "lookahead"
    assert override(Recipe(), ["agent.inputs=ahead"]).agent.inputs == "lookahead"


def test_roles_are_found_by_dotted_name() -> None:
    assert names_with(Role.SEED) == {"train.seed", "search.train.seed", "agent.train.seed"}
    assert names_with(Role.CLEANING, Data) == {"unescape", "moses", "detokenise", "tokenised", "lowercase"}
    assert {"evaluate.threshold", "run", "train.steps"} < names_with(Role.RESUME), "those of a section too"
    assert "train.lr" not in names_with(Role.RESUME)
    assert list(values_with(Search(), Role.READS)) == ["intervals", "slope", "condition", "target", "tolerance"]


# Any settings that are valid survive the way through JSON.


def values(hint: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return st.lists(values(typing.get_args(hint)[0]), max_size=2).map(tuple)
    if typing.get_origin(hint) is not None:  # X | None
        return st.none() | values(typing.get_args(hint)[0])
    known: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(2, 1000),
        float: st.floats(0, 0.99),
        str: st.text(max_size=8),
        bool: st.booleans(),
    }
    return known[hint]


@st.composite
def sections(draw: st.DrawFn, kind: type[Any]) -> dict[str, Any]:
    """Any of a section's settings; those that depend on each other keep their defaults."""
    bound = {
        "apart",
        "corpus",
        "hub_columns",
        "width",
        "heads",
        "encoder",
        "cross",
        "name",
        "validate_bleu",
        "keep",
        "policies",
    }
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if name not in bound}
    names = draw(st.lists(st.sampled_from(sorted(hints)), unique=True, max_size=6))
    return {name: draw(values(hints[name])) for name in names}


@given(st.data())
def test_settings_survive_the_way_through_json(data: st.DataObject) -> None:
    kinds = {"data": Data, "model": Model, "objective": Objective, "train": Train, "evaluate": Evaluate}
    chosen = {name: data.draw(sections(kind)) for name, kind in kinds.items()}
    recipe = build(Recipe, {"run": data.draw(st.text(max_size=9)), **chosen})
    table = json.loads(json.dumps(to_table(recipe)))
    assert build(Recipe, table) == recipe
    assert override(recipe, []) == recipe
    for name, section in chosen.items():
        for key, value in section.items():
            assert getattr(getattr(recipe, name), key) == value


@given(st.integers(1, 10**9), st.floats(1e-9, 1e3), st.text("abc/._-", min_size=1))
def test_set_reads_what_it_is_given(steps: int, lr: float, run: str) -> None:
    recipe = override(Recipe(), [f"train.steps={steps}", f"train.lr={lr!r}", f"run={run}"])
    assert (recipe.train.steps, recipe.train.lr, recipe.run) == (steps, lr, run)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().train.steps = 3  # type: ignore[misc]
