"""A live translation of unlimited length: source words in, target words out, which are never revised.

`SessionState` decides what to compute next, as requests for four operations, and never calls a model. The backend
of a `Session` carries out the requests of one session; a server carries out those of many sessions in one batch.

All units of a word are known when the word is added. The end mark is read when the sentence ends: after a word
that ends it, at `finish`, or at the length limit. Units and reads equal those of the batched loop.
"""

import abc
import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from whilst.core.settings import Recipe
from whilst.data.adapting import Truecaser, character_normaliser, lacks_case, truecaser
from whilst.data.literals import Glossary, Kind, Token, TokenReader
from whilst.data.sentences import ends_sentence, is_clause_end
from whilst.data.text import cleaner
from whilst.data.vocabulary import EOS, Language
from whilst.data.writer import SentenceSource, SourceWord, WordRules, Writer
from whilst.evaluation.metrics import average_lagging

MAX_UNITS = 128  # source units of a sentence with its end mark; longer sentences are rare in training
WORD_UNITS = 48  # units of one source word; the rest of a longer word is not translated
COMMA_SHARE = 0.75  # from this share of the length limit on, a comma ends the sentence too


@dataclass(frozen=True)
class Word:
    """A whole target word. Sentences count from 0, source words from 1."""

    text: str
    sentence: int
    position: int  # source words of the session that had been read
    delay: int  # source words of its sentence that had been read


@dataclass(frozen=True)
class SentenceEnd:
    sentence: int
    position: int  # source words of the session up to the end of this sentence
    length: int  # source words of this sentence


Event = Word | SentenceEnd


class Operation(enum.Enum):
    BEGIN = enum.auto()  # reset: a sentence begins
    READ = enum.auto()  # encode one source unit
    DECIDE = enum.auto()  # 1: WRITE next, 0: READ next; requested once after each READ or WRITE
    WRITE = enum.auto()  # decode one target unit


@dataclass(frozen=True)
class Request:
    operation: Operation
    unit: int = EOS  # READ: the unit to encode; DECIDE: the next unit of the same word, EOS if the word is whole
    banned: tuple[int, ...] = ()  # DECIDE and WRITE: units that must not be written next


class Backend(abc.ABC):
    """A model under a policy, with the caches of one sentence. The cost of an operation must not grow with time."""

    @abc.abstractmethod
    def run(self, request: Request) -> int:
        """The result: 0 or 1 for DECIDE, a unit for WRITE, 0 for the others."""


@dataclass(frozen=True)
class TextPipeline:
    """Converts words to units and back, and finds the ends of sentences."""

    source: Language
    target: Language
    clean: Callable[[str], str]  # as the training text was cleaned; the result may be several words, or none
    max_target_units: Callable[[int], int]  # limit by the number of source units; both include the end mark
    rules: WordRules
    max_units: int = MAX_UNITS  # source units of a sentence with the end mark
    ends_sentence: Callable[[str], bool] = ends_sentence
    truecase: Truecaser | None = None  # for words that come without case

    @classmethod
    def of(cls, recipe: Recipe, source: Language, target: Language) -> "TextPipeline":
        """The pipeline of a run."""
        clean, normalise = cleaner(recipe.data, recipe.data.source), character_normaliser(source.characters())

        def prepare(word: str) -> str:
            return clean(normalise(word))

        return cls(
            source,
            target,
            prepare,
            recipe.evaluate.limits.of,
            WordRules.of(recipe, source, target),
            truecase=None if recipe.data.lowercase else truecaser(source),
        )

    def with_glossary(self, glossary: Glossary) -> "TextPipeline":
        """The same pipeline with more terms."""
        literals = self.rules.literals.with_glossary(glossary)
        return replace(self, rules=replace(self.rules, literals=literals)) if glossary else self

    @property
    def longest(self) -> tuple[int, int]:
        """Most units of a source sentence and of a translation, with their end marks."""
        return self.max_units, self.max_target_units(self.max_units)


@dataclass
class SentenceState:
    """The state of one sentence. It begins with a READ; once its whole source is read, only WRITEs follow."""

    number: int
    writer: Writer
    source: SentenceSource
    start: int  # source words of the session before this sentence
    # (unit, number of its source word, source words that become known when the unit is read)
    unread: deque[tuple[int, int, list[SourceWord]]] = field(default_factory=deque)
    units: int = 0  # source units so far, the end mark included
    read: int = 0
    written: int = 0
    position: int = 0  # number of the source word of the last unit read
    last: int = 0  # number of the last source word
    complete: bool = False  # no more source follows
    begun: bool = False
    done: bool = False  # no more target follows
    write_next: bool | None = None  # the policy's decision; None: to be requested
    lacks_case: bool = False

    @property
    def following(self) -> int:
        """The next unit of the source word that was read last, or EOS if all of its units are read."""
        return self.unread[0][0] if self.unread and self.unread[0][1] == self.position else EOS

    def add(self, unit: int, word: int, known: list[SourceWord]) -> None:
        if not self.done:
            self.unread.append((unit, word, known))
        if not self.units:
            self.start = min(self.start, word - 1)  # the word may have begun in the sentence before
        self.units += 1
        self.last = word


class SessionState:
    """The source so far, and what to compute next. Holds the sentences that are not done: one, rarely two."""

    def __init__(self, text: TextPipeline) -> None:
        self.text = text
        self.source_words = 0
        self._reader = TokenReader(text.rules.literals)
        self.sentences: deque[SentenceState] = deque()
        self._next_number = 0
        self._open(start=0)

    def _open(self, start: int) -> None:
        rules = self.text.rules
        source = SentenceSource(self.text.source, rules.literals, self.text.clean)
        self.sentences.append(SentenceState(self._next_number, rules.writer(), source, start))
        self._next_number += 1

    def add_words(self, words: str) -> None:
        for raw in words.split():
            self.source_words += 1
            for token in self._reader.read(raw, self.source_words):
                self._add_token(token)

    def _add_token(self, token: Token) -> None:
        if token.kind is not Kind.WORD:
            self._add(token)
            return
        cleaned = self.text.clean(token.text).split()
        for word in cleaned:
            self._add(replace(token, text=word))
        if not cleaned and self.sentences[-1].units:  # nothing to translate, but it counts as a source word
            self.sentences[-1].last = token.number

    def _add(self, token: Token) -> None:
        room = self.text.max_units - 1  # without the end mark
        word_limit = min(WORD_UNITS, room)
        if self.sentences[-1].units + self._size(token, word_limit) > room:
            self._end_sentence()
        sentence = self.sentences[-1]
        shown, units = sentence.source.add(self._truecased(token), word_limit)
        for unit, known in units:
            sentence.add(unit, token.number, known)
        if sentence.units:
            sentence.last = token.number
        nearly_full = sentence.units >= COMMA_SHARE * room
        if self.text.ends_sentence(shown) or (nearly_full and is_clause_end(shown)):
            self._end_sentence()

    def _size(self, token: Token, word_limit: int) -> int:
        """The number of units of a token; for a literal a guess, as its stand-in has few units."""
        if token.kind is not Kind.WORD:
            return 4
        return len(self.text.source.encode([self._truecased(token).text])[:word_limit])

    def _truecased(self, token: Token) -> Token:
        sentence = self.sentences[-1]
        is_first = not sentence.units
        if is_first:
            sentence.lacks_case = lacks_case(token.text)
        if not self.text.truecase or token.kind is not Kind.WORD:
            return token
        return replace(token, text=self.text.truecase(token.text, is_first, sentence.lacks_case))

    def end_sentence(self) -> None:
        """End the current sentence, if it has words."""
        for token in self._reader.flush():
            self._add_token(token)
        self._end_sentence()

    def _end_sentence(self) -> None:
        sentence = self.sentences[-1]
        for unit, known in sentence.source.reveal() if not sentence.units else ():
            sentence.add(unit, self.source_words, known)
        if sentence.units:
            sentence.add(EOS, sentence.last, sentence.source.hidden())
            sentence.complete = True
            self._open(start=sentence.last)

    def next_request(self) -> Request | None:
        """The next operation of the first sentence; None if it needs more source."""
        sentence = self.sentences[0]
        if sentence.done or not sentence.units:
            return None
        if not sentence.begun:
            return Request(Operation.BEGIN)
        finished = sentence.complete and not sentence.unread
        if sentence.read and not finished and sentence.write_next is None:
            return Request(Operation.DECIDE, sentence.following, sentence.writer.banned())
        if finished or sentence.write_next:
            # An incomplete source gets at least its end mark, which the limit therefore counts.
            limit = self.text.max_target_units(sentence.units + (not sentence.complete))
            if sentence.written >= limit:
                return None
            return Request(Operation.WRITE, banned=sentence.writer.banned())
        return Request(Operation.READ, sentence.unread[0][0]) if sentence.unread else None

    def handle_result(self, request: Request, result: int) -> list[Event]:
        """Apply the result of the pending request; returns the events that it causes."""
        sentence = self.sentences[0]
        words: list[str] = []
        match request.operation:
            case Operation.BEGIN:
                sentence.begun = True
            case Operation.READ:
                _, sentence.position, known = sentence.unread.popleft()
                for word in known:
                    sentence.writer.read(word)
                sentence.read += 1
                sentence.write_next = None
            case Operation.DECIDE:
                sentence.write_next = bool(result)
            case Operation.WRITE:
                sentence.written += 1
                sentence.write_next = None
                words = sentence.writer.write(result)
                sentence.done = result == EOS
        return self._events(words) + self.close_finished()

    def _events(self, words: list[str]) -> list[Event]:
        sentence = self.sentences[0]
        delay = sentence.position - sentence.start
        return [Word(word, sentence.number, sentence.position, delay) for word in words]

    def close_finished(self) -> list[Event]:
        """End the first sentence if nothing remains to be done in it.

        Call it after every result and every change of the source.
        """
        sentence, events = self.sentences[0], list[Event]()
        if sentence.complete and not sentence.done:
            sentence.done = sentence.written >= self.text.max_target_units(sentence.units)  # at the length limit
        if sentence.done:
            events += self._events(sentence.writer.flush())
        if sentence.done and sentence.complete:
            self.sentences.popleft()
            events.append(SentenceEnd(sentence.number, sentence.last, sentence.last - sentence.start))
        return events


class Session:
    """A state and the backend that computes for it."""

    def __init__(self, backend: Backend, text: TextPipeline) -> None:
        self.backend = backend
        self.state = SessionState(text)

    def feed(self, words: str) -> list[Event]:
        """Add one or more source words; returns what can be written now."""
        self.state.add_words(words)
        return self._advance()

    def finish(self) -> list[Event]:
        """End the sentence and translate the rest of it. The next word begins another one."""
        self.state.end_sentence()
        return self._advance()

    def _advance(self) -> list[Event]:
        # A sentence whose last unit was written before its source ended is over only now.
        events = self.state.close_finished()
        while (request := self.state.next_request()) is not None:
            events += self.state.handle_result(request, self.run(request))
        return events

    def run(self, request: Request) -> int:
        return self.backend.run(request)


class Summary:
    """Counts and average lagging of a session.

    Lagging is in source words and uses the length of the translation. Its mean is over sentences.
    """

    def __init__(self) -> None:
        self.words = self.sentences = 0
        self._delays: list[int] = []  # of the current sentence
        self.lag_count = 0  # sentences that have a lag
        self._lag_sum = 0.0

    def add(self, event: Event) -> float | None:
        """Count an event; returns the average lagging if the event ends a sentence that has words."""
        if isinstance(event, Word):
            self.words += 1
            self._delays.append(event.delay)
            return None
        self.sentences += 1
        delays, self._delays = self._delays, []
        if not delays or not event.length:
            return None
        lag = average_lagging(delays, event.length, len(delays))
        self._lag_sum += lag
        self.lag_count += 1
        return lag

    @property
    def mean_lag(self) -> float | None:
        return self._lag_sum / self.lag_count if self.lag_count else None
