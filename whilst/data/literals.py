"""Words that are written as they are: numbers, addresses, code, emoji, unknown scripts, and terms of a glossary.

In place of such a word the model reads a name or a number that it is known to copy, a stand-in; where it writes the
stand-in, the word itself is written. Models therefore need no training for this. Knows no models.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path

from whilst.core.errors import UserError
from whilst.data.adapting import character_normaliser
from whilst.data.sentences import CLOSING, OPENING, STOPS
from whilst.data.text import read_lines
from whilst.data.vocabulary import UNK, Language

NAMES = (
    *("Google", "Einstein", "Twitter", "London", "Harvard", "YouTube"),
    *("Boston", "Paris", "Berlin", "Peter", "Martin", "Maria"),
)
NUMBERS = ["30", "15", "25", "40", "18", "12", "50", "60"]
YEARS = ["2005", "2010", "1990", "2000"]
LONGEST_WORD = 60  # characters; a longer one is a literal
LONGEST_CODE = 12  # words between two backticks

_CLOSING = STOPS + CLOSING
_POSSESSIVE = re.compile(r"['’]s$")  # noqa: RUF001
_EMOJI = "\U0001f000-\U0001fbff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\u00a9\u00ae\u2122"
EMOJI = re.compile(f"([{_EMOJI}][{_EMOJI}\ufe0f\u200d]*|[:;=8]-?[()DPp])")
NUMBER = re.compile(r"[+\-−#$€£¥₫±~≈<>]*\(?\d[\d.,:/()+×\-–−]*[%‰°′″$€£¥₫]*")  # noqa: RUF001
YEAR = re.compile(r"(1[5-9]|20)\d\d")
VERBATIM = re.compile(
    r"""(?x)
    [a-z]+://\S+ | www\.\S+ | [\w.+-]+@[\w-]+(\.[\w-]+)+                               # addresses
    | [\w-]+(\.[\w-]+)*\.(com|org|net|edu|gov|io|eu|uk|vn)(/\S*)? | [@\#]\w+
    | [\w.-]+\.(py|js|ts|c|h|rs|sh|txt|pdf|csv|json|toml|yaml|html|md|exe|zip|jpg|png)  # files
    | [~.]{0,2}/[\w./-]+ | [A-Za-z]:\\\S+
    | [^<>\s]*<[^<>\s]+>\S*                                                           # tags
    | `[^`]*` | --?[a-z][\w-]* | \w+\([^\s]*\) | \w*_\w+ | \w+(::\w+)+ | [a-z]+[A-Z]\w* | [A-Z](\+\+|\#)  # code
    | (?=[^\s]*\d)(?=[^\s]*[A-Z])[\w./-]+ | [A-Z]{2,}-[A-Z]+                            # such as F-16, USB-C
    """
)


class Kind(Enum):
    WORD = auto()  # for the model
    NAME = auto()  # a literal with a name as its stand-in
    NUMBER = auto()
    EMOJI = auto()  # a literal without a stand-in
    TERM = auto()  # of the glossary


@dataclass(frozen=True)
class Token:
    """A part of the source: a word, a literal in it, or several words that are a term."""

    number: int  # of its last word
    text: str  # of a literal: what is written
    kind: Kind = Kind.WORD
    before: str = ""  # punctuation
    after: str = ""


@dataclass(frozen=True)
class Literal:
    text: str
    stand_in: str = ""  # empty: the model does not see it
    follows: bool = False  # directly after another literal, it is written directly after that one
    place: int = 0  # number of source units before it; it is written after as many target units


def split(word: str) -> tuple[str, str, str]:
    """Punctuation, the word itself, punctuation."""
    core = word.lstrip(OPENING)
    before, rest = word[: len(word) - len(core)], core
    core = rest.rstrip(_CLOSING)
    core = _POSSESSIVE.sub("", core)
    core += ")" * ("(" in core and rest[len(core) :].startswith(")"))  # as in main()
    return before, core, rest[len(core) :]


Glossary = Mapping[tuple[str, ...], str]  # words of a term, case-folded -> what is written


def make_glossary(terms: Iterable[tuple[str, str]]) -> Glossary:
    """An empty translation, or one that is the term, means that it stays as it is in the source."""
    return {
        tuple(source.casefold().split()): "" if target.strip() == source.strip() else " ".join(target.split())
        for source, target in terms
        if source.split()
    }


def read_glossary(path: Path) -> Glossary:
    rows = [line.rstrip("\r").split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) > 2 or not row[0].strip():
            if row == [""]:
                continue
            how = "write term, tab, translation; without a translation the term stays as it is"
            raise UserError(f"{path}:{number}: not an entry of a glossary; {how}")
    return make_glossary((row[0], row[1] if len(row) == 2 else "") for row in rows)


@dataclass(frozen=True)
class Literals:
    """What is a literal for a model."""

    known: frozenset[str] = frozenset()  # characters of its source
    names: tuple[str, ...] = ()  # stand-ins
    numbers: tuple[str, ...] = ()
    years: tuple[str, ...] = ()
    is_copied: Callable[[str], bool] = lambda _: False  # whether the model knows the word as one unit on both sides
    patterns: bool = False  # find literals that are in no glossary
    glossary: Glossary = field(default_factory=dict)

    @classmethod
    def of(cls, source: Language, target: Language, lowercase: bool, patterns: bool) -> "Literals":
        def is_copied(word: str) -> bool:
            sides = [language.encode([word]) for language in (source, target)]
            return all(len(units) == 1 and UNK not in units for units in sides)

        known = source.characters()
        names, numbers, years = (
            tuple(filter(is_copied, (name.lower() if lowercase else name for name in pool)))
            for pool in (NAMES, NUMBERS, YEARS)
        )
        return cls(known, names, numbers, years, is_copied, patterns)

    def with_glossary(self, glossary: Glossary) -> "Literals":
        """With its terms, which come before those that are there."""
        return replace(self, glossary={**self.glossary, **glossary})

    def find(self, word: str, number: int) -> Token:
        """The token of a word without emoji."""
        before, core, after = split(word)
        if self.patterns and core:
            if NUMBER.fullmatch(core):
                if not self.is_copied(core):
                    return Token(number, core, Kind.NUMBER, before, after)
            elif len(core) > LONGEST_WORD or VERBATIM.fullmatch(core) or self._is_foreign(core):
                return Token(number, core, Kind.NAME, before, after)
        return Token(number, word)

    def _is_foreign(self, core: str) -> bool:
        return not self.known.issuperset(core) and not self.known.issuperset(character_normaliser(self.known)(core))


class TokenReader:
    """Source words to tokens, across sentences. Words that may begin a term wait for the next word."""

    def __init__(self, literals: Literals) -> None:
        self._literals = literals
        self._waiting: list[tuple[int, str]] = []
        self._code = 0  # words since a backtick
        terms = literals.glossary
        self._beginnings = {term[:count] for term in terms for count in range(1, len(term))}

    def read(self, word: str, number: int) -> list[Token]:
        self._waiting.append((number, word))
        return self._tokens(is_last=False)

    def flush(self) -> list[Token]:
        self._code = 0
        return self._tokens(is_last=True)

    def _tokens(self, is_last: bool) -> list[Token]:
        tokens: list[Token] = []
        while self._waiting:
            term = self._term(len(self._waiting))
            if term in self._beginnings and not is_last:
                break
            counts = range(len(self._waiting), 0, -1)
            count = next((n for n in counts if self._term(n) in self._literals.glossary), 0)
            words, self._waiting = self._waiting[: count or 1], self._waiting[count or 1 :]
            tokens += [self._as_term(words)] if count else self._of_word(*words[0][::-1])
        return tokens

    def _term(self, count: int) -> tuple[str, ...]:
        """The first words that wait, without punctuation around them; empty if there is some between them."""
        parts = [split(word) for _, word in self._waiting[:count]]
        between = any(after for _, _, after in parts[:-1]) or any(before for before, _, _ in parts[1:])
        return () if between else tuple(core.casefold() for _, core, _ in parts)

    def _as_term(self, words: Sequence[tuple[int, str]]) -> Token:
        parts = [split(word) for _, word in words]
        cores = [core for _, core, _ in parts]
        written = self._literals.glossary[tuple(map(str.casefold, cores))] or " ".join(cores)
        return Token(words[-1][0], written, Kind.TERM, parts[0][0], parts[-1][2])

    def _of_word(self, word: str, number: int) -> list[Token]:
        if not self._literals.patterns:
            return [Token(number, word)]
        if self._code or (word.lstrip(OPENING).startswith("`") and word.count("`") == 1):
            closed = self._code and "`" in word
            self._code = 0 if closed or self._code == LONGEST_CODE else self._code + 1
            core = word.rstrip(_CLOSING) if closed else word
            return [Token(number, core, Kind.NAME, after=word[len(core) :])]
        parts = [part for part in EMOJI.split(word) if part]
        return [
            Token(number, part, Kind.EMOJI) if EMOJI.fullmatch(part) else self._literals.find(part, number)
            for part in parts
        ]


class StandIns:
    """Those of one sentence."""

    def __init__(self, literals: Literals) -> None:
        self._literals = literals
        self._used: set[str] = set()  # stand-ins, and words of the source
        self._active: dict[str, str] = {}  # what each stands for
        self._last: Token | None = None  # if it is a literal

    def literal(self, token: Token, units: int) -> Literal | None:
        """How a token is written, if it is a literal; `units`: of the sentence before it."""
        last, self._last = self._last, None if token.kind is Kind.WORD else token
        if token.kind is Kind.WORD:
            core = split(token.text)[1]
            if core not in self._active:
                self._used.add(core)
                return None
            token = replace(token, text=core, kind=Kind.NAME)  # what stands for something else
        joined = last is not None and last.kind is token.kind and not last.after and not token.before
        if token.kind is Kind.EMOJI or (joined and token.kind is not Kind.TERM):
            return Literal(token.text + token.after, follows=joined, place=units)
        same = (name for name, text in self._active.items() if text == token.text)
        stand_in = next(same, "") or self.choose(token)
        return Literal(token.text if stand_in else token.text + token.after, stand_in, place=units)

    def choose(self, token: Token) -> str:
        """A stand-in that is not in the sentence so far; empty if none is left."""
        pools = self._literals
        is_number = token.kind is Kind.NUMBER
        pool = (pools.years if YEAR.fullmatch(token.text) else ()) + pools.numbers if is_number else ()
        for name in (*pool, *pools.names):
            if name not in self._used:
                self._used.add(name)
                self._active[name] = token.text
                return name
        return ""


class Restorer:
    """Writes the literals of one sentence in place of their stand-ins."""

    def __init__(self) -> None:
        self._read: dict[str, Literal] = {}  # by stand-in
        self._missing: list[Literal] = []  # not written so far
        self._last = ""  # word written

    def read(self, literal: Literal) -> None:
        if literal.stand_in in self._read:  # said again
            return
        self._missing.append(literal)
        if literal.stand_in:
            self._read[literal.stand_in] = literal

    def restore(self, words: Sequence[str], units: int) -> list[str]:
        """Whole target words, after so many units."""
        found: list[str] = []
        for word in words:
            found += self._restored(word).split()
            found += self._due(units)
            self._last = found[-1] if found else self._last
        return found

    def _restored(self, word: str) -> str:
        for stand_in, literal in self._read.items():
            ends = (r"(?<!\d)", r"(?!\d)") if stand_in.isdigit() else (r"(?<!\w)", r"(?=s?(?!\w))")
            parts = re.split(stand_in.join(ends), word)
            if len(parts) > 1 and literal in self._missing:
                self._missing.remove(literal)
            word = literal.text.join(parts)
        return word

    def _due(self, units: int) -> list[str]:
        """Literals without a stand-in whose place has been reached."""
        found: list[str] = []
        while self._missing and not (first := self._missing[0]).stand_in:
            if not (first.follows or first.place <= units):
                break
            found.append(self._missing.pop(0).text)
        return found

    def flush(self, words: Sequence[str]) -> list[str]:
        """At the end: the last words, and all literals that the model has not written, before a full stop."""
        found = self.restore(words, 1 << 30)
        last = self._last.rstrip(_CLOSING)
        missing, self._missing = [literal.text for literal in self._missing if literal.text != last], []
        if missing and found and (stop := found[-1][len(found[-1].rstrip(_CLOSING)) :]) and found[-1] != stop:
            found[-1] = found[-1].removesuffix(stop)
            missing[-1] += stop
        return found + missing
