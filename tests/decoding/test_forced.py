"""Forced decoding: batches equal single sentences, and forcing its own translation equals decoding."""

from collections.abc import Callable

import pytest

from tests.helpers.decoding import policy
from tests.policy.test_learnt import KINDS, learnt
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Limits, Model
from whilst.data.dataset import Split
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import forced_reads, translate
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.fixed import Diagonal, Oracle, WaitK

Texts = tuple[list[list[int]], list[list[int]]]
POLICIES = ("wait", "diagonal", *(f"{kind.kind}-{kind.inputs}" for kind in KINDS))


def made(name: str, model: Translator) -> Policy:
    plain: dict[str, Policy] = {"wait": WaitK(2), "diagonal": Diagonal(1, (3, 4))}
    agents = {f"{kind.kind}-{kind.inputs}": kind for kind in KINDS}
    return plain[name] if name in plain else learnt(model, agents[name])


@pytest.fixture(scope="module")
def texts(random_split: Callable[..., Split]) -> Texts:
    split = random_split(14, 51)
    return [split.source[i].tolist() for i in range(14)], [split.target[i].tolist() for i in range(14)]


@pytest.mark.parametrize("name", POLICIES)
def test_batches_equal_single_sentences(model: Translator, texts: Texts, name: str) -> None:
    policy = made(name, model)
    together = forced_reads(model, *texts, policy)
    alone = [forced_reads(model, [s], [t], policy)[0] for s, t in zip(*texts, strict=True)]
    assert together == alone
    for reads, source, target in zip(together, *texts, strict=True):
        assert len(reads) == len(target)
        assert reads == sorted(reads)
        assert 1 <= reads[0] <= reads[-1] <= len(source)


@pytest.mark.parametrize("name", POLICIES)
def test_forcing_its_own_translation_equals_decoding(model: Translator, texts: Texts, name: str) -> None:
    policy, sources = made(name, model), texts[0]
    outputs = translate(model, sources, policy, Limits(1.5, 4), 6)
    targets = [[*output.units, EOS][: len(output.reads)] for output in outputs]
    assert forced_reads(model, sources, targets, policy) == [output.reads for output in outputs]


def test_monotone_heads(monotone: Translator, texts: Texts) -> None:
    chosen = policy("mma")
    outputs = translate(monotone, texts[0], chosen, Limits(1.5, 4), 6)
    targets = [[*output.units, EOS][: len(output.reads)] for output in outputs]
    assert forced_reads(monotone, texts[0], targets, chosen) == [output.reads for output in outputs]


def test_oracle_reads_are_found_by_index(model: Translator, texts: Texts) -> None:
    sources, targets = texts
    reads = [[1 + (n + i) * len(s) // (n + len(t)) for i in range(len(t))] for n, (s, t) in
             enumerate(zip(sources, targets, strict=True))]  # fmt: skip
    reads = [[min(g, len(s)) for g in row] for row, s in zip(reads, sources, strict=True)]
    numbers = [7, 2, 11]
    found = forced_reads(
        model,
        [sources[n] for n in numbers],
        [targets[n] for n in numbers],
        Oracle(PolicySpec("oracle"), reads),
        numbers,
    )
    assert found == [reads[n] for n in numbers]


def test_bidirectional_models_are_refused(translator: Callable[..., Translator], texts: Texts) -> None:
    both = Model(width=16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16, encoder="bidirectional")
    with pytest.raises(UserError, match="needs the whole source"):
        forced_reads(translator(both), *texts, WaitK(1))
