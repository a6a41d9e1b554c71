"""The read/write loop: batched, one by one, token by token and recomputed from nothing write the same."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from torch import Tensor

from tests.conftest import UNITS
from tests.data.test_repeats import most_in_row
from tests.helpers.decoding import BySentence, policy, translate_online, translate_recomputed, written
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Limits, Model
from whilst.data.repeats import CompletingUnits
from whilst.data.segment import WordSegmenter
from whilst.data.vocabulary import BOS, EOS, PAD, SPECIALS, Language
from whilst.data.writer import GuidedWriter, WordRules
from whilst.decoding import batched as decode
from whilst.decoding.batched import Decoding, translate, translate_batch
from whilst.model.transformer import Translator, most_likely
from whilst.policy import StatelessPolicy, View
from whilst.policy.patient import Patient

LIMITS = Limits(1.5, 3)
POLICIES = ["wait-1", "wait-2", "wait-5", "wait-20", "full"]
sources = st.lists(
    st.integers(0, 11).flatmap(lambda n: st.lists(st.integers(EOS + 1, 16), min_size=n, max_size=n)),
    min_size=1,
    max_size=6,
).map(lambda rows: [[*row, EOS] for row in rows])


def many(seed: int, count: int = 40) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 12, (count,), generator=random).tolist()
    return [[*torch.randint(EOS + 1, 17, (size,), generator=random).tolist(), EOS] for size in sizes]


@pytest.mark.parametrize("name", POLICIES)
@given(rows=sources)
@limit(max_examples=8)
def test_all_decoders_agree(model: Translator, name: str, rows: list[list[int]]) -> None:
    chosen = policy(name)
    slow = written([translate_recomputed(model, row, chosen, LIMITS) for row in rows])
    assert written(translate_batch(model, rows, chosen, LIMITS)) == slow
    assert written([translate_online(model, row, chosen, LIMITS) for row in rows]) == slow
    assert written(Decoding(model, chosen, LIMITS, len(rows), graphed=True).translate(rows)) == slow
    one, three = (Decoding(model, chosen, LIMITS, batch, graphed=True) for batch in (1, 3))
    assert written([one.translate([row])[0] for row in rows]) == slow
    assert written(three.translate(rows)) == written(three.translate(rows)) == slow
    assert written([translate_batch(model, [row], chosen, LIMITS)[0] for row in rows]) == slow


@pytest.mark.parametrize("name", ["wait-1", "wait-5", "full"])
@pytest.mark.parametrize("patient", [False, True])
@given(talk=st.lists(st.lists(st.sampled_from(["s1", "s2", "s3"]), max_size=9), min_size=1, max_size=6))
@limit(max_examples=8)
def test_banned_tokens_are_those_of_each_sentence(
    model: Translator, name: str, patient: bool, talk: list[list[str]]
) -> None:
    source, target = (
        Language(side, WordSegmenter(), (f"{side}{n}" for n in range(count - len(SPECIALS))))
        for side, count in zip("st", UNITS, strict=True)
    )
    chosen = Patient(policy(name), model.logits) if patient else policy(name)
    rows = [[*source.encode(words), EOS] for words in talk]
    rules = WordRules(source, target, repeats=CompletingUnits(target))

    def writers() -> list[GuidedWriter]:
        return [GuidedWriter(rules.writer(), rules.known_source(words)) for words in talk]

    slow = [
        translate_recomputed(model, row, chosen, LIMITS, writer=writer)
        for row, writer in zip(rows, writers(), strict=True)
    ]
    assert written(translate_batch(model, rows, chosen, LIMITS, writers=writers())) == written(slow)
    one_by_one = [Decoding(model, chosen, LIMITS, 1, writers=[w]) for w in writers()]
    found = [decoding.translate([row])[0] for decoding, row in zip(one_by_one, rows, strict=True)]
    assert written(found) == written(slow)
    assert written(translate(model, rows, chosen, LIMITS, 3, writers=writers())) == written(slow)
    for words, output in zip(talk, slow, strict=True):
        assert most_in_row(target.decode(output.units)) <= most_in_row(words)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_all_decoders_agree_for_bidirectional_models(
    tiny: Model, translator: Callable[..., Translator], norm: str
) -> None:
    model = translator(replace(tiny, encoder="bidirectional", norm="pre" if norm == "pre" else "post"))
    full, rows = policy("full"), many(3, 12)
    slow = written([translate_recomputed(model, row, full, LIMITS) for row in rows])
    assert written(translate_batch(model, rows, full, LIMITS)) == slow


def test_translations_vary_enough_for_these_tests(model: Translator) -> None:
    """The tiny model's words depend on source and policy, some end by themselves and some do not."""
    rows = many(0)
    one, full = (translate_batch(model, rows, policy(name), LIMITS) for name in ("wait-1", "full"))
    assert sum(a.units != b.units for a, b in zip(one, full, strict=True)) > 10
    assert len({tuple(output.units) for output in full}) > 20
    ended = sum(len(output.reads) > len(output.units) for output in one)
    assert 5 < ended < 35


@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_reads_are_those_of_wait_k(model: Translator, k: int) -> None:
    rows = many(1)
    for row, output in zip(rows, translate_batch(model, rows, policy(f"wait-{k}"), LIMITS), strict=True):
        assert output.reads == [min(k + i, len(row)) for i in range(len(output.reads))]
        assert len(output.reads) == len(output.times)
        assert output.times == sorted(output.times)
        assert not {PAD, BOS, EOS} & set(output.units)


def test_limits_cut_without_changing_what_comes_before(model: Translator) -> None:
    rows, chosen = many(2), policy("wait-3")
    long = translate_batch(model, rows, chosen, Limits(3, 10))
    for limits in (Limits(0, 1), Limits(0.5, 1), Limits(1, 0)):
        for row, whole, cut in zip(rows, long, translate_batch(model, rows, chosen, limits), strict=True):
            most = limits.of(len(row))
            assert cut.units == whole.units[:most]
            assert cut.reads == whole.reads[:most]


@pytest.mark.parametrize(
    ("limits", "length", "most"), [(Limits(), 10, 40), (Limits(1.5, 0), 3, 4), (Limits(0.1, 0), 3, 1)]
)
def test_a_limit_is_at_least_one_unit(limits: Limits, length: int, most: int) -> None:
    assert limits.of(length) == most


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_dropping_finished_rows_does_not_change_others(
    model: Translator, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Whether they never leave, leave in groups, or at once."""
    rows, chosen = many(4), policy("wait-2")
    alone = written([translate_batch(model, [row], chosen, LIMITS)[0] for row in rows])
    monkeypatch.setattr(decode, "SHRINK", share)
    assert written(translate_batch(model, rows, chosen, LIMITS)) == alone


class Eager(StatelessPolicy):
    """Would write before anything is read."""

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("eager")

    def write(self, view: View) -> Tensor:
        return torch.ones_like(view.read, dtype=torch.bool)


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_a_corpus_keeps_its_order_and_indices(model: Translator, batch: int) -> None:
    rows = many(5)
    outputs = translate(model, rows, BySentence(), LIMITS, batch)
    alone = [translate_batch(model, [row], policy(f"wait-{i % 4 + 1}"), LIMITS)[0] for i, row in enumerate(rows)]
    assert written(outputs) == written(alone)


def test_rows_of_a_batch_read_independently(model: Translator) -> None:
    rows = many(7, 12)
    alone = [translate_batch(model, [row], policy(f"wait-{i % 4 + 1}"), LIMITS)[0] for i, row in enumerate(rows)]
    assert written(translate_batch(model, rows, BySentence(), LIMITS)) == written(alone)


def test_the_first_read_is_given(model: Translator) -> None:
    for output in translate_batch(model, many(6, 10), Eager(), LIMITS):
        assert set(output.reads) == {1}


def test_a_bidirectional_encoder_cannot_wait_k(tiny: Model, translator: Callable[..., Translator]) -> None:
    model = translator(replace(tiny, encoder="bidirectional"))
    with pytest.raises(UserError, match="policy wait-3: this model's encoder needs the whole source; use full"):
        translate_batch(model, [[5, EOS]], policy("wait-3"), LIMITS)


def test_pad_and_bos_are_never_written() -> None:
    logits = torch.zeros(2, 13)
    logits[:, [PAD, BOS]] = 9.0
    logits[0, 7] = logits[1, EOS] = 1.0
    assert most_likely(logits).tolist() == [7, EOS]
