"""From units to words with delays: in a trace, a word counts when it is whole, and delays count source words."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.decoding import policy
from tests.helpers.runs import CPU, short_recipe
from whilst.core.config import build
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data, Evaluate, Limits, Model, Objective, Recipe
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.data.segment import BPESegmenter, PieceSegmenter, WordSegmenter
from whilst.data.vocabulary import Language
from whilst.decoding.batched import translate
from whilst.decoding.output import Output
from whilst.decoding.policies import policy_for
from whilst.evaluation.evaluate import evaluate, evaluate_run, run_in_workers, to_sentence, translate_lines
from whilst.evaluation.identity import Decoding, System, pair_name
from whilst.evaluation.metrics import score
from whilst.evaluation.record import read_record, rescore
from whilst.evaluation.trace import Sentence, find_problem, read_trace
from whilst.model.checkpoint import LoadedRun, load_run, save_tensors, write_run
from whilst.model.transformer import Translator
from whilst.training.train import train

parse = PolicySpec.parse

LINES = ["lower lowest low", "newer newest new", "wide wider widest", "low new wide", "we low er"] * 4
KINDS = ("word", "bpe", "sentencepiece")


def language(kind: str) -> Language:
    """Words of one to several units."""
    if kind == "word":
        return Language("x", WordSegmenter(), ["low", "lower", "new", "wide"])
    segmenter = BPESegmenter.learn(LINES, 6) if kind == "bpe" else PieceSegmenter.learn(LINES, 22)
    words = {word: 1 for line in LINES for word in line.split()}
    return Language.count("x", segmenter, words, minimum=1)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], LoadedRun]:
    """A Trained of any two kinds of units; its model plays no part."""
    languages = {kind: language(kind) for kind in KINDS}
    folder = tmp_path_factory.mktemp("none")
    recipe = dataclasses.replace(short_recipe(Data(), Path("none")), evaluate=Evaluate(unknown="keep"))
    model = Translator(recipe.model, 5, 5)
    return lambda source, target: LoadedRun(folder, recipe, languages[source], languages[target], model, {})


def word_ends(units: list[str], kind: str) -> list[int]:
    """Slowly: for each word, the place of the unit that showed that it was whole; len(units): the end mark."""
    ends: list[int] = []
    for place in range(len(units) + 1):
        # All that can be said after `place + 1` units, from nothing each time.
        seen, over = units[: place + 1], place == len(units)
        if kind == "word":
            whole = min(len(seen), len(units))
        elif kind == "bpe":
            text = "".join(f" {unit} " if unit == "<unk>" else unit.replace("</w>", " ") for unit in seen)
            closed = over or text.endswith(" ")
            whole = len(text.split()) - (not closed)
        else:
            text = "".join(f" {unit} " if unit == "<unk>" else unit.replace("\u2581", " ") for unit in seen)
            closed = over or text.endswith(" ")
            whole = len(text.split()) - (not closed and bool(text.split()))
        ends += [place] * (whole - len(ends))
    return ends


def checked(sentence: Sentence) -> Sentence:
    assert find_problem(sentence) == ""
    return sentence


# By hand.


def spell(side: Language, *units: str) -> list[int]:
    return [side.units.index(unit) for unit in units]


def test_a_word_of_bpe_is_whole_with_its_last_unit() -> None:
    merges = [("l", "o"), ("e", "r</w>")]
    side = Language("x", BPESegmenter(merges), ["lo", "w", "er</w>", "w</w>"])
    recipe = short_recipe(Data(), Path("none"))
    trained = LoadedRun(Path("none"), recipe, side, side, Translator(recipe.model, 8, 8), {})
    # The source "lower low" is lo w er</w> lo w</w> and the end mark: 6 units, 2 words.
    assert side.encode(["lower", "low"]) == spell(side, "lo", "w", "er</w>", "lo", "w</w>")
    output = Output(
        units=spell(side, "lo", "w</w>", "lo", "w", "er</w>", "lo"),
        reads=[1, 3, 4, 4, 6, 6, 6],
        times=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    )
    assert to_sentence(3, "lower low", "low lower lo", output, trained) == Sentence(
        index=3,
        prediction="low lower lo",  # the last word is whole because the sentence is over
        delays=(1, 2, 2),
        elapsed=(2.0, 5.0, 7.0),
        reads=(1, 3, 4, 4, 5, 5),  # the source's end mark is not counted
        source_length=2,
        source_units=5,
        reference_length=3,
        source="lower low",
        reference="low lower lo",
    )


def test_a_word_of_pieces_is_whole_when_the_next_begins(sides: Callable[[str, str], LoadedRun]) -> None:
    trained = sides("word", "sentencepiece")
    new, low = (trained.target.encode([word]) for word in ("new", "low"))
    units = [*new, *low]
    places = list(range(1, len(units) + 2))
    output = Output(units=units, reads=places, times=[float(place) for place in places])
    found = checked(to_sentence(0, "low " * 20 + "low", "new low", output, trained))
    assert found.prediction == "new low"
    assert found.delays == (len(new) + 1, len(units) + 1)
    assert found.elapsed == (float(len(new) + 1), float(len(units) + 1))


def test_a_translation_cut_off_has_no_end_mark() -> None:
    side = Language("x", BPESegmenter([]), ["a", "b</w>"])
    recipe = short_recipe(Data(), Path("none"))
    trained = LoadedRun(Path("none"), recipe, side, side, Translator(recipe.model, 6, 6), {})
    output = Output(units=spell(side, "a", "b</w>", "a"), reads=[1, 1, 2], times=[1.0, 2.0, 3.0])
    found = checked(to_sentence(0, "ab ab", "ab", output, trained))
    assert (found.prediction, found.delays, found.elapsed) == ("ab a", (1, 1), (2.0, 3.0))
    nothing = checked(to_sentence(0, "ab", "ab", Output(units=[], reads=[3], times=[1.0]), trained))
    assert (nothing.prediction, nothing.delays, nothing.reads) == ("", (), ())


# Anything.


@given(
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.lists(st.sampled_from(["low", "lowest", "newer", "wide", "xyz", "we"]), min_size=1, max_size=6),
    st.data(),
)
def test_any_output_becomes_the_trace_of_its_definition(
    sides: Callable[[str, str], LoadedRun], from_: str, to: str, words: list[str], data: st.DataObject
) -> None:
    trained = sides(from_, to)
    units = data.draw(st.lists(st.integers(3, len(trained.target) - 1), max_size=10))
    split = [trained.source.segmenter.split(word) for word in words]
    source_units = sum(map(len, split))
    rising = st.lists(st.integers(1, source_units + 1), min_size=len(units) + 1, max_size=len(units) + 1)
    reads = sorted(data.draw(rising))
    times = [float(10 * place) for place in range(len(units) + 1)]
    found = checked(to_sentence(0, " ".join(words), "r", Output(units, reads, times), trained))

    spelled = [trained.target.units[unit] for unit in units]
    ends = word_ends(spelled, to)
    assert found.prediction.split() == trained.target.decode(units)
    assert len(ends) == len(found.delays)
    # A source word has been heard once any unit of it has been read.
    heard = [sum(sum(map(len, split[:word])) < read for word in range(len(words))) for read in reads]
    assert found.delays == tuple(heard[end] for end in ends)
    assert found.elapsed == tuple(times[end] for end in ends)
    assert found.reads == tuple(min(read, source_units) for read in reads[:-1])
    assert (found.source_length, found.source_units) == (len(words), source_units)


# A model, a dataset, a record.


@pytest.fixture(scope="module", params=KINDS)
def run(
    request: pytest.FixtureRequest, toy_data: Data, tiny: Model, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LoadedRun, Dataset]:
    """An untrained model on the toy corpus in each kind of units."""
    units: Literal["word", "bpe", "sentencepiece"] = request.param
    folder = tmp_path_factory.mktemp(units)
    data = dataclasses.replace(toy_data, dataset=str(folder / "set"), units=units, size=90)
    dataset = Dataset.open(prepare(data))
    recipe = dataclasses.replace(short_recipe(data, folder / "run"), model=tiny)
    write_run(folder / "run", recipe, dataset.source, dataset.target)
    torch.manual_seed(1)
    model = Translator(tiny, len(dataset.source), len(dataset.target))
    save_tensors(folder / "run" / "model.safetensors", dict(model.state_dict()), {})
    return load_run(folder / "run", CPU), dataset


def using(trained: LoadedRun, settings: Evaluate) -> LoadedRun:
    return dataclasses.replace(trained, recipe=dataclasses.replace(trained.recipe, evaluate=settings))


def test_an_evaluation_can_be_read_and_scored_again(run: tuple[LoadedRun, Dataset], tmp_path: Path) -> None:
    trained, dataset = run
    settings = Evaluate(batch=7, max_ratio=1.0, max_extra=3)
    record = evaluate(using(trained, settings), dataset, policy("wait-2"), tmp_path, with_text=True)()
    sentences = read_trace(tmp_path / record.trace)
    sources, references = dataset.text("test")
    assert [sentence.index for sentence in sentences] == list(range(20))
    assert [sentence.source for sentence in sentences] == sources
    assert [sentence.reference for sentence in sentences] == references
    split = dataset.split("test")
    assert [sentence.source_units + 1 for sentence in sentences] == split.source.lengths.tolist()
    for sentence in sentences:  # wait-2 in units
        waits = range(2, 2 + len(sentence.reads))
        assert sentence.reads == tuple(min(reads, sentence.source_units) for reads in waits)
    assert record.scores == score(sentences, references)
    written = read_record(tmp_path / "test.wait-2.json")
    assert written.scores.to_table() == record.scores.to_table()
    assert build(Recipe, written.settings) == dataclasses.replace(trained.recipe, evaluate=settings)
    assert rescore(tmp_path / record.trace).differences == {}
    assert record.model_sha256 == trained.checksum
    assert (str(record.system), record.policy, record.split) == ("multi-path", "wait-2", "test")
    assert record.settings["evaluate"]["batch"] == 7


def test_other_processes_write_the_same(run: tuple[LoadedRun, Dataset], tmp_path: Path) -> None:
    """As on a machine with a GPU, where the next policy is decoded meanwhile."""
    trained, dataset = run
    settings = Evaluate(max_ratio=1.0, max_extra=3)
    made = []
    for count in (0, 2):
        folder = tmp_path / str(count)
        own = using(trained, settings)
        works = (evaluate(own, dataset, policy(name), folder, True) for name in ("wait-1", "full"))
        records = run_in_workers(works, count)
        assert [record.policy for record in records] == ["wait-1", "full"]
        for record in records:
            written = read_record(folder / f"test.{record.policy}.json")
            assert written.scores.to_table() == record.scores.to_table()
        made.append([dataclasses.replace(record, seconds=0.0) for record in records])
    assert made[0] == made[1]


def test_what_was_decoded_is_written_before_a_mistake_ends_it(tmp_path: Path) -> None:
    def works() -> Iterator[Callable[[], object]]:
        yield functools.partial((tmp_path / "written").mkdir)
        raise UserError("the next one")

    with pytest.raises(UserError, match="the next one"):
        run_in_workers(works(), 1)
    assert (tmp_path / "written").is_dir()


def test_without_text_the_trace_has_none(run: tuple[LoadedRun, Dataset], tmp_path: Path) -> None:
    trained, dataset = run
    settings = Evaluate(split="valid", max_ratio=1.0, max_extra=3)
    record = evaluate(using(trained, settings), dataset, policy("full"), tmp_path, with_text=False)()
    assert record.trace == "valid.full.jsonl.xz"
    assert all(sentence.source is sentence.reference is None for sentence in read_trace(tmp_path / record.trace))
    assert record.scores.bleu is not None


def test_lines_become_the_units_of_the_dataset(run: tuple[LoadedRun, Dataset]) -> None:
    trained, dataset = run
    split = dataset.split("test")
    sources = [split.source[place].tolist() for place in range(20)]
    settings = Evaluate(max_ratio=1.0, max_extra=3)
    from_lines = translate_lines(trained, dataset.text("test")[0], policy("wait-3"), settings)
    from_units = translate(trained.model, sources, policy("wait-3"), Limits(1.0, 3), batch=256)
    assert [output.units for output in from_lines] == [output.units for output in from_units]


def test_names_in_reports(sides: Callable[[str, str], LoadedRun]) -> None:
    trained = sides("word", "word")
    assert (str(System.of(trained.recipe, parse("full"))), pair_name(trained.recipe.data)) == (
        "multi-path",
        "dataset.src-tgt",
    )
    data = Data(corpus="iwslt15", source="en", target="vi")
    recipe = dataclasses.replace(trained.recipe, data=data, objective=Objective(name="full"))
    full = dataclasses.replace(trained, recipe=recipe)
    assert (str(System.of(full.recipe, parse("full"))), pair_name(full.recipe.data)) == (
        "full-sentence",
        "iwslt15.en-vi",
    )
    searching = dataclasses.replace(recipe, objective=Objective(name="search"), start="runs/gone")
    assert str(System.of(searching, parse("oracle-1"))) == "BS-SiMT, ours, fine-tuned, oracle"
    assert str(System.of(searching, parse("wait-3"))) == "BS-SiMT, ours, fine-tuned, wait-k"
    assert str(System.of(trained.recipe, parse("oracle-1"))) == "BS-SiMT, ours, oracle"
    scratch = dataclasses.replace(searching, start="")
    assert str(System.of(scratch, parse("oracle-1"))) == "BS-SiMT, ours, from scratch, oracle"
    named = dataclasses.replace(recipe, data=dataclasses.replace(data, corpus="", dataset="data/a+b.en-vi"))
    assert pair_name(named.data) == "a+b.en-vi"


def test_a_policy_that_is_not_built_in_is_a_system_of_its_own() -> None:
    recipe, decoding = Recipe(), Decoding.parse("align-0.5.unknown-keep.half")
    assert (decoding.policy, decoding.options) == (PolicySpec("align", "0.5"), ("unknown-keep", "half"))
    assert str(decoding) == "align-0.5.unknown-keep.half"
    full = dataclasses.replace(recipe, objective=Objective(name="full"))
    systems = [System.of(one, decoding.policy) for one in (recipe, full)]
    assert list(map(str, systems)) == ["align, on multi-path", "align, on full-sentence"]
    assert systems[0] != System.of(recipe, parse("wait-3"))


def test_decodings_are_read_as_they_were_written() -> None:
    settings = Evaluate(threshold=0.45, unknown="keep", ending="patient", precision="half")
    for name in ("wait-3", "full", "mma", "agent-1", "agent-translation"):
        for engine in ("", "int8"):
            decoding = Decoding.of(parse(name), settings, engine)
            assert Decoding.parse(str(decoding)) == decoding


def test_half_precision_is_for_gpus(toy_data: Data, toy_dataset: Dataset, tiny: Model, tmp_path: Path) -> None:
    recipe = dataclasses.replace(short_recipe(toy_data, tmp_path), model=tiny)
    write_run(tmp_path, recipe, toy_dataset.source, toy_dataset.target)
    model = Translator(tiny, len(toy_dataset.source), len(toy_dataset.target))
    save_tensors(tmp_path / "model.safetensors", dict(model.state_dict()), {})
    half = "evaluate.precision=half"
    with pytest.raises(UserError, match=r'evaluate\.precision: "half" is for GPUs'):
        evaluate_run(tmp_path, ["wait-3"], None, True, [half], "cpu")
    with pytest.raises(UserError, match="oracle-1: the search needs single precision"):
        policy_for(
            load_run(tmp_path, CPU), parse("oracle-1"), Evaluate(precision="half"), toy_dataset.split("test")
        )
    both = dataclasses.replace(recipe, stages=("translate", "evaluate"), evaluate=Evaluate(precision="half"))
    with pytest.raises(UserError, match='write "single"'):
        train(both, CPU)
    assert not (tmp_path / "history.jsonl").exists(), "it says so before it trains"


def test_another_threshold_or_setting_has_another_name(run: tuple[LoadedRun, Dataset], tmp_path: Path) -> None:
    trained, dataset = run
    agent, wait = parse("agent-1"), parse("wait-3")
    assert str(Decoding.of(agent, Evaluate())) == "agent-1"
    assert str(Decoding.of(agent, Evaluate(threshold=0.4))) == "agent-1.threshold-0.4"
    assert str(Decoding.of(wait, Evaluate(threshold=0.4))) == "wait-3", "only agents have a threshold"
    assert str(Decoding.of(wait, Evaluate(precision="half"))) == "wait-3.half"
    assert str(Decoding.of(agent, Evaluate(threshold=0.4, precision="half"))) == "agent-1.threshold-0.4.half"
    written = []
    for settings in (Evaluate(max_ratio=1.0, max_extra=3), Evaluate(unknown="keep", max_ratio=1.0, max_extra=3)):
        written.append(evaluate(using(trained, settings), dataset, policy("full"), tmp_path, with_text=False)())
    assert [record.policy for record in written] == ["full", "full.unknown-keep"]
    assert {path.name for path in tmp_path.glob("*.xz")} == {
        "test.full.jsonl.xz",
        "test.full.unknown-keep.jsonl.xz",
    }
    assert [read_record(tmp_path / f"test.{record.policy}.json").trace for record in written] == [
        record.trace for record in written
    ]
