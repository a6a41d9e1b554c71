"""The toy corpus: needs are sufficient and necessary, and its files are reproducible."""

import hashlib
from collections import Counter, defaultdict
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from whilst.core.errors import UserError
from whilst.data import toy
from whilst.data.toy import Pair, build_lexicon, pairs


def optimal_reads(pair: Pair) -> list[int]:
    """Source words read when the optimal policy writes each target word, without eos on either side."""
    return list(accumulate(pair.needs, max))


@pytest.fixture(scope="module")
def small() -> list[Pair]:
    """Many sentences with a small vocabulary, so that many share long prefixes."""
    return list(pairs(30_000, seed=3, lexicon=build_lexicon(scale=0.01)))


@pytest.fixture(scope="module")
def full() -> list[Pair]:
    return list(pairs(5_000, seed=3))


@pytest.mark.parametrize("sample", ["small", "full"])
def test_the_optimal_policy_determines_every_word(sample: str, request: pytest.FixtureRequest) -> None:
    sentences: list[Pair] = request.getfixturevalue(sample)
    known: dict[tuple[str, ...], tuple[str, ...]] = {}  # what was read -> the target that it determines
    for pair in sentences:
        reads = optimal_reads(pair)
        known |= {pair.source[:read]: pair.target[: i + 1] for i, read in enumerate(reads)}
    shared = 0
    for pair in sentences:
        for read in range(1, len(pair.source) + 1):
            target = known.get(pair.source[:read], ())
            assert pair.target[: len(target)] == target
            shared += read < len(pair.source) and bool(target)
    assert shared > 3 * len(sentences)


def test_the_optimal_policy_has_no_superfluous_reads(small: list[Pair]) -> None:
    """With one source word less, sentences with the same prefix differ in the next target word."""
    following: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for pair in small:
        reads = [0, *optimal_reads(pair)]
        for word, (before, read) in zip(pair.target, pairwise(reads), strict=True):
            if read > before:
                following[pair.source[: read - 1]][word] += 1
    often = [words for words in following.values() if words.total() >= 25]
    assert len(often) > 200
    assert all(len(words) > 1 for words in often)


def test_the_translation_is_a_function_of_the_source(small: list[Pair]) -> None:
    translations: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for pair in small:
        translations[pair.source].add(pair.target)
    assert len(translations) < len(small)  # some sentences did come twice
    assert all(len(targets) == 1 for targets in translations.values())


def test_needs_are_within_the_source(full: list[Pair]) -> None:
    for pair in full:
        assert len(pair.target) == len(pair.needs)
        assert min(pair.needs) >= 1
        assert max(pair.needs) == len(pair.source)


def test_reads_are_monotone_and_end_with_the_whole_source(full: list[Pair]) -> None:
    for pair in full:
        reads = optimal_reads(pair)
        assert reads == sorted(reads)
        assert reads[0] >= 1
        assert reads[-1] == len(pair.source)
        assert all(need <= read for need, read in zip(pair.needs, reads, strict=True))


def test_small_k_is_insufficient_for_verbs(full: list[Pair]) -> None:
    def determined(k: int) -> float:
        hits = [k + i >= read for pair in full for i, read in enumerate(optimal_reads(pair))]
        return sum(hits) / len(hits)

    assert determined(1) < 0.5
    assert determined(3) < 0.85
    assert determined(9) > 0.98
    reordered = sum(list(pair.needs) != optimal_reads(pair) for pair in full)
    assert reordered / len(full) > 0.7


def test_sentences_have_the_documented_length(full: list[Pair]) -> None:
    lengths = sorted(len(pair.source) for pair in full)
    assert lengths[0] >= 4
    assert lengths[len(full) // 20] >= 5
    assert lengths[len(full) * 4 // 5] <= 16
    assert 150 <= len({word for pair in full for word in pair.source}) <= 300
    assert 150 <= len({word for pair in full for word in pair.target}) <= 300


def test_words_of_a_language_are_all_different() -> None:
    lexicon = build_lexicon()
    nouns, adjectives = lexicon["nouns"] + lexicon["closed"], lexicon["adjectives"]
    source = [form for entry in nouns + adjectives for form in entry.source + entry.linked]
    source += [entry.source[0] for entry in lexicon["verbs"] + lexicon["open"][::5]]
    assert len(source) == len(set(source))
    target = [noun.target for noun in nouns + lexicon["open"]]
    inflected = adjectives + lexicon["verbs"] + lexicon["split_verbs"]
    target += [(form,) for entry in inflected for form in entry.target]
    assert len(target) == len(set(target))


def test_compounds_translate_many_to_one_and_one_to_many() -> None:
    lexicon = build_lexicon()
    assert {(len(noun.source), len(noun.target)) for noun in lexicon["closed"]} == {(1, 2), (1, 3)}
    assert {(len(noun.source), len(noun.target)) for noun in lexicon["open"]} == {(2, 1)}
    assert {len(verb.source) for verb in lexicon["split_verbs"]} == {2}


def _read(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text(encoding="utf-8").splitlines() for path in folder.iterdir()}


def test_written_splits_are_disjoint_and_aligned(tmp_path: Path) -> None:
    toy.write(tmp_path, pairs=700, seed=5)
    files = _read(tmp_path)
    counts = {name: len(lines) for name, lines in files.items()}
    assert counts.pop("test.needs") == 500
    sizes = {"train": 700, "valid": 500, "test": 500}
    assert counts == {f"{split}.{side}": size for split, size in sizes.items() for side in ("src", "tgt")}
    sources = files["train.src"] + files["valid.src"] + files["test.src"]
    assert len(set(sources)) == len(sources)
    for source, target, needs in zip(files["test.src"], files["test.tgt"], files["test.needs"], strict=True):
        numbers = [int(need) for need in needs.split()]
        assert len(numbers) == len(target.split())
        assert max(numbers) == len(source.split())


def test_files_depend_on_the_seed_and_the_test_set_not_on_the_size(tmp_path: Path) -> None:
    for name, count, seed in (("one", 50, 1), ("same", 50, 1), ("more", 90, 1), ("other", 50, 2)):
        toy.write(tmp_path / name, count, seed)
    one, same, more, other = (_read(tmp_path / name) for name in ("one", "same", "more", "other"))
    assert one == same
    assert {name for name in one if one[name] != more[name]} == {"train.src", "train.tgt"}
    assert more["train.src"][:50] == one["train.src"]
    assert not set(one["test.src"]) & set(other["test.src"])


def test_the_languages_are_unchanged() -> None:
    """Published numbers depend on these sentences."""
    text = "\n".join(" ".join((*pair.source, "|", *pair.target)) for pair in pairs(200, seed=1))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "0de7c57c2e95138f"


def test_no_training_pairs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 1 training pair"):
        toy.write(tmp_path, pairs=0, seed=1)
