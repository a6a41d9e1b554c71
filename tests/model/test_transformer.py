"""The model's two ways: whole sentences under masks and token by token with caches give the same numbers."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import example, given
from hypothesis import settings as limit
from hypothesis import strategies as st
from torch import Tensor

from tests.helpers.decoding import recomputed_logits
from whilst.core.errors import UserError
from whilst.core.settings import MAX_POSITIONS, Model
from whilst.data.batches import Tokens
from whilst.data.vocabulary import BOS, EOS
from whilst.model.attention import dense_mask
from whilst.model.cache import Cache
from whilst.model.transformer import OUTPUT_MULTIPLE, Translator, sinusoids

source_tokens = st.integers(1, 8).flatmap(lambda size: st.lists(st.integers(EOS, 16), min_size=size, max_size=size))
target_tokens = st.lists(st.integers(EOS, 12), min_size=3, max_size=6)


class Story(NamedTuple):
    """A source, a target, and how much of the one had been read when each token of the other was written."""

    source: list[int]
    target: list[int]
    reads: list[int]  # one more than target tokens: the next one's


@st.composite
def stories(draw: st.DrawFn) -> Story:
    source, target = draw(source_tokens), draw(target_tokens)
    count = len(target) + 1
    reads = draw(st.lists(st.integers(1, len(source)), min_size=count, max_size=count))
    return Story(source, target, sorted(reads))


@pytest.fixture(scope="module", params=itertools.product(["pre", "post"], ["causal", "bidirectional"]), ids=str)
def kind(request: pytest.FixtureRequest, tiny: Model, translator: Callable[..., Translator]) -> Translator:
    norm, encoder = request.param
    return translator(replace(tiny, norm=norm, encoder=encoder))


def recomputed(model: Translator, story: Story, i: int) -> Tensor:
    """Logits of target token i from nothing. An encoder that only looks back is not even shown the future."""
    source = story.source if model.bidirectional else story.source[: story.reads[i]]
    return recomputed_logits(model, source, story.target[:i], story.reads[: i + 1])


def read_on(model: Translator, cache: Cache, sources: list[list[int]], until: list[int]) -> None:
    """READ in every row what is missing, all in one call; rows that lack less are fed nonsense."""
    have = cache.read.tolist()
    missing = [source[a:b] for source, a, b in zip(sources, have, until, strict=True)]
    widest = max(map(len, missing))
    if widest:
        tokens = torch.tensor([part + [5] * (widest - len(part)) for part in missing])
        model.read(cache, tokens, torch.tensor([len(part) for part in missing]))


@given(story=stories())
@limit(max_examples=12)
@torch.inference_mode()
def test_caches_equal_recomputation(kind: Translator, story: Story) -> None:
    cache = kind.start(1, len(story.source), len(story.reads))
    for i, (last, g) in enumerate(zip([BOS, *story.target], story.reads, strict=True)):
        read_on(kind, cache, [story.source], [len(story.source) if kind.bidirectional else g])
        logits = kind.write(cache, torch.tensor([last]), torch.tensor([g]))
        torch.testing.assert_close(logits[0], recomputed(kind, story, i))


@given(story=stories())
@limit(max_examples=12)
@torch.inference_mode()
def test_a_preloaded_source_equals_reading_token_by_token(model: Translator, story: Story) -> None:
    cache = model.start(1, len(story.source), len(story.reads))
    read_on(model, cache, [story.source], [len(story.source)])
    for i, (last, g) in enumerate(zip([BOS, *story.target], story.reads, strict=True)):
        logits = model.write(cache, torch.tensor([last]), torch.tensor([g]))
        torch.testing.assert_close(logits[0], recomputed(model, story, i))


@given(rows=st.lists(stories(), min_size=2, max_size=4))
@example(rows=[Story([5, 4], [4], [1, 2]), Story([5, 6, 4], [4], [3, 3])])
@limit(max_examples=40)
@torch.inference_mode()
def test_rows_are_independent(model: Translator, rows: list[Story]) -> None:
    """Every row reads as much as it likes between two writes; each is as if it were alone."""
    steps = min(len(row.reads) for row in rows)
    cache = model.start(len(rows), max(len(row.source) for row in rows), steps)
    for i in range(steps):
        reads = [row.reads[i] for row in rows]
        read_on(model, cache, [row.source for row in rows], reads)
        last = [row.target[i - 1] if i else BOS for row in rows]
        logits = model.write(cache, torch.tensor(last), torch.tensor(reads))
        torch.testing.assert_close(logits, torch.stack([recomputed(model, row, i) for row in rows]))


@given(rows=st.lists(stories(), min_size=2, max_size=4), data=st.data())
@limit(max_examples=40)
@torch.inference_mode()
def test_select_keeps_the_state_of_rows(model: Translator, rows: list[Story], data: st.DataObject) -> None:
    """Before every step some rows leave, change places or become two."""
    steps = min(len(row.reads) for row in rows)
    cache = model.start(len(rows), max(len(row.source) for row in rows), steps)
    for i in range(steps):
        kept = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, max_size=4))
        cache.select(torch.tensor(kept))
        rows = [rows[k] for k in kept]
        reads = [row.reads[i] for row in rows]
        read_on(model, cache, [row.source for row in rows], reads)
        last = [row.target[i - 1] if i else BOS for row in rows]
        logits = model.write(cache, torch.tensor(last), torch.tensor(reads))
        torch.testing.assert_close(logits, torch.stack([recomputed(model, row, i) for row in rows]))


def at(tokens: list[int]) -> Tokens:
    places = torch.arange(len(tokens))[None]
    return Tokens(torch.zeros_like(places), places)


def encode(model: Translator, source: list[int]) -> Tensor:
    """(source, width) under the encoder's own mask."""
    where = at(source)
    looks = torch.full_like(where.position, len(source)) if model.bidirectional else where.position + 1
    return model.encode(torch.tensor([source]), where.position, dense_mask(where, looks, where))[0]


def decode(model: Translator, story: Story) -> Tensor:
    """(target + 1, width) under the story's reads."""
    source_at, prefix = at(story.source), [BOS, *story.target]
    target_at, seen = at(prefix), torch.tensor([story.reads])
    causal = dense_mask(target_at, target_at.position + 1, target_at)
    across = dense_mask(target_at, seen, source_at)
    encoded = encode(model, story.source)[None]
    return model.decode(torch.tensor([prefix]), target_at.position, encoded, causal, across)[0]


def change(tokens: list[int], place: int) -> list[int]:
    """Other tokens from this place on."""
    return tokens[:place] + [EOS + 1 + (token % 7) for token in tokens[place:]]


@given(source=source_tokens, data=st.data())
@limit(max_examples=40)
@torch.inference_mode()
def test_the_encoder_never_sees_the_future(model: Translator, source: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(source) - 1))
    before, after = encode(model, source), encode(model, change(source, place))
    torch.testing.assert_close(after[:place], before[:place])
    if change(source, place) != source:
        assert not torch.allclose(after[place:], before[place:])


@torch.inference_mode()
def test_a_bidirectional_encoder_sees_the_future(tiny: Model, translator: Callable[..., Translator]) -> None:
    model = translator(replace(tiny, encoder="bidirectional"))
    before, after = encode(model, [4, 5, 6, EOS]), encode(model, [4, 5, 9, EOS])
    assert not torch.isclose(after, before).all(-1).any()


@given(story=stories(), data=st.data())
@limit(max_examples=40)
@torch.inference_mode()
def test_a_target_token_sees_what_was_read_and_no_more(
    model: Translator, story: Story, data: st.DataObject
) -> None:
    i = data.draw(st.integers(0, len(story.reads) - 1))
    before = decode(model, story)
    unread = story._replace(source=change(story.source, story.reads[i]))
    torch.testing.assert_close(decode(model, unread)[: i + 1], before[: i + 1])
    last_read = story._replace(source=change(story.source, story.reads[i] - 1))
    if last_read.source[story.reads[i] - 1] != story.source[story.reads[i] - 1]:
        assert not torch.allclose(decode(model, last_read)[i], before[i])
    unwritten = story._replace(target=change(story.target, i))
    torch.testing.assert_close(decode(model, unwritten)[: i + 1], before[: i + 1])


def test_the_papers_model_has_44_million_parameters() -> None:
    with torch.device("meta"):
        model = Translator(Model(), 17192, 7710)
    assert round(model.parameter_count() / 1e6, 1) == 44.3


@pytest.mark.parametrize(("source", "target"), [(MAX_POSITIONS + 1, 1), (1, MAX_POSITIONS + 1)])
def test_too_long_sentences_are_errors_of_one_line(model: Translator, source: int, target: int) -> None:
    with pytest.raises(UserError, match=rf"{MAX_POSITIONS + 1} .*at most {MAX_POSITIONS}"):
        model.start(1, source, target)


@torch.inference_mode()
def test_the_longest_sentence_is_accepted(tiny: Model, translator: Callable[..., Translator]) -> None:
    model = translator(replace(tiny, encoder_layers=1, decoder_layers=1))
    cache = model.start(2, MAX_POSITIONS, 1)
    cache.read += MAX_POSITIONS - 1
    cache.read_end += MAX_POSITIONS - 1
    model.read(cache, torch.tensor([[5, 6], [5, 6]]), torch.tensor([1, 0]))
    assert cache.read.tolist() == [MAX_POSITIONS, MAX_POSITIONS - 1]


@pytest.mark.parametrize("width", [2, 4, 16])
def test_position_encodings_differ(width: int) -> None:
    table = sinusoids(50, width)
    assert table.shape == (50, width)
    assert bool(table.isfinite().all())
    assert torch.cdist(table, table).fill_diagonal_(1).min() > 1e-3
    torch.testing.assert_close(table.square().sum(1), torch.full((50,), width / 2))


@pytest.mark.parametrize("units", [13, OUTPUT_MULTIPLE, OUTPUT_MULTIPLE + 1])
def test_many_logits_equal_logits(tiny: Model, translator: Callable[..., Translator], units: int) -> None:
    """And have the same gradients."""
    model = translator(tiny, (17, units))
    states = torch.randn(3, 5, tiny.width, dtype=torch.float64, requires_grad=True)
    taught, results = torch.randn(3, 5, units, dtype=torch.float64), []
    for logits in (model.logits(states), model.many_logits(states)):
        assert logits.shape == (3, 5, units)
        results.append([logits, *torch.autograd.grad(logits, [states, model.target_embedding.weight], taught)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
