"""Turn the units of a translation into words: copy unknown words and literals from the source, ban repetitions."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from whilst.core.settings import Recipe
from whilst.data.literals import Kind, Literal, Literals, Restorer, StandIns, Token, TokenReader, read_glossary
from whilst.data.repeats import CompletingUnits, RepeatGuard
from whilst.data.vocabulary import EOS, UNK, Language, WordBuffer


@dataclass(frozen=True)
class SourceWord:
    """A source word, as a `Writer` reads it once the last unit of the word has been read."""

    text: str
    is_unknown: bool = False  # whether it has an unknown unit
    literal: Literal | None = None  # the literal that is written in its place


class Writer:
    """Turns the target units of one sentence into words."""

    def __init__(self, target: Language, copy: bool, repeats: CompletingUnits | None = None) -> None:
        """`copy`: see `WordBuffer`. With `repeats`, units that would repeat a phrase too often are banned."""
        self._buffer = WordBuffer(target, copy)
        self._guard = repeats and RepeatGuard(repeats)
        self._restorer = Restorer()
        self._written = 0

    def read(self, word: SourceWord) -> None:
        if word.literal:
            self._restorer.read(word.literal)
        elif word.is_unknown:
            self._buffer.add_unknown(word.text)
        if self._guard and word.text:
            self._guard.read(word.text)

    def banned(self) -> tuple[int, ...]:
        """The units that must not be written next."""
        return tuple(self._guard.banned(self._buffer.begun, self._buffer.unknown)) if self._guard else ()

    def write(self, unit: int) -> list[str]:
        """The words that this unit completes."""
        words = self._buffer.feed(unit)
        if self._guard:
            self._guard.write(words)
        self._written += 1
        return self._restorer.restore(words, self._written)

    def flush(self) -> list[str]:
        """The words that the end of the sentence completes."""
        words = self._buffer.flush()
        if self._guard and any(map(self._guard.would_repeat, words)):  # possible if the word lacks its last unit
            words = []
        return self._restorer.flush(words)


class SentenceSource:
    """Turns the tokens of one sentence into units, each with the words that are known once it has been read.

    The model does not see literals without a stand-in. These hidden words become known with the next unit.
    """

    def __init__(self, source: Language, literals: Literals, clean: Callable[[str], str] = str) -> None:
        self._source, self._clean = source, clean
        self._stand_ins = StandIns(literals)
        self._hidden: list[SourceWord] = []  # hidden words since the last unit
        self.count = 0  # units so far

    def add(self, token: Token, most: int | None = None) -> tuple[str, list[tuple[int, list[SourceWord]]]]:
        """The text that the model reads for a token, and its units, each with the words that become known.

        At most `most` units for each word.
        """
        literal = self._stand_ins.literal(token, self.count)
        if literal and not literal.stand_in:
            self._hidden.append(SourceWord("", literal=literal))
            return token.text + token.after, []
        text = f"{token.before}{literal.stand_in}{token.after}" if literal else token.text
        shown = self._clean(text) if literal else text
        words = shown.split()
        units: list[tuple[int, list[SourceWord]]] = []
        for word in words:
            ids = self._source.encode([word])[:most]
            known = SourceWord(word, UNK in ids, literal if literal and literal.stand_in in word else None)
            units += [(unit, []) for unit in ids[:-1]] + [(ids[-1], [known])]
        if units:
            units[0] = units[0][0], self.hidden() + units[0][1]
        self.count += len(units)
        return shown, units

    def reveal(self) -> list[tuple[int, list[SourceWord]]]:
        """Units of a stand-in for the hidden words, so that a sentence of emoji alone has some; see `add`."""
        stand_in = self._stand_ins.choose(Token(0, "", Kind.NAME)) if self._hidden else ""
        if not stand_in:
            return []
        first, *others = self.hidden()
        assert first.literal is not None
        shown = SourceWord(stand_in, literal=replace(first.literal, stand_in=stand_in))
        [*units, last] = self._source.encode([stand_in])
        return [*((unit, list[SourceWord]()) for unit in units), (last, [shown, *others])]

    def hidden(self) -> list[SourceWord]:
        """Take the hidden words, which become known with the next unit."""
        hidden, self._hidden = self._hidden, []
        return hidden


@dataclass(frozen=True)
class KnownSource:
    """A whole source sentence."""

    units: list[int]  # without the end mark
    numbers: list[int]  # of each unit: the number of its word, from 1
    words: list[tuple[int, SourceWord]]  # each with the number of units after which it is known


class GuidedWriter:
    """A writer for the decoding of a known source: it reads the source words that the model has read."""

    def __init__(self, writer: Writer, source: KnownSource) -> None:
        self.writer, self._words = writer, deque(source.words)

    def _read(self, count: int) -> None:
        while self._words and self._words[0][0] <= count:
            self.writer.read(self._words.popleft()[1])

    def banned(self, read: int) -> tuple[int, ...]:
        """The units that must not be written next, after so many source units have been read."""
        self._read(read)
        return self.writer.banned()

    def write(self, unit: int, read: int) -> list[str]:
        """The words that are complete with this unit, or with the end mark."""
        self._read(read)
        if unit == EOS:
            return self.writer.flush()
        return self.writer.write(unit)


@dataclass(frozen=True)
class WordRules:
    """How a model's source words become units, and its target units words."""

    source: Language
    target: Language
    copy: bool = False  # write unknown source words in place of unknown units
    repeats: CompletingUnits | None = None  # ban units that would repeat a phrase too often
    literals: Literals = field(default_factory=Literals)

    @classmethod
    def of(cls, recipe: Recipe, source: Language, target: Language) -> "WordRules":
        guards = recipe.evaluate.guards
        repeats = CompletingUnits(target) if "repeats" in guards else None
        literals = Literals.of(source, target, recipe.data.lowercase, patterns="literals" in guards)
        if recipe.evaluate.glossary:
            literals = literals.with_glossary(read_glossary(Path(recipe.evaluate.glossary)))
        return cls(source, target, recipe.evaluate.unknown == "copy", repeats, literals)

    def writer(self) -> Writer:
        return Writer(self.target, self.copy, self.repeats)

    def known_source(self, words: Sequence[str]) -> KnownSource:
        """The units of a sentence of cleaned words."""
        reader, sentence = TokenReader(self.literals), SentenceSource(self.source, self.literals)
        tokens = [token for number, word in enumerate(words, start=1) for token in reader.read(word, number)]
        source = KnownSource([], [], [])
        for token in tokens + reader.flush():
            for unit, known in sentence.add(token)[1]:
                source.units.append(unit)
                source.numbers.append(token.number)
                source.words.extend((len(source.units), word) for word in known)
        source.words.extend((len(source.units) + 1, word) for word in sentence.hidden())
        return source
