"""From the units of a translation to its words, guided by the source words that have been read. Knows no models."""

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
    """What is known once the last unit of a source word has been read."""

    text: str
    is_unknown: bool = False  # it has an unknown unit
    literal: Literal | None = None  # which is written in its place


class Writer:
    """The target words of one sentence."""

    def __init__(self, target: Language, copy: bool, repeats: CompletingUnits | None = None) -> None:
        """`copy`: see `WordBuffer`; `repeats`: ban units that would repeat a phrase too often."""
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
        """Units that must not be written next."""
        return tuple(self._guard.banned(self._buffer.begun, self._buffer.unknown)) if self._guard else ()

    def write(self, unit: int) -> list[str]:
        """The words that this unit completes."""
        words = self._buffer.feed(unit)
        if self._guard:
            self._guard.write(words)
        self._written += 1
        return self._restorer.restore(words, self._written)

    def flush(self) -> list[str]:
        """The words that are complete as the sentence ends."""
        words = self._buffer.flush()
        if self._guard and any(map(self._guard.would_repeat, words)):  # a word without its last unit
            words = []
        return self._restorer.flush(words)


class SentenceSource:
    """The units of one sentence, and what is known once each of them has been read."""

    def __init__(self, source: Language, literals: Literals, clean: Callable[[str], str] = str) -> None:
        self._source, self._clean = source, clean
        self._stand_ins = StandIns(literals)
        self._hidden: list[SourceWord] = []  # since the last unit, words that the model does not see
        self.count = 0

    def add(self, token: Token, most: int | None = None) -> tuple[str, list[tuple[int, list[SourceWord]]]]:
        """What the model reads of a token, and its units, each with the words that are known once it has been read.

        At most `most` units for each word. What the model does not see becomes known with the next unit.
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
            found = self._source.encode([word])[:most]
            mine = literal if literal and literal.stand_in in word else None
            known = SourceWord(word, UNK in found, mine)
            units += [(unit, []) for unit in found[:-1]] + [(found[-1], [known])]
        if units:
            units[0] = units[0][0], self.hidden() + units[0][1]
        self.count += len(units)
        return shown, units

    def reveal(self) -> list[tuple[int, list[SourceWord]]]:
        """As `add`, of hidden words only: they get a stand-in, so that a sentence of emoji is one."""
        stand_in = self._stand_ins.choose(Token(0, "", Kind.NAME)) if self._hidden else ""
        if not stand_in:
            return []
        first, *others = self.hidden()
        assert first.literal is not None
        shown = SourceWord(stand_in, literal=replace(first.literal, stand_in=stand_in))
        [*units, last] = self._source.encode([stand_in])
        return [*((unit, list[SourceWord]()) for unit in units), (last, [shown, *others])]

    def hidden(self) -> list[SourceWord]:
        """The words that become known with the next unit."""
        hidden, self._hidden = self._hidden, []
        return hidden


@dataclass(frozen=True)
class KnownSource:
    """A whole sentence: its units without the end mark, the number of the word of each, what they make known."""

    units: list[int]
    numbers: list[int]
    words: list[tuple[int, SourceWord]]  # by the number of units with which they are known


class GuidedWriter:
    """A writer beside the decoding of a known source."""

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
    """How the words of a model's text become units, and its units words."""

    source: Language
    target: Language
    copy: bool = False  # unknown words of the source in place of unknown units
    repeats: CompletingUnits | None = None  # to ban what would repeat a phrase too often
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
        """`words` are cleaned."""
        reader, sentence = TokenReader(self.literals), SentenceSource(self.source, self.literals)
        tokens = [token for number, word in enumerate(words, start=1) for token in reader.read(word, number)]
        found = KnownSource([], [], [])
        for token in tokens + reader.flush():
            for unit, known in sentence.add(token)[1]:
                found.units.append(unit)
                found.numbers.append(token.number)
                found.words.extend((len(found.units), word) for word in known)
        found.words.extend((len(found.units) + 1, word) for word in sentence.hidden())
        return found
