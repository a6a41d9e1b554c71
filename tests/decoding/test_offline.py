"""Offline models made simultaneous: what the rules say, greedy decoding, nothing taken back."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.conftest import make_model
from tests.helpers.decoding import recomputed_logits, written
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Limits, Model
from whilst.data.vocabulary import EOS
from whilst.data.writer import KnownSource
from whilst.decoding import batched
from whilst.decoding.offline import (
    Hypothesis,
    OfflineModel,
    Retranslation,
    Rule,
    TranslatorModel,
    improve,
    needs_retranslation,
    retranslate,
    translate,
)
from whilst.decoding.output import Output
from whilst.model.layers import DecoderLayer
from whilst.model.transformer import Translator, most_likely
from whilst.policy.fixed import Full

LIMITS = Limits()
Encoder = Literal["causal", "bidirectional"]
NAMES = "full", "wait-1", "wait-3", "local-agreement-1", "local-agreement-2", "align-att-1", "align-att-3"


def with_encoder(settings: Model, encoder: Encoder) -> Model:
    return dataclasses.replace(settings, encoder=encoder)


def rule(name: str) -> Rule:
    return Rule(PolicySpec.parse(name))


class Scripted(OfflineModel):
    """Its translation of each source is given, and which source unit each of its units comes from."""

    max_positions = 100

    def __init__(self, script: dict[tuple[int, ...], Sequence[tuple[int, int]]]) -> None:
        self.script = script
        self.passes = 0

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        longest = max(map(len, sources))
        rows = torch.tensor([[*source, *[0] * (longest - len(source))] for source in sources])
        return rows, torch.tensor(list(map(len, sources)))

    def predict(
        self, encoded: Tensor, lengths: Tensor, prefixes: Sequence[Sequence[int]], align: bool
    ) -> tuple[Tensor, Tensor | None]:
        self.passes += 1
        longest = max(map(len, prefixes)) + 1
        rows = [self.script[tuple(row[:n])] for row, n in zip(encoded.tolist(), lengths.tolist(), strict=True)]
        padded = [[*row, (EOS, 0), *[(EOS, 0)] * longest][:longest] for row in rows]
        whole = torch.tensor(padded)
        return whole[..., 0], whole[..., 1] if align else None


def scripted(*hypotheses: str) -> tuple[Scripted, list[int]]:
    """Hypotheses for sources of 1, 2, … units, such as "a0 b1": units and the source units that they come from."""
    source = [10 + n for n in range(len(hypotheses))]
    rows = [[(100 + ord(pair[0]), int(pair[1:])) for pair in line.split()] for line in hypotheses]
    return Scripted({tuple(source[: n + 1]): row for n, row in enumerate(rows)}), source


def known(source: Sequence[int], words: Sequence[int] = ()) -> KnownSource:
    """Each unit is a word, unless `words` has the number of its word."""
    return KnownSource([*source], [*(words or range(len(source)))], [])


def translated(model: OfflineModel, name: str, source: Sequence[int], words: Sequence[int] = ()) -> str:
    """Such as "a1 b3": units and how many source units were read."""
    [output] = translate(model, rule(name), [known(source, words)], LIMITS, 1)
    return " ".join(f"{chr(unit - 100)}{read}" for unit, read in zip(output.units, output.reads, strict=False))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("full", "a5 b5 d5 e5"),
        ("wait-1", "a1 b2 d3 e4"),
        ("wait-3", "a3 b4 d5 e5"),
        ("local-agreement-1", "a1 c1 d3 e3"),  # the model follows its script only after what it has written
        ("local-agreement-2", "a2 b3 d4 e4"),
        ("local-agreement-3", "a3 b4 d5 e5"),
        ("align-att-1", "a2 b2 d4 e5"),
        ("align-att-2", "a3 b3 d5 e5"),
    ],
)
def test_the_rules_by_hand(name: str, expected: str) -> None:
    model, source = scripted("a0 c0", "a0 b0", "a0 b0 d2 e1", "a0 b0 d2 e3")
    if name == "local-agreement-1":
        model.script[tuple(source)] = model.script[tuple(source[:3])] = [(197, 0), (199, 0), (200, 2), (201, 1)]
    assert translated(model, name, source) == expected


def test_only_whole_words_are_translated() -> None:
    model, source = scripted("x9", "a0 b1", "y9", "a0 b1 c3")
    assert translated(model, "wait-1", source, words=(1, 1, 2, 2)) == "a2 b2 c4"


def test_the_end_mark_waits_for_the_end_of_the_source() -> None:
    model, source = scripted("a0", "a0", "a0 b2")
    for name in ("wait-1", "local-agreement-1"):
        [output] = translate(model, rule(name), [known(source)], LIMITS, 1)
        assert output.reads[-1] == 4


@given(st.lists(st.integers(3, 6), max_size=6), st.integers(0, 3), st.integers(1, 9))
def test_guesses_become_the_translation(target: list[int], wrong: int, most: int) -> None:
    """Whatever the first guess, each pass finds at least one more unit."""
    whole = [*target, EOS][:most]
    guess, passes = [wrong + 3] * min(wrong, most - 1), 0
    while True:
        right = next((n for n, unit in enumerate(guess) if [unit] != target[n : n + 1]), len(guess))
        predicted = [([*target, EOS][n] if n <= min(right, len(target)) else 5) for n in range(len(guess) + 1)]
        better, is_whole = improve(guess, predicted, 0, most)
        passes += 1
        if is_whole:
            break
        guess = better[:-1] if better[-1] == EOS else better
    assert better == whole
    assert passes <= len(whole)


def slow_translation(model: Translator, source: list[int], prefix: list[int]) -> list[int]:
    """Greedy decoding without caches, from a prefix."""
    units = list(prefix)
    while (not units or units[-1] != EOS) and len(units) < LIMITS.of(len(source)):
        reads = [len(source)] * (len(units) + 1)
        units.append(int(most_likely(recomputed_logits(model, source, units, reads))))
    return units


@pytest.mark.parametrize("encoder", ["causal", "bidirectional"])
def test_hypotheses_are_those_of_greedy_decoding(encoder: Encoder, tiny: Model, sources: list[list[int]]) -> None:
    model = make_model(with_encoder(tiny, encoder))
    for source in sources[:6]:
        sentence = Retranslation(rule("local-agreement-2"), LIMITS.of)
        for unit in source[:-1]:
            sentence.read(unit)
            retranslate(TranslatorModel(model), [sentence])
            assert sentence.hypotheses[-1].units == slow_translation(
                model, [*sentence.source, EOS], sentence.written
            )
            while sentence.can_write:
                sentence.write()


@pytest.mark.parametrize("encoder", ["causal", "bidirectional"])
def test_reading_all_first_is_translating_whole_sentences(
    encoder: Encoder, tiny: Model, sources: list[list[int]]
) -> None:
    model = make_model(with_encoder(tiny, encoder))
    expected = batched.translate(model, sources, Full(), LIMITS, 4)
    assert written(own(model, "full", sources, 4)) == written(expected)


def own(model: Translator, name: str, sources: list[list[int]], batch: int) -> list[Output]:
    return translate(TranslatorModel(model), rule(name), [known(source[:-1]) for source in sources], LIMITS, batch)


@pytest.mark.parametrize("name", NAMES)
def test_batches_translate_as_one_by_one(name: str, tiny: Model, sources: list[list[int]]) -> None:
    model = make_model(with_encoder(tiny, "bidirectional"))
    outputs = own(model, name, sources, 5)
    assert written(outputs) == written(own(model, name, sources, 1))
    for source, output in zip(sources, outputs, strict=True):
        assert output.reads == sorted(output.reads)
        assert output.reads[-1] == len(source) or len(output.units) == LIMITS.of(len(source))  # cut
        assert output.times == sorted(output.times)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_wait_k_waits(k: int, tiny: Model, sources: list[list[int]]) -> None:
    model = make_model(with_encoder(tiny, "bidirectional"))
    for source, output in zip(sources, own(model, f"wait-{k}", sources, 5), strict=True):
        assert all(g >= min(k + n, len(source)) for n, g in enumerate(output.reads))


def test_attention_weights_are_those_of_the_layer(tiny: Model) -> None:
    model = make_model(dataclasses.replace(tiny, heads=1))
    layer = model.decoder[1]
    assert isinstance(layer, DecoderLayer)
    states, encoded = torch.randn(2, 3, tiny.width).double(), torch.randn(2, 4, tiny.width).double()
    causal = torch.ones(3, 3, dtype=torch.bool).tril()[None, None]
    cross = (torch.arange(4) < torch.tensor([4, 2])[:, None])[:, None, None].expand(2, 1, 3, 4)
    weights = layer.cross_weights(states, encoded, causal, cross)
    assert torch.equal(weights[1, :, 2:], torch.zeros(3, 2).double())

    seen: list[Tensor] = []
    layer.cross.register_forward_hook(lambda _, __, out: seen.append(out))
    layer(states, encoded, causal, cross)
    _, values = layer.cross.keys_values(encoded)
    mixed = layer.cross.get_submodule("out")(weights @ values[:, 0])
    torch.testing.assert_close(mixed, seen[0])


def test_which_models_translate_anew() -> None:
    names = {
        encoder: [n for n in NAMES if needs_retranslation(Model(encoder=encoder), rule(n).spec)]
        for encoder in ("causal", "bidirectional")
    }
    assert names["causal"] == list(NAMES[3:])
    assert names["bidirectional"] == list(NAMES[1:])


def test_mistakes_are_errors_of_one_line(monotone: Translator, model: Translator) -> None:
    with pytest.raises(UserError, match="policy agent-1: a full-sentence model only supports full, wait-K"):
        rule("agent-1")
    with pytest.raises(UserError, match="use the policy mma"):
        TranslatorModel(monotone)
    short = TranslatorModel(model)
    short.max_positions = 3
    with pytest.raises(
        UserError, match="a source of 4 units with its end mark is too long, at most 3 for this model"
    ):
        translate(short, rule("full"), [known([3, 4, 5])], LIMITS, 1)
    [output] = translate(short, rule("full"), [known([3, 4])], LIMITS, 1)
    assert len(output.reads) <= 3  # not an error: cut


def test_a_hypothesis_knows_its_length_without_end_mark() -> None:
    assert (Hypothesis([5, 6, EOS]).length, Hypothesis([5, 6]).length, Hypothesis([]).length) == (2, 2, 0)
