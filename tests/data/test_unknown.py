"""Unknown words are replaced by unknown words of the source: only those read, each once, in order."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st

from tests.helpers.decoding import policy
from tests.helpers.runs import MODEL
from whilst.core.config import load_recipe
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data, Evaluate, Recipe
from whilst.data.segment import BPESegmenter, WordSegmenter
from whilst.data.vocabulary import BOS, EOS, UNK, Language
from whilst.data.writer import GuidedWriter, WordRules
from whilst.decoding.output import Output
from whilst.evaluation.evaluate import to_sentence, translate_lines, words_with_times
from whilst.evaluation.identity import Decoding
from whilst.live.evaluate_export import whole_lines
from whilst.live.session import Session, TextPipeline, Word
from whilst.live.torch_backend import TorchBackend
from whilst.model.checkpoint import LoadedRun
from whilst.model.transformer import Translator

SOURCE = Language("src", WordSegmenter(), ["a", "b"])
TARGET = Language("tgt", WordSegmenter(), ["x", "y"])
WORDS = ["a", "b", "Anna", "Bert", "Cleo"]
X, Y = (TARGET.units.index(unit) for unit in "xy")


def run(unknown: str = "copy", seed: int = 1) -> LoadedRun:
    torch.manual_seed(seed)
    evaluate = Evaluate(unknown=unknown)  # type: ignore[arg-type]
    recipe = Recipe(data=Data(source="src", target="tgt"), model=MODEL, evaluate=evaluate)
    model = Translator(MODEL, len(SOURCE), len(TARGET)).eval()
    return LoadedRun(Path("run"), recipe, SOURCE, TARGET, model, {})


def written(source: str, units: list[int], reads: list[int], unknown: str = "copy") -> str:
    output = Output(units, [*reads, len(source.split()) + 1], [0.0] * (len(units) + 1))
    rules = run(unknown).rules
    known = rules.known_source(source.split())
    return " ".join(word for word, _, _ in words_with_times(known, output, rules))


def test_an_unknown_source_word_replaces_an_unknown_unit() -> None:
    assert written("a Anna b", [X, UNK, Y], [1, 2, 3]) == "x Anna y"
    assert written("a Anna b", [X, UNK, Y], [1, 2, 3], "keep") == "x <unk> y"


def test_words_not_read_yet_are_not_copied() -> None:
    assert written("a b Anna", [UNK, X, UNK], [2, 3, 3]) == "x Anna"


def test_each_word_is_copied_once_in_order() -> None:
    assert written("Anna a Bert", [UNK, X, UNK, UNK], [3, 3, 3, 3]) == "Anna x Bert"


def test_delays_belong_to_the_written_words() -> None:
    output = Output([UNK, X, UNK], [1, 2, 3, 4], [0.0] * 4)
    sentence = to_sentence(0, "a b Anna", "", output, run())
    assert (sentence.prediction, sentence.delays, sentence.reads) == ("x Anna", (2, 3), (1, 2, 3))


def test_a_word_is_unknown_from_its_last_unit_on() -> None:
    source = Language("src", BPESegmenter([]), ["a@@", f"b{BPESegmenter.last_mark}", "a"])
    target = Language("tgt", WordSegmenter(), ["x"])
    end = len(source.encode(["b", "axb"]))
    for read, written in ((end - 1, []), (end, ["axb"])):
        rules = WordRules(source, target, copy=True)
        writer = GuidedWriter(rules.writer(), rules.known_source(["b", "axb", "b"]))
        assert writer.write(UNK, read) == written


@limit(max_examples=30)
@given(
    lines=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), min_size=1, max_size=4),
    name=st.sampled_from(["wait-1", "wait-3", "full"]),
    seed=st.integers(1, 4),
)
def test_live_sessions_copy_the_same_words(lines: list[list[str]], name: str, seed: int) -> None:
    trained = run(seed=seed)
    # Unknown words are frequent, and eos is rare.
    with torch.no_grad():
        trained.model.target_embedding.weight[[0, BOS, EOS]] = 0
        trained.model.target_embedding.weight[UNK] *= 3
    text = [" ".join(line) for line in lines]
    outputs = translate_lines(trained, text, policy(name), trained.recipe.evaluate)
    pipeline = TextPipeline.of(trained.recipe, trained.source, trained.target)
    whole = whole_lines(pipeline, text)
    live = Session(TorchBackend(trained.model, policy(name), *whole.longest), whole)
    for index, (line, output) in enumerate(zip(text, outputs, strict=True)):
        events = [event for word in line.split() for event in live.feed(word)] + live.finish()
        found = [(event.text, event.delay) for event in events if isinstance(event, Word)]
        sentence = to_sentence(index, line, "", output, trained)
        assert found == list(zip(sentence.words, sentence.delays, strict=True))
        assert not {"<unk>"} & set(sentence.words)


def test_the_policy_name_has_the_unknown_setting() -> None:
    assert str(Decoding.of(PolicySpec.parse("agent-1"), Evaluate())) == "agent-1"
    settings = Evaluate(unknown="keep", threshold=0.6)
    assert str(Decoding.of(PolicySpec.parse("agent-1"), settings)) == "agent-1.threshold-0.6.unknown-keep"


def test_a_wrong_unknown_setting_is_refused(tmp_path: Path) -> None:
    (recipe := tmp_path / "r.toml").write_text("")
    with pytest.raises(UserError, match="unknown"):
        load_recipe(recipe, ["evaluate.unknown=drop"])
