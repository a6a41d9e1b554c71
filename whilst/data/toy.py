"""The toy corpus: two invented languages whose reordering, and therefore the optimal policy, is known exactly.

The source has the verb at the end of the clause and adjectives after the noun; the target has the verb second and
adjectives before the noun. docs/toy.md has the grammar.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from whilst.core.errors import UserError
from whilst.core.files import write_lines

T = TypeVar("T")

HELD_OUT = 500  # number of sentences in valid, and in test
_LEXICON_SEED = 20  # the languages are the same in every corpus
_NOUNS = ("nouns", "nouns", "nouns", "closed", "open")  # kinds of noun, repeated by frequency


class Pair(NamedTuple):
    """A sentence and its only correct translation."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    needs: tuple[int, ...]  # of each target word: how many source words must be read to determine it


class Entry(NamedTuple):
    """A source word, or two source words that belong together, and the translation."""

    source: tuple[str, ...]
    # The words of the translation. Words that agree have forms instead: quantifiers and adjectives one for each
    # gender, verbs one for each number.
    target: tuple[str, ...]
    feature: int = 0  # gender of a noun, number of a quantifier (1: plural)

    @property
    def linked(self) -> tuple[str, ...]:
        """The source form of a noun or adjective that is followed by another adjective."""
        return *self.source[:-1], self.source[-1] + "i"


Lexicon = dict[str, list[Entry]]  # entries by kind


def build_lexicon(scale: float = 1.0) -> Lexicon:
    """The two vocabularies, from a fixed seed. A scale below 1 shrinks the open word classes, for tests."""
    rng, used = Random(_LEXICON_SEED), set[str]()
    genders, numbers = ("e", "a"), ("et", "on")

    def new(onsets: str, vowels: str, codas: str, syllables: int) -> str:
        """A pronounceable word that is not used yet and does not look inflected."""
        while True:
            letters = [*(onsets, vowels) * syllables, codas]
            word = "".join(_pick(rng, choices) for choices in letters)
            if word not in used:
                used.add(word)
                return word

    def source(syllables: int = 2) -> str:
        return new("kstnhmyr", "aou", "nkrs", syllables)

    def target(syllables: int = 2) -> str:
        return new("bdglvwfp", "eiao", "lmdt", syllables)

    def forms(endings: tuple[str, str]) -> tuple[str, ...]:
        stem = target()
        return tuple(stem + ending for ending in endings)

    def word(syllables: int = 2) -> Entry:
        return Entry((source(syllables),), (target(syllables),))

    def scaled(count: int) -> int:
        return max(2, round(count * scale))

    parts = [target(1) for _ in range(10)]
    joint = target(1)
    heads = [source() for _ in range(scaled(5))]
    modifiers = [source() for _ in range(scaled(5))]
    particles = [source(1) for _ in range(scaled(3))]
    stems = [source() for _ in range(scaled(8))]
    closed = []
    for i in range(scaled(12)):
        first, second = parts[i % 10], parts[(3 * i + 1 + i // 10) % 10]
        closed.append(Entry((source(3),), (first, second) if i % 3 else (first, joint, second), i % 2))
    comma = Entry((",",), (",",))
    return {
        "quantifiers": [Entry((source(1),), forms(genders), i // 2) for i in range(4)],
        "nouns": [Entry((source(),), (target(),), i % 2) for i in range(scaled(40))],
        "closed": closed,  # one source word, two or three target words
        "open": [  # two source words, one target word
            Entry((modifier, head), (target(3),), (i + j) % 2)
            for i, modifier in enumerate(modifiers)
            for j, head in enumerate(heads)
        ],
        "adjectives": [Entry((source(),), forms(genders)) for _ in range(scaled(20))],
        "verbs": [Entry((source(),), forms(numbers)) for _ in range(scaled(16))],
        # The particle changes the meaning of the verb.
        "split_verbs": [Entry((stem, particle), forms(numbers)) for stem in stems for particle in particles],
        "adverbs": [word(3) for _ in range(scaled(10))],
        "postpositions": [word(1) for _ in range(scaled(5))],
        "coordinators": [word(1) for _ in range(2)],
        "subordinators": [word() for _ in range(3)],
        "commas": [comma],
        "breaks": [comma, word(1)],  # between a subordinate clause in front and its main clause
        "ends": [Entry((".",), (".",)), Entry(("?",), ("?",))],
    }


def _pick(rng: Random, items: Sequence[T]) -> T:
    # random() is the only method whose sequence is guaranteed to be the same in all Python versions.
    return items[int(rng.random() * len(items))]


_Written = tuple[str, int]  # a target word and its need


class _Sentence:
    """Generates one pair: each method appends source words and returns their target words."""

    def __init__(self, rng: Random, lexicon: Lexicon) -> None:
        self.rng, self.lexicon = rng, lexicon
        self.source: list[str] = []

    def pick(self, kind: str) -> Entry:
        return _pick(self.rng, self.lexicon[kind])

    def read(self, words: Sequence[str]) -> int:
        """Append source words; returns the need of the target words that they determine."""
        self.source += words
        return len(self.source)

    def word(self, kind: str) -> list[_Written]:
        entry = self.pick(kind)
        return [(entry.target[0], self.read(entry.source))]

    def noun_phrase(self) -> tuple[list[_Written], int]:
        """Source: quantifier noun adjective*; target: quantifier adjective* noun, adjectives mirrored.

        Also returns the grammatical number, with which the verb agrees.
        """
        quantifier, noun = self.pick("quantifiers"), self.pick(_pick(self.rng, _NOUNS))
        adjectives = (0, 1, 2)[(self.rng.random() < 0.3) + (self.rng.random() < 0.1)]
        self.read(quantifier.source)
        need = self.read(noun.linked if adjectives else noun.source)
        front: list[_Written] = []
        for left in reversed(range(adjectives)):
            adjective = self.pick("adjectives")
            at_adjective = self.read(adjective.linked if left else adjective.source)
            front.insert(0, (adjective.target[noun.feature], at_adjective))
        first = (quantifier.target[noun.feature], need)
        return [first, *front, *((word, need) for word in noun.target)], quantifier.feature

    def place(self) -> list[_Written]:
        """Source: noun phrase, postposition; target: preposition, noun phrase."""
        phrase, _ = self.noun_phrase()
        return self.word("postpositions") + phrase

    def clause(self, front: bool, invert: bool = False) -> list[_Written]:
        """Source: [adverb] subject [place] [object] verb [place]; target: verb second, or first with `invert`."""
        rng = self.rng
        adverb = self.word("adverbs") if front and rng.random() < 0.25 else []
        subject, number = self.noun_phrase()
        position = rng.random()
        place = self.place() if position < 0.1 else []
        object_ = self.noun_phrase()[0] if rng.random() < 0.5 else []
        verb = self.pick("split_verbs" if rng.random() < 0.4 else "verbs")
        written = [(verb.target[number], self.read(verb.source))]
        if position > 0.85:
            place = self.place()
        start = written + subject if adverb or invert else subject + written
        return adverb + start + object_ + place

    def build(self) -> Pair:
        kind = self.rng.random()
        if kind < 0.2:
            target = self.word("subordinators") + self.clause(front=False)
            target += self.word("breaks") + self.clause(front=False, invert=True)
        else:
            target = self.clause(front=True)
            if kind < 0.4:
                target += self.word("coordinators") + self.clause(front=True)
            elif kind < 0.6:
                target += self.word("commas") + self.word("subordinators") + self.clause(front=False)
        target += self.word("ends")
        words, needs = zip(*target, strict=True)
        return Pair(tuple(self.source), words, needs)


def pairs(count: int, seed: int, lexicon: Lexicon | None = None) -> Iterator[Pair]:
    """The first `count` pairs of a seed; short sentences may repeat."""
    rng, lexicon = Random(seed), lexicon or build_lexicon()
    return (_Sentence(rng, lexicon).build() for _ in range(count))


def write(folder: Path, pairs: int, seed: int) -> None:
    """Write {train,valid,test}.{src,tgt} and test.needs. No source sentence occurs twice in all splits together.

    The held-out sentences are drawn first, so they do not depend on the size of `train`.
    """
    if pairs < 1:
        raise UserError(f"the toy corpus needs at least 1 training pair, not {pairs}")
    rng, lexicon, seen = Random(seed), build_lexicon(), set[tuple[str, ...]]()
    for split, count in (("test", HELD_OUT), ("valid", HELD_OUT), ("train", pairs)):
        drawn: list[Pair] = []
        while len(drawn) < count:
            pair = _Sentence(rng, lexicon).build()
            if pair.source not in seen:
                seen.add(pair.source)
                drawn.append(pair)
        write_lines(folder / f"{split}.src", (" ".join(pair.source) for pair in drawn))
        write_lines(folder / f"{split}.tgt", (" ".join(pair.target) for pair in drawn))
        if split == "test":
            write_lines(folder / "test.needs", (" ".join(map(str, pair.needs)) for pair in drawn))
