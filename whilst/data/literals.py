"""Copy literals to the translation: numbers, addresses, code, emoji, unknown scripts, and terms of a glossary.

In place of a literal, the model reads a stand-in: a name or a number that the model is known to copy. Where the
model writes the stand-in, the literal is written. So models need no training for literals.
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
    WORD = auto()  # translated by the model
    NAME = auto()  # a literal with a name as its stand-in
    NUMBER = auto()
    EMOJI = auto()  # a literal without a stand-in
    TERM = auto()  # of the glossary


@dataclass(frozen=True)
class Token:
    """A part of the source: a word, a literal in it, or several words that are a term."""

    number: int  # of its last word
    text: str  # of a literal: the text to write
    kind: Kind = Kind.WORD
    before: str = ""  # punctuation
    after: str = ""


@dataclass(frozen=True)
class Literal:
    text: str
    stand_in: str = ""  # empty: the model does not see the literal
    follows: bool = False  # directly follows another literal in the source, and therefore in the target
    place: int = 0  # number of source units before it; without a stand-in, it is written after as many target units


def split(word: str) -> tuple[str, str, str]:
    """Split a word into leading punctuation, the word itself and trailing punctuation."""
    core = word.lstrip(OPENING)
    before, rest = word[: len(word) - len(core)], core
    core = rest.rstrip(_CLOSING)
    core = _POSSESSIVE.sub("", core)
    core += ")" * ("(" in core and rest[len(core) :].startswith(")"))  # keep the bracket of main()
    return before, core, rest[len(core) :]


Glossary = Mapping[tuple[str, ...], str]  # case-folded words of a term -> text to write


def make_glossary(terms: Iterable[tuple[str, str]]) -> Glossary:
    """A glossary of (term, translation). A term is copied if its translation is empty or equal to it."""
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
            advice = "write term, tab, translation; without a translation the term stays as it is"
            raise UserError(f"{path}:{number}: not an entry of a glossary; {advice}")
    return make_glossary((row[0], row[1] if len(row) == 2 else "") for row in rows)


@dataclass(frozen=True)
class Literals:
    """Decides which words are literals for a model, and has the stand-ins that the model copies."""

    known: frozenset[str] = frozenset()  # characters of the source vocabulary
    names: tuple[str, ...] = ()  # stand-ins, as are `numbers` and `years`
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
        """Add the terms of a glossary; they override existing ones."""
        return replace(self, glossary={**self.glossary, **glossary})

    def find(self, word: str, number: int) -> Token:
        """The token for a word without emoji."""
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
    """Turns source words into tokens, across sentences. Words that may begin a term wait for the next word."""

    def __init__(self, literals: Literals) -> None:
        self._literals = literals
        self._waiting: list[tuple[int, str]] = []  # number and word
        self._code = 0  # words since an opening backtick; 0: not in code
        terms = literals.glossary
        self._term_prefixes = {term[:count] for term in terms for count in range(1, len(term))}

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
            if term in self._term_prefixes and not is_last:
                break
            counts = range(len(self._waiting), 0, -1)
            count = next((n for n in counts if self._term(n) in self._literals.glossary), 0)
            words, self._waiting = self._waiting[: count or 1], self._waiting[count or 1 :]
            tokens += [self._term_token(words)] if count else self._word_tokens(*words[0])
        return tokens

    def _term(self, count: int) -> tuple[str, ...]:
        """The first `count` waiting words without punctuation around them; empty if there is some between them."""
        parts = [split(word) for _, word in self._waiting[:count]]
        between = any(after for _, _, after in parts[:-1]) or any(before for before, _, _ in parts[1:])
        return () if between else tuple(core.casefold() for _, core, _ in parts)

    def _term_token(self, words: Sequence[tuple[int, str]]) -> Token:
        parts = [split(word) for _, word in words]
        cores = [core for _, core, _ in parts]
        written = self._literals.glossary[tuple(map(str.casefold, cores))] or " ".join(cores)
        return Token(words[-1][0], written, Kind.TERM, parts[0][0], parts[-1][2])

    def _word_tokens(self, number: int, word: str) -> list[Token]:
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
    """Chooses the stand-ins of one sentence."""

    def __init__(self, literals: Literals) -> None:
        self._literals = literals
        self._used: set[str] = set()  # stand-ins, and words of the source
        self._active: dict[str, str] = {}  # stand-in -> text that it stands for
        self._last: Token | None = None  # the last token, if it is a literal

    def literal(self, token: Token, units: int) -> Literal | None:
        """The literal of a token; None for a word. `units`: source units of the sentence before the token."""
        last, self._last = self._last, None if token.kind is Kind.WORD else token
        if token.kind is Kind.WORD:
            core = split(token.text)[1]
            if core not in self._active:
                self._used.add(core)
                return None
            token = replace(token, text=core, kind=Kind.NAME)  # the source has a word that is in use as a stand-in
        joined = last is not None and last.kind is token.kind and not last.after and not token.before
        if token.kind is Kind.EMOJI or (joined and token.kind is not Kind.TERM):
            return Literal(token.text + token.after, follows=joined, place=units)
        present = (name for name, text in self._active.items() if text == token.text)
        stand_in = next(present, "") or self.choose(token)
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
        self._missing: list[Literal] = []  # read but not written so far
        self._last = ""  # last word written

    def read(self, literal: Literal) -> None:
        if literal.stand_in in self._read:  # the source repeats the literal
            return
        self._missing.append(literal)
        if literal.stand_in:
            self._read[literal.stand_in] = literal

    def restore(self, words: Sequence[str], units: int) -> list[str]:
        """Replace stand-ins in whole target words, and insert literals that are due after `units` target units."""
        restored: list[str] = []
        for word in words:
            restored += self._replaced(word).split()
            restored += self._due(units)
            self._last = restored[-1] if restored else self._last
        return restored

    def _replaced(self, word: str) -> str:
        for stand_in, literal in self._read.items():
            ends = (r"(?<!\d)", r"(?!\d)") if stand_in.isdigit() else (r"(?<!\w)", r"(?=s?(?!\w))")
            parts = re.split(stand_in.join(ends), word)
            if len(parts) > 1 and literal in self._missing:
                self._missing.remove(literal)
            word = literal.text.join(parts)
        return word

    def _due(self, units: int) -> list[str]:
        """The literals without a stand-in whose place has been reached."""
        due: list[str] = []
        while self._missing and not (first := self._missing[0]).stand_in:
            if not (first.follows or first.place <= units):
                break
            due.append(self._missing.pop(0).text)
        return due

    def flush(self, words: Sequence[str]) -> list[str]:
        """Restore the last words, and append literals that the model has not written, before a final full stop."""
        restored = self.restore(words, 1 << 30)
        last = self._last.rstrip(_CLOSING)
        missing, self._missing = [literal.text for literal in self._missing if literal.text != last], []
        stop = restored[-1][len(restored[-1].rstrip(_CLOSING)) :] if restored else ""
        if missing and stop and restored[-1] != stop:
            restored[-1] = restored[-1].removesuffix(stop)
            missing[-1] += stop
        return restored + missing
