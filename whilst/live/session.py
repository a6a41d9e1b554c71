"""One live translation without end: words in, words out that are never taken back. Knows words and sentences.

Of a model it knows only the four steps that it asks for (`Steps`), so that any engine can do them, or one batch of
many sessions. What remains to do is in `Script`, which never calls a model; `Session` is a script with its model.

A word's sub-words are all known when the word is fed, and nothing is read before that. The end mark is read when
the sentence is over: at a word that ends one, at `finish`, or where the longest sentence ends. What a sentence
becomes is what the batched loop (loop.py) makes of it, reads included.
"""

import abc
import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from whilst.core.errors import UserError
from whilst.core.settings import Recipe
from whilst.data.characters import character_normaliser
from whilst.data.sentences import ends_sentence, is_clause_end, never_ends
from whilst.data.text import cleaner
from whilst.data.truecasing import Truecaser, lacks_case, truecaser
from whilst.data.vocabulary import EOS, Language, WordBuffer

LONGEST = 128  # units of a sentence, the end mark counted: longer ones are rare in training
PAUSE = 0.75  # from this share of the longest sentence on, a comma ends it too: better there than amid a phrase


@dataclass(frozen=True)
class Word:
    """A whole word of the translation. Sentences count from 0, source words from 1."""

    text: str
    sentence: int
    position: int  # source words of the session that had been read when it was whole
    delay: int  # those of its own sentence


@dataclass(frozen=True)
class End:
    """A sentence has been translated."""

    sentence: int
    position: int  # source words of the session up to its end
    length: int  # its source words


Event = Word | End


class Step(enum.Enum):
    """What a model can be asked to do."""

    BEGIN = enum.auto()  # forget what was before: a sentence begins
    READ = enum.auto()  # a source unit
    DECIDE = enum.auto()  # whether to WRITE (1) or to READ (0) next; asked once after an action
    WRITE = enum.auto()  # a target unit, which is the answer


@dataclass(frozen=True)
class Ask:
    step: Step
    unit: int = EOS  # to READ


class Steps(abc.ABC):
    """A model and a policy, with what they remember of one sentence. No step may cost more the later it comes."""

    @abc.abstractmethod
    def begin(self) -> None: ...

    @abc.abstractmethod
    def read(self, unit: int) -> None: ...

    @abc.abstractmethod
    def decide(self) -> bool: ...

    @abc.abstractmethod
    def write(self) -> int: ...

    def do(self, ask: Ask) -> int:
        """The answer to WRITE and DECIDE; 0 otherwise."""
        match ask.step:
            case Step.BEGIN:
                self.begin()
            case Step.READ:
                self.read(ask.unit)
            case Step.DECIDE:
                return int(self.decide())
            case Step.WRITE:
                return self.write()
        return 0


@dataclass(frozen=True)
class Text:
    """How words become units and units words, and where sentences end."""

    source: Language
    target: Language
    clean: Callable[[str], str]  # as the training text was (text.cleaner), in characters that it had
    most: Callable[[int], int]  # units of a translation, by the units of its source with the end mark
    longest: int = LONGEST  # units of a sentence, the end mark counted
    ends: Callable[[str], bool] = ends_sentence
    copy: bool = False  # whether names of the source stand in for unknown words
    case: Truecaser | None = None  # for words that come without case; None: they are as they should be

    @classmethod
    def of(
        cls, recipe: Recipe, source: Language, target: Language, longest: int = LONGEST, by_lines: bool = False
    ) -> "Text":
        """That of a run; `by_lines`: only `finish` ends a sentence, or that it is the longest."""
        clean, plain = cleaner(recipe.data, recipe.data.source), character_normaliser(source.characters())
        ends, evaluate = never_ends if by_lines else ends_sentence, recipe.evaluate

        def both(word: str) -> str:
            return clean(plain(word))

        case = None if recipe.data.lowercase else truecaser(source)
        return cls(source, target, both, evaluate.limits.of, longest, ends, evaluate.copies, case)

    def __post_init__(self) -> None:
        if self.longest < 2:
            raise UserError(f"a longest sentence of {self.longest} units leaves no room for a word; give 2 or more")


@dataclass
class Sentence:
    """A sentence under way. The first READ is given; when the source is finished, it WRITEs."""

    number: int
    buffer: WordBuffer
    # Units to READ, each with its word's number, and the word itself if it is a name and this is its end.
    waiting: deque[tuple[int, int, str]] = field(default_factory=deque)
    known: int = 0  # source units, the end mark counted
    read: int = 0
    written: int = 0
    before: int = 0  # source words of the session before its first
    position: int = 0  # the word of the last unit read
    last: int = 0  # the last word
    over: bool = False  # nothing more will come
    begun: bool = False
    done: bool = False  # nothing more will be written
    wants: bool | None = None  # to WRITE; None until asked after an action
    loose: bool = False  # whether its words have no case

    def add(self, unit: int, word: int, name: str = "") -> None:
        if not self.done:  # who has written the end mark does not read on
            self.waiting.append((unit, word, name))
        if not self.known:
            self.before = min(self.before, word - 1)  # a word longer than any sentence is in several
        self.known += 1
        self.last = word

    def next(self, most: Callable[[int], int]) -> Ask | None:
        """What to ask for now; None if more source must come first, or if it is done."""
        if self.done or not self.known:
            return None
        if not self.begun:
            return Ask(Step.BEGIN)
        finished = self.over and not self.waiting
        if self.read and not finished and self.wants is None:
            return Ask(Step.DECIDE)
        if finished or self.wants:
            # The source has at least an end mark more than what is known: so much may be written in any case.
            return Ask(Step.WRITE) if self.written < most(self.known + (not self.over)) else None
        return Ask(Step.READ, self.waiting[0][0]) if self.waiting else None


class Script:
    """What a live translation has been told, and what is to be done next. Holds one sentence, seldom two."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.fed = 0  # source words
        self.sentences: deque[Sentence] = deque()
        self.number = 0  # of the next sentence
        self._open(before=0)

    def _open(self, before: int) -> None:
        buffer = self.text.target.word_buffer(self.text.copy)
        self.sentences.append(Sentence(self.number, buffer, before=before))
        self.number += 1

    def put(self, words: str) -> None:
        """More source: a word, or several."""
        for raw in words.split():
            self.fed += 1
            found = self.text.clean(raw).split()
            for word in found:
                self._add(word)
            if not found and self.sentences[-1].known:  # there is nothing to translate in it, but it was said
                self.sentences[-1].last = self.fed

    def _add(self, word: str) -> None:
        given, word = word, self._recased(word)
        units = self.text.source.encode([word])[0]
        room = self.text.longest - 1  # without the end mark
        if self.sentences[-1].known + len(units) > room:
            self.end()
            word = self._recased(given)  # the first word of a sentence now
            units = self.text.source.encode([word])[0]
        ends = dict(self.text.source.unknown_words([word]))
        for place, unit in enumerate(units):
            if place and place % room == 0:  # a word longer than any sentence
                self.end()
            self.sentences[-1].add(unit, self.fed, ends.get(place + 1, ""))
        long = self.sentences[-1].known >= PAUSE * room
        if self.text.ends(word) or (long and is_clause_end(word)):
            self.end()

    def _recased(self, word: str) -> str:
        sentence = self.sentences[-1]
        first = not sentence.known
        if first:
            sentence.loose = lacks_case(word)
        return self.text.case(word, first, sentence.loose) if self.text.case else word

    def end(self) -> None:
        """The sentence ends here; an empty one is none."""
        sentence = self.sentences[-1]
        if sentence.known:
            sentence.add(EOS, sentence.last)
            sentence.over = True
            self._open(before=sentence.last)

    def next(self) -> Ask | None:
        return self.sentences[0].next(self.text.most)

    def answer(self, ask: Ask, result: int) -> list[Event]:
        """What came of a step: whole words, and perhaps the sentence's end."""
        sentence = self.sentences[0]
        words: list[str] = []
        match ask.step:
            case Step.BEGIN:
                sentence.begun = True
            case Step.READ:
                _, sentence.position, name = sentence.waiting.popleft()
                if name:
                    sentence.buffer.add_unknown(name)
                sentence.read += 1
                sentence.wants = None
            case Step.DECIDE:
                sentence.wants = bool(result)
            case Step.WRITE:
                sentence.written += 1
                sentence.wants = None
                words = sentence.buffer.feed(result)
                sentence.done = result == EOS
        return self._words(words) + self.settle()

    def _words(self, words: list[str]) -> list[Event]:
        at = self.sentences[0]
        return [Word(word, at.number, at.position, at.position - at.before) for word in words]

    def settle(self) -> list[Event]:
        """Close the first sentence if nothing is left to do in it."""
        sentence, events = self.sentences[0], list[Event]()
        if sentence.over and not sentence.done:
            sentence.done = sentence.written >= self.text.most(sentence.known)  # cut, as it does not end
        if sentence.done:
            events += self._words(sentence.buffer.flush())
        if sentence.done and sentence.over:
            self.sentences.popleft()
            events.append(End(sentence.number, sentence.last, sentence.last - sentence.before))
        return events


class Session:
    """A script with its model. Sessions share models and policies, which remember nothing of them."""

    def __init__(self, steps: Steps, text: Text) -> None:
        self.steps = steps
        self.script = Script(text)

    @property
    def fed(self) -> int:
        """Source words so far."""
        return self.script.fed

    def feed(self, word: str) -> list[Event]:
        """Tell one more word (or several): what can be written now."""
        self.script.put(word)
        return self._go_on()

    def finish(self) -> list[Event]:
        """The sentence ends here: the rest of it. The next word begins another one."""
        self.script.end()
        return self._go_on()

    def _go_on(self) -> list[Event]:
        # A sentence may be over already when its end becomes known: it had written the end mark, or all it may.
        events = self.script.settle()
        while (ask := self.script.next()) is not None:
            events += self.script.answer(ask, self.steps.do(ask))
        return events
