"""The toy corpus: two invented languages whose reordering, and therefore the optimal policy, is known exactly.

The source has the verb at the end of the clause and adjectives after the noun; the target has the verb second and
adjectives before the noun. docs/toy.md has the grammar.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from whilst.core.errors import UserError
from whilst.core.files import write_lines

T = TypeVar("T")

HELD_OUT = 500  # sentences of valid and of test
_LEXICON_SEED = 20  # the languages are the same in every corpus


@dataclass(frozen=True)
class Pair:
    """A sentence, its only correct translation, and the alignment between them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    # Of each target word: the source words, counted from 0, that determine it, ascending.
    links: tuple[tuple[int, ...], ...]

    @property
    def needs(self) -> tuple[int, ...]:
        """Of each target word: how many source words must be read to determine it."""
        return tuple(link[-1] + 1 for link in self.links)


class Quantifier(NamedTuple):
    source: str
    target: tuple[str, str]  # by gender of the noun
    plural: bool


class Noun(NamedTuple):
    """A noun or a compound; its form is `linked` if an adjective follows, else `source`."""

    source: tuple[str, ...]
    linked: tuple[str, ...]
    target: tuple[str, ...]
    gender: int


class Adjective(NamedTuple):
    source: str
    linked: str  # another adjective follows
    target: tuple[str, str]  # by gender of the noun


class Verb(NamedTuple):
    source: tuple[str, ...]  # the verb, or the verb and the particle that changes its meaning
    target: tuple[str, str]  # with a singular, a plural subject


class Word(NamedTuple):
    source: str
    target: str


@dataclass(frozen=True)
class Lexicon:
    quantifiers: tuple[Quantifier, ...]
    nouns: tuple[Noun, ...]
    closed: tuple[Noun, ...]  # one source word, two or three target words
    open: tuple[Noun, ...]  # two source words, one target word
    adjectives: tuple[Adjective, ...]
    verbs: tuple[Verb, ...]
    split_verbs: tuple[Verb, ...]  # verb and particle
    adverbs: tuple[Word, ...]
    postpositions: tuple[Word, ...]
    coordinators: tuple[Word, ...]
    subordinators: tuple[Word, ...]
    breaks: tuple[Word, ...]  # between a subordinate clause in front and its main clause
    ends: tuple[Word, ...]


class _Words:
    """New pronounceable words of one language, all distinct, none with the form of an inflection."""

    def __init__(self, rng: Random, onsets: str, vowels: str, codas: str) -> None:
        self._rng, self._onsets, self._vowels, self._codas = rng, onsets, vowels, codas
        self._used: set[str] = set()

    def new(self, syllables: int = 2) -> str:
        while True:
            letters = [*(self._onsets, self._vowels) * syllables, self._codas]
            word = "".join(_pick(self._rng, choices) for choices in letters)
            if word not in self._used:
                self._used.add(word)
                return word

    def both(self, endings: tuple[str, str]) -> tuple[str, str]:
        stem = self.new()
        return stem + endings[0], stem + endings[1]


def build_lexicon(scale: float = 1.0) -> Lexicon:
    """The two vocabularies, from a fixed seed. A scale below 1 shrinks the open word classes, for tests."""
    rng = Random(_LEXICON_SEED)
    source = _Words(rng, onsets="kstnhmyr", vowels="aou", codas="nkrs")
    target = _Words(rng, onsets="bdglvwfp", vowels="eiao", codas="lmdt")
    link, genders, numbers = "i", ("e", "a"), ("et", "on")

    def count(full: int) -> int:
        return max(2, round(full * scale))

    def word(syllables: int = 2) -> Word:
        return Word(source.new(syllables), target.new(syllables))

    def noun(index: int, last: str, translation: tuple[str, ...], *first: str) -> Noun:
        return Noun((*first, last), (*first, last + link), translation, index % 2)

    def adjective() -> Adjective:
        bare = source.new()
        return Adjective(bare, bare + link, target.both(genders))

    parts = [target.new(1) for _ in range(10)]
    joint = target.new(1)
    heads = [source.new() for _ in range(count(5))]
    modifiers = [source.new() for _ in range(count(5))]
    particles = [source.new(1) for _ in range(count(3))]
    stems = [source.new() for _ in range(count(8))]
    closed = []
    for i in range(count(12)):
        first, second = parts[i % 10], parts[(3 * i + 1 + i // 10) % 10]
        closed.append(noun(i, source.new(3), (first, second) if i % 3 else (first, joint, second)))
    return Lexicon(
        quantifiers=tuple(Quantifier(source.new(1), target.both(genders), i >= 2) for i in range(4)),
        nouns=tuple(noun(i, source.new(), (target.new(),)) for i in range(count(40))),
        closed=tuple(closed),
        open=tuple(
            noun(i + j, head, (target.new(3),), modifier)
            for i, modifier in enumerate(modifiers)
            for j, head in enumerate(heads)
        ),
        adjectives=tuple(adjective() for _ in range(count(20))),
        verbs=tuple(Verb((source.new(),), target.both(numbers)) for _ in range(count(16))),
        split_verbs=tuple(Verb((s, p), target.both(numbers)) for s in stems for p in particles),
        adverbs=tuple(word(3) for _ in range(count(10))),
        postpositions=tuple(word(1) for _ in range(count(5))),
        coordinators=tuple(word(1) for _ in range(2)),
        subordinators=tuple(word() for _ in range(3)),
        breaks=(Word(",", ","), word(1)),
        ends=(Word(".", "."), Word("?", "?")),
    )


def _pick(rng: Random, items: Sequence[T]) -> T:
    # random() is the only method whose sequence is guaranteed to be the same in all Python versions.
    return items[int(rng.random() * len(items))]


class _Written(NamedTuple):
    """A target word and the source words that determine it."""

    word: str
    links: tuple[int, ...]


class _Sentence:
    """Generates one pair: each method appends source words and returns their target words."""

    def __init__(self, rng: Random, lexicon: Lexicon) -> None:
        self.rng, self.lexicon = rng, lexicon
        self.source: list[str] = []

    def read(self, *words: str) -> tuple[int, ...]:
        start = len(self.source)
        self.source.extend(words)
        return tuple(range(start, len(self.source)))

    def word(self, choices: Sequence[Word]) -> list[_Written]:
        chosen = _pick(self.rng, choices)
        return [_Written(chosen.target, self.read(chosen.source))]

    def noun_phrase(self) -> tuple[list[_Written], tuple[int, bool]]:
        """Source: quantifier noun adjective*; target: quantifier adjective* noun, adjectives mirrored.

        Also returns, for the verb, the position of the quantifier and whether it is plural.
        """
        rng, lexicon = self.rng, self.lexicon
        quantifier = _pick(rng, lexicon.quantifiers)
        kinds = (lexicon.nouns, lexicon.nouns, lexicon.nouns, lexicon.closed, lexicon.open)
        noun = _pick(rng, _pick(rng, kinds))
        adjectives = (0, 1, 2)[(rng.random() < 0.3) + (rng.random() < 0.1)]
        at = self.read(quantifier.source)
        at_noun = self.read(*(noun.linked if adjectives else noun.source))
        front: list[_Written] = []
        for left in reversed(range(adjectives)):
            adjective = _pick(rng, lexicon.adjectives)
            at_adjective = self.read(adjective.linked if left else adjective.source)
            front.insert(0, _Written(adjective.target[noun.gender], at_noun + at_adjective))
        first = _Written(quantifier.target[noun.gender], at + at_noun)
        return [first, *front, *(_Written(word, at_noun) for word in noun.target)], (at[0], quantifier.plural)

    def place(self) -> list[_Written]:
        """Source: noun phrase, postposition; target: preposition, noun phrase."""
        phrase, _ = self.noun_phrase()
        return self.word(self.lexicon.postpositions) + phrase

    def clause(self, front: bool, invert: bool = False) -> list[_Written]:
        """Source: [adverb] subject [place] [object] verb [place]; target: verb second, if inverted first."""
        rng, lexicon = self.rng, self.lexicon
        adverb = self.word(lexicon.adverbs) if front and rng.random() < 0.25 else []
        subject, (at_subject, plural) = self.noun_phrase()
        where = rng.random()
        place = self.place() if where < 0.1 else []
        thing = self.noun_phrase()[0] if rng.random() < 0.5 else []
        verb = _pick(rng, lexicon.split_verbs if rng.random() < 0.4 else lexicon.verbs)
        written = [_Written(verb.target[plural], (at_subject, *self.read(*verb.source)))]
        if where > 0.85:
            place = self.place()
        start = written + subject if adverb or invert else subject + written
        return adverb + start + thing + place

    def build(self) -> Pair:
        lexicon, kind = self.lexicon, self.rng.random()
        if kind < 0.2:
            target = self.word(lexicon.subordinators) + self.clause(front=False)
            target += self.word(lexicon.breaks) + self.clause(front=False, invert=True)
        else:
            target = self.clause(front=True)
            if kind < 0.4:
                target += self.word(lexicon.coordinators) + self.clause(front=True)
            elif kind < 0.6:
                target += self.word(lexicon.breaks[:1]) + self.word(lexicon.subordinators)
                target += self.clause(front=False)
        target += self.word(lexicon.ends)
        words, links = zip(*target, strict=True)
        return Pair(tuple(self.source), words, links)


def endless_pairs(seed: int, lexicon: Lexicon) -> Iterator[Pair]:
    rng = Random(seed)
    while True:
        yield _Sentence(rng, lexicon).build()


def pairs(count: int, seed: int, lexicon: Lexicon | None = None) -> Iterator[Pair]:
    """The first `count` pairs of a seed; short sentences may repeat."""
    return islice(endless_pairs(seed, lexicon or build_lexicon()), count)


def write(folder: Path, pairs: int, seed: int) -> None:
    """Write {train,valid,test}.{src,tgt} and test.needs, without any sentence twice in all splits together.

    The held-out sentences are drawn first, so they do not depend on the size of `train`.
    """
    if pairs < 1:
        raise UserError(f"the toy corpus needs at least 1 training pair, not {pairs}")
    stream, seen = endless_pairs(seed, build_lexicon()), set[tuple[str, ...]]()
    for split, count in (("test", HELD_OUT), ("valid", HELD_OUT), ("train", pairs)):
        drawn: list[Pair] = []
        while len(drawn) < count:
            if (pair := next(stream)).source not in seen:
                seen.add(pair.source)
                drawn.append(pair)
        write_lines(folder / f"{split}.src", (" ".join(pair.source) for pair in drawn))
        write_lines(folder / f"{split}.tgt", (" ".join(pair.target) for pair in drawn))
        if split == "test":
            write_lines(folder / "test.needs", (" ".join(map(str, pair.needs)) for pair in drawn))
