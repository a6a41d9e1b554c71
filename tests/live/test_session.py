"""Live sessions: units and reads of the batched loop, bounded memory, independence of other sessions."""

import gc
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from torch import Tensor

from tests.conftest import UNITS
from tests.data.test_repeats import most_in_row
from tests.helpers.decoding import policy
from tests.policy.test_learnt import KINDS, learnt
from whilst.core.settings import Agent as Settings
from whilst.core.settings import Limits, Model
from whilst.data.repeats import CompletingUnits
from whilst.data.segment import BPESegmenter, PieceSegmenter, WordSegmenter
from whilst.data.vocabulary import EOS, SPECIALS, Language
from whilst.data.writer import GuidedWriter, WordRules
from whilst.decoding.batched import translate_batch
from whilst.live.session import (
    MAX_UNITS,
    WORD_UNITS,
    Event,
    Operation,
    Request,
    SentenceEnd,
    Session,
    TextPipeline,
    Word,
)
from whilst.live.torch_backend import TorchBackend
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.fixed import Diagonal
from whilst.policy.patient import Patient

LIMITS = Limits(1.5, 4)
LETTERS = "abcdefghijklm"  # 13 source units and the specials are the tiny model's 17
NAMES = ["wait-1", "wait-3", "wait-20", "full", "diagonal", "embeddings", "states", "lookahead", "gru", "linear"]
NAMES += ["patient wait-1", "patient states", "patient lookahead"]
words = st.lists(st.text(LETTERS[:-1], min_size=1, max_size=4), max_size=9)


class Letters(WordSegmenter):
    """Letters as units, so that words have several."""

    def split(self, word: str) -> list[str]:
        return list(word)


def languages(target: str) -> tuple[Language, Language]:
    """For the tiny model: 13 letters as source units; target units are words, or sub-words."""
    source = Language("src", Letters(), LETTERS)
    count = UNITS[1] - len(SPECIALS)
    if target == "word":
        return source, Language("tgt", WordSegmenter(), (f"w{n}" for n in range(count)))
    units = [f"{letter}{BPESegmenter.last_mark if n % 2 else ''}" for n, letter in enumerate(LETTERS[:count])]
    return source, Language("tgt", BPESegmenter([]), units)


def make_text(longest: int = 40, target: str = "bpe", guarded: bool = False) -> TextPipeline:
    source, written = languages(target)
    rules = WordRules(source, written, repeats=CompletingUnits(written) if guarded else None)
    return TextPipeline(source, written, str, LIMITS.of, rules, longest, lambda word: word.endswith("m"))


class Recording(TorchBackend):
    """Records the source units, target units and reads of every sentence."""

    def __init__(self, model: Translator, policy: Policy, text: TextPipeline) -> None:
        super().__init__(model, policy, *text.longest)
        self.outputs: list[tuple[list[int], list[int], list[int]]] = []  # source units, target units, reads

    def run(self, request: Request) -> int:
        result = super().run(request)
        if request.operation is Operation.BEGIN:
            self.outputs.append(([], [], []))
        source, units, reads = self.outputs[-1]
        if request.operation is Operation.READ:
            source.append(request.unit)
        elif request.operation is Operation.WRITE:
            reads.append(len(source))
            units += [result] if result != EOS else []
        return result


def make_policy(model: Translator, name: str) -> Policy:
    if name.startswith("patient "):
        return Patient(make_policy(model, name.removeprefix("patient ")), model.logits)
    if name == "diagonal":
        return Diagonal(2, (3, 2))
    if name in ("gru", "linear"):
        return learnt(model, next(settings for settings in KINDS if settings.kind == name))
    if name in ("embeddings", "states", "lookahead"):
        return learnt(model, replace(Settings(kind="lstm", hidden=8), inputs=name))  # type: ignore[arg-type]
    return policy(name)


@pytest.fixture(scope="module")
def policies(model: Translator) -> dict[str, Policy]:
    return {name: make_policy(model, name) for name in NAMES}


def encode(text: TextPipeline, sentence: list[str]) -> list[int]:
    return [*text.source.encode(sentence), EOS]


def guides(text: TextPipeline, sentences: list[list[str]]) -> list[GuidedWriter]:
    return [GuidedWriter(text.rules.writer(), text.rules.known_source(sentence)) for sentence in sentences]


def assert_as_batched(
    model: Translator,
    chosen: Policy,
    text: TextPipeline,
    sentences: list[list[str]],
    steps: Recording,
    events: list[Event],
) -> None:
    """Units, reads, words and delays of whole sentences."""
    sources = [encode(text, sentence) for sentence in sentences]
    wanted = translate_batch(model, sources, chosen, LIMITS, writers=guides(text, sentences))
    assert [(units, reads) for _, units, reads in steps.outputs] == [(o.units, o.reads) for o in wanted]
    assert [e.length for e in events if isinstance(e, SentenceEnd)] == [len(sentence) for sentence in sentences]
    for number, output in enumerate(wanted):
        said = [e for e in events if isinstance(e, Word) and e.sentence == number]
        writer = GuidedWriter(text.rules.writer(), text.rules.known_source(sentences[number]))
        pairs = zip(output.units, output.reads, strict=False)  # the end mark has a read too
        wrote = [word for unit, read in pairs for word in writer.write(unit, read)] + writer.writer.flush()
        assert [word.text for word in said] == wrote
        word_of_unit = text.rules.known_source(sentences[number]).numbers
        for word in said:
            assert word.position - word.delay == sum(map(len, sentences[:number]))
            assert word.delay in word_of_unit


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("name", NAMES)
@given(talk=st.lists(words, max_size=5))
@limit(max_examples=6)
def test_a_session_writes_what_the_batched_loop_writes(
    model: Translator, policies: dict[str, Policy], name: str, guarded: bool, talk: list[list[str]]
) -> None:
    text = make_text(guarded=guarded)
    sentences = [[*sentence, "m"] for sentence in talk]
    steps = Recording(model, policies[name], text)
    session = Session(steps, text)
    events = [event for sentence in sentences for word in sentence for event in session.feed(word)]
    assert session.finish() == [], "all sentences were over"
    if sentences:
        assert_as_batched(model, policies[name], text, sentences, steps, events)
    for number, sentence in enumerate(sentences if guarded else ()):
        said = [event.text for event in events if isinstance(event, Word) and event.sentence == number]
        assert most_in_row(said) <= most_in_row(sentence)


@pytest.mark.parametrize("name", NAMES)
def test_words_are_written_as_early_as_possible(model: Translator, policies: dict[str, Policy], name: str) -> None:
    """And never change: the output of a prefix is a prefix of the output."""
    text = make_text(target="word")
    sentence = [*"djicfjhkjbja"]

    def live(count: int) -> list[Event]:
        session = Session(Recording(model, policies[name], text), text)
        return [event for word in sentence[:count] for event in session.feed(word)]

    whole = live(len(sentence))
    for count in range(len(sentence)):
        sofar = live(count)
        assert whole[: len(sofar)] == sofar
    assert name in ("wait-20", "full") or len(whole) > 1, "the test needs words before the end"
    if name in ("wait-1", "wait-3"):
        first = int(name[-1])
        assert [word.position for word in whole] == list(range(first, first + len(whole)))
        assert all(live(word.position)[-1] == word for word in whole), "with the source word that allows it"


def test_monotonic_heads_equal_the_batched_loop(tiny: Model, translator: Callable[..., Translator]) -> None:
    model = translator(replace(tiny, cross="monotone"))
    text, chosen = make_text(), policy("mma")
    sentences = [["abc", "d", "em"], ["f", "ghi", "j", "km"], ["m"]]
    steps = Recording(model, chosen, text)
    session = Session(steps, text)
    events = [event for sentence in sentences for word in sentence for event in session.feed(word)]
    assert_as_batched(model, chosen, text, sentences, steps, events)


@pytest.mark.parametrize("name", ["wait-3", "states", "lookahead"])
def test_sessions_are_independent(model: Translator, policies: dict[str, Policy], name: str) -> None:
    text = make_text()
    talks = [[*"abc", "dm", *"efgh"], [*"ccjj", "em", "a", "bm"], ["kkk", "am", *"lij"]]

    def alone(talk: list[str]) -> list[Event]:
        session = Session(Recording(model, policies[name], text), text)
        return [event for word in talk for event in session.feed(word)] + session.finish()

    sessions = [Session(Recording(model, policies[name], text), text) for _ in talks]
    events: list[list[Event]] = [[] for _ in talks]
    for place in range(max(map(len, talks))):
        for talk, session, mine in zip(talks, sessions, events, strict=True):
            if place < len(talk):
                mine += session.feed(talk[place])
    for session, mine in zip(sessions, events, strict=True):
        mine += session.finish()
    assert events == [alone(talk) for talk in talks]


def memory_of(root: object, shared: tuple[object, ...]) -> tuple[int, int, set[int]]:
    """Number of reachable objects, bytes of tensors, and addresses of large tensors."""
    skip = {id(thing) for thing in shared}
    seen: set[int] = set()
    numbers, places = 0, set()
    todo = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or id(thing) in skip or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            numbers += thing.untyped_storage().nbytes()
            if thing.numel() > 100:
                places.add(thing.data_ptr())
            continue
        todo += gc.get_referents(thing)
    return len(seen), numbers, places


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sentences", "longest"), [("wait-3", 2000, 4), ("lookahead", 100, 20)])
def test_memory_does_not_grow_with_sentences(
    model: Translator, policies: dict[str, Policy], name: str, sentences: int, longest: int
) -> None:
    text = make_text(longest=longest, target="word")
    each = longest - 1  # words; never the end of one but the longest
    words = sentences * each + 1
    random = torch.Generator().manual_seed(5)
    session = Session(TorchBackend(model, policies[name], *text.longest), text)
    shared = (model, policies[name], text)
    ends, sizes = 0, []
    reads: list[int] = []
    read = model.read

    def counting(cache: object, tokens: Tensor, counts: Tensor) -> None:
        reads.append(tokens.numel())
        read(cache, tokens, counts)  # type: ignore[arg-type]

    with mock.patch.object(model, "read", counting):
        for number in range(words):
            letter = LETTERS[int(torch.randint(0, 12, (), generator=random))]  # never m
            events = session.feed(letter)
            ends += sum(isinstance(event, SentenceEnd) for event in events)
            if ends and number % each == 0 and not words - 50 * each > number > 50 * each:  # as one begins
                sizes.append(memory_of(session, shared))
    assert ends == sentences
    assert sizes[0][2], "there are caches"
    assert sizes[0][2] == sizes[-1][2], "the same ones"
    early, late = sizes[:49], sizes[-49:]
    assert max(numbers for _, numbers, _ in late) <= max(numbers for _, numbers, _ in early)
    assert max(count for count, _, _ in late) <= max(count for count, _, _ in early) + 10
    assert set(reads) == {1}
    assert len(reads) <= words + ends, "no source token is encoded twice"


def test_a_sentence_ends_before_the_length_limit(model: Translator) -> None:
    text = make_text(longest=7)
    steps = Recording(model, policy("full"), text)
    session = Session(steps, text)
    for word in ("abc", "de", "fgh", "a,", "b"):
        session.feed(word)
    session.finish()
    read = [source for source, _, _ in steps.outputs]
    assert read == [encode(text, sentence) for sentence in (["abc", "de"], ["fgh", "a,"], ["b"])], (
        "or at a comma near it"
    )


def test_of_a_long_word_the_first_units_are_translated(model: Translator) -> None:
    for longest, units in ((6, 5), (100, WORD_UNITS)):
        steps = Recording(model, policy("wait-1"), make_text(longest))
        session = Session(steps, make_text(longest))
        events = session.feed("a" * 1000) + session.finish()
        assert [event.length for event in events if isinstance(event, SentenceEnd)] == [1]
        assert [len(source) for source, _, _ in steps.outputs] == [units + 1]


def test_a_word_that_cleaning_splits_is_one_source_word(model: Translator) -> None:
    """As where the training text was tokenised: `done.` is two tokens, the second of which ends the sentence."""
    text = replace(make_text(), clean=lambda word: word.replace("m", " m "), ends_sentence=lambda word: word == "m")
    steps = Recording(model, policy("full"), text)
    session = Session(steps, text)
    events = session.feed("ab cdm") + session.feed("em")
    assert [source for source, _, _ in steps.outputs] == [encode(text, ["ab", "cd", "m"]), encode(text, ["e", "m"])]
    assert [event for event in events if isinstance(event, SentenceEnd)] == [
        SentenceEnd(0, 2, 2),
        SentenceEnd(1, 3, 1),
    ]


def test_a_word_that_cleaning_removes_is_a_source_word(model: Translator) -> None:
    """Positions are those of the caller, and sentences follow each other without a gap."""
    text = replace(make_text(), clean=lambda word: word.strip("k"))
    session = Session(Recording(model, policy("full"), text), text)
    events = session.feed("ab k cd k") + session.finish() + session.feed("k am")
    assert [event for event in events if isinstance(event, SentenceEnd)] == [
        SentenceEnd(0, 4, 4),
        SentenceEnd(1, 6, 2),
    ]
    heard = {(event.sentence, event.position, event.delay) for event in events if isinstance(event, Word)}
    assert heard == {(0, 4, 4), (1, 6, 2)}


def test_an_empty_input_has_no_sentence(model: Translator) -> None:
    text = make_text()
    session = Session(Recording(model, policy("wait-1"), text), text)
    assert session.finish() == [] == session.feed("") == session.feed("  \n")
    assert session.state.source_words == 0


def test_pieces_become_words_with_their_punctuation(model: Translator) -> None:
    lines = ["Well, Anna said: “No!”", "Anna said no.", "Well, well."] * 9
    segmenter = PieceSegmenter.learn(lines, 40)
    spoken = [segmenter.split(word) for word in lines[0].split()]
    target = Language("tgt", segmenter, dict.fromkeys(unit for word in spoken for unit in word))
    units = [target.units.index(unit) for word in spoken for unit in word]
    assert len(units) > len(spoken), "words have several pieces"

    class Scripted(TorchBackend):
        """Writes the given units."""

        def run(self, request: Request) -> int:
            result = super().run(request)
            written = int(self.state.cache.written)
            if request.operation is Operation.WRITE:
                return units[written - 1] if written <= len(units) else EOS
            return result

    text = make_text()
    text = replace(text, target=target, rules=WordRules(text.source, target))
    session = Session(
        Scripted(model, policy("wait-1"), text.max_units, 99), replace(text, max_target_units=lambda _: 99)
    )
    events = [event for letter in "abcde" for event in session.feed(letter)]
    assert all(isinstance(event, Word) and event.text in lines[0].split() for event in events)
    events += session.finish()
    assert " ".join(event.text for event in events if isinstance(event, Word)) == lines[0]


def test_the_length_limit_is_within_the_positions() -> None:
    assert Limits().of(MAX_UNITS) < 4096
