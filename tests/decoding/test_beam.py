"""Beam search: a beam of one is greedy, and one that drops nothing finds the best there is."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from tests.helpers.decoding import recomputed_logits
from whilst.core.settings import Limits, Model
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import translate_batch
from whilst.decoding.beam import beam_search
from whilst.decoding.output import Output
from whilst.model.transformer import Translator
from whilst.policy.fixed import Full

LIMITS = Limits(1.5, 3)
SHORT = Limits(0, 4)  # three units and the end mark


def many(seed: int, count: int, units: int = 17) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 8, (count,), generator=random).tolist()
    return [[*torch.randint(EOS + 1, units, (size,), generator=random).tolist(), EOS] for size in sizes]


def score(model: Translator, source: list[int], path: list[int]) -> float:
    """The log-probability of a path of units, eos included where it has one."""
    total = 0.0
    for i, unit in enumerate(path):
        logits = recomputed_logits(model, source, path[:i], [len(source)] * (i + 1))
        total += float(logits.log_softmax(-1)[unit])
    return total


def path(output: Output) -> list[int]:
    """With the end mark where it was written: then it has a read."""
    return output.units + [EOS] * (len(output.reads) - len(output.units))


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("encoder", ["causal", "bidirectional"])
def test_a_beam_of_one_is_greedy(
    tiny: Model, translator: Callable[..., Translator], encoder: str, length_penalty: float
) -> None:
    settings = replace(tiny, encoder="causal" if encoder == "causal" else "bidirectional")
    rows = many(0, 30)
    for seed in (2, 3):
        model = translator(settings, seed=seed)
        greedy = translate_batch(model, rows, Full(), LIMITS)
        beam = beam_search(model, rows, 1, LIMITS, length_penalty)
        assert [(o.units, o.reads) for o in beam] == [(o.units, o.reads) for o in greedy]


def test_batches_equal_single_sentences(model: Translator) -> None:
    rows = many(1, 12)
    alone = [beam_search(model, [row], 4, LIMITS)[0] for row in rows]
    together = beam_search(model, rows, 4, LIMITS)
    assert [(o.units, o.reads) for o in together] == [(o.units, o.reads) for o in alone]


def obvious(model: Translator, source: list[int], beam: int, length_penalty: float) -> list[int]:
    """Beam search on lists, every probability computed from nothing."""
    most, best = LIMITS.of(len(source)), (-torch.inf, list[int]())
    paths: list[tuple[float, list[int]]] = [(0.0, [])]
    for step in range(1, most + 1):
        candidates = []
        for total, units in paths:
            logs = recomputed_logits(model, source, units, [len(source)] * step).log_softmax(-1).tolist()
            candidates += [(total + logs[unit], [*units, unit]) for unit in range(EOS, len(logs))]
        candidates.sort(reverse=True)
        ended = [(total / step**length_penalty, units) for total, units in candidates[:beam] if units[-1] == EOS]
        best = max([best, *ended])
        paths = [one for one in candidates if one[1][-1] != EOS][:beam]
        if best[0] >= paths[0][0] / step**length_penalty:
            break
    return best[1] or paths[0][1]


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("beam", [2, 5])
def test_it_equals_a_naive_search(model: Translator, beam: int, length_penalty: float) -> None:
    rows = many(5, 10)
    found = beam_search(model, rows, beam, LIMITS, length_penalty)
    assert [path(output) for output in found] == [obvious(model, row, beam, length_penalty) for row in rows]


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_of_all(tiny: Model, translator: Callable[..., Translator], seed: int) -> None:
    """Of three units besides the end mark there are 40 translations of up to three units: try them all."""
    model = translator(tiny, units=(9, 6), seed=seed)
    every = [[*units, EOS] for size in range(4) for units in itertools.product((3, 4, 5), repeat=size)]
    rows = many(seed, 3, units=9)
    found = beam_search(model, rows, 3**3 * 4, SHORT, length_penalty=0.0)
    greedy = translate_batch(model, rows, Full(), SHORT)
    for row, output, first in zip(rows, found, greedy, strict=True):
        scores = [score(model, row, one) for one in every]
        assert path(output) == every[scores.index(max(scores))]
        if path(first)[-1] == EOS:
            assert max(scores) >= score(model, row, path(first)) - 1e-9


def test_a_beam_improves_the_score(model: Translator) -> None:
    """No theorem for one sentence, as a beam may drop the path that greedy follows; but so it is on the whole."""
    rows = many(2, 60)
    greedy = translate_batch(model, rows, Full(), LIMITS)
    beam = beam_search(model, rows, 4, LIMITS, length_penalty=0.0)
    gains = [
        score(model, row, path(b)) - score(model, row, path(g))
        for row, b, g in zip(rows, beam, greedy, strict=True)
        if path(g)[-1] == EOS  # the probability of what was cut off says nothing
    ]
    assert len(gains) > 5
    assert fmean(gains) > 0.01


def test_a_length_penalty_makes_translations_longer(model: Translator) -> None:
    rows = many(3, 30)
    short, long = (beam_search(model, rows, 4, LIMITS, length_penalty=lp) for lp in (0.0, 1.0))
    assert fmean(len(o.units) for o in long) > fmean(len(o.units) for o in short)


def test_the_limit_cuts_translations(model: Translator) -> None:
    rows = many(4, 30)
    outputs = beam_search(model, rows, 2, Limits(0, 2))
    assert max(len(output.reads) for output in outputs) == 2
    cut = [output for output in outputs if len(output.units) == 2]
    assert cut
    for row, output in zip(rows, outputs, strict=True):
        assert output.reads == [len(row)] * len(path(output))
        assert len(output.times) == len(output.reads)
