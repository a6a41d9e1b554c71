"""Messages of the WebSocket and HTTP interfaces (docs/serving.md): parsing, checks, encoding. No network code."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from whilst.core.errors import UserError
from whilst.data.literals import Glossary, make_glossary
from whilst.live.session import Event, SentenceEnd, Summary, Word

Message = dict[str, Any]

ERRORS = {  # code: (close code of the WebSocket, HTTP status)
    "unauthorized": (1008, 401),
    "origin": (1008, 403),
    "host": (1008, 421),
    "headers": (1009, 431),
    "protocol": (1008, 400),
    "sequence": (1008, 400),
    "too_big": (1009, 413),
    "too_many_words": (1008, 413),
    "too_many_sessions": (1013, 503),
    "taken": (1008, 409),
    "speech": (1008, 400),
    "too_many_speakers": (1013, 503),
    "idle": (1008, 408),
    "slow": (1008, 400),
    "internal": (1011, 400),
    "shutdown": (1012, 503),
}
LETTERS = 32  # characters of a source word that count as one word, since each may be a unit of the model
DRAINED = {"too_many_words", "idle", "shutdown"}  # errors before which the words received so far are translated


@dataclass(frozen=True)
class Limits:
    """Times are in seconds."""

    message_bytes: int = 16_384
    words: int = 100_000  # of a session: nine hours of speech; a long word counts as one for each LETTERS of it
    header_bytes: int = 16_384  # of a request, names and values
    headers: int = 64  # of a request
    sessions: int = 100
    watchers: int = 5_000
    speakers: int = 2  # at a time, whose speech is recognised; 0: none
    audio: float = 10.0  # of a session, not yet recognised; above, reading from its client pauses
    recognition: float = 60.0  # for a recogniser to process the audio of one call
    idle: float = 300.0  # without a client message
    handshake: float = 10.0  # until the first client message
    send: float = 10.0  # to send one message
    drain: float = 30.0  # to translate the words received so far when a session is ended
    backlog: int = 64  # messages of a session in each direction before reading from its client pauses

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf and (name, value) != ("speakers", 0):
                raise UserError(f"limit {name}: must be more than 0, not {value}")


class SessionError(Exception):
    """An error that is sent to the client."""

    def __init__(self, code: str, message: str, fatal: bool = True) -> None:
        super().__init__(message)
        self.code, self.message, self.fatal = code, message, fatal
        self.close_code, self.http_status = ERRORS[code]

    def to_message(self) -> Message:
        return {"type": "error", "code": self.code, "message": self.message, "fatal": self.fatal}


@dataclass(frozen=True)
class Start:
    latency: str = "medium"
    token: str = ""
    model: str = ""  # its name; empty: the server's first model
    key: str = ""  # of a published session: lets a later session with the same key take its name over
    sentence: int | None = None  # of a published session: the number of its first sentence, if it was sent before
    glossary: Glossary = field(default_factory=dict)  # terms of this session


@dataclass(frozen=True)
class Words:
    seq: int
    text: str


@dataclass(frozen=True)
class Finish:
    seq: int


@dataclass(frozen=True)
class Listen:
    """Audio follows."""

    said: str = ""  # words that an earlier session returned for the beginning of this audio


@dataclass(frozen=True)
class Audio:
    pcm: bytes  # empty: the audio ends


ClientMessage = Start | Words | Finish | Listen | Audio
FORMS = '{"type":"start"}, {"type":"words","seq":1,"text":"…"}, {"type":"finish","seq":2} or {"type":"listen"}'


def parse_message(frame: str | bytes, limits: Limits) -> ClientMessage:
    check_size(len(frame.encode("utf-8", "surrogatepass") if isinstance(frame, str) else frame), limits)
    if isinstance(frame, bytes):
        if len(frame) % 2:
            message = f"a binary frame of {len(frame)} bytes: audio has samples of 16 bits; send whole ones"
            raise SessionError("protocol", message)
        return Audio(frame)
    table = parse_object(frame)
    match table.get("type"):
        case "start":
            return Start(
                string_field(table, "latency", "medium"),
                string_field(table, "token", ""),
                string_field(table, "model", ""),
                string_field(table, "key", ""),
                None if table.get("sentence") is None else number_field(table, "sentence"),
                glossary_field(table),
            )
        case "words":
            return Words(number_field(table, "seq"), string_field(table, "text"))
        case "finish":
            return Finish(number_field(table, "seq"))
        case "listen":
            return Listen(string_field(table, "said", ""))
    raise SessionError("protocol", f"a message of type {shorten(table.get('type'))}: unknown; send {FORMS}")


def check_size(size: int, limits: Limits) -> None:
    if size > limits.message_bytes:
        limit = limits.message_bytes
        raise SessionError("too_big", f"a message of {size} bytes: the limit is {limit}; send it in parts")


def parse_object(text: str | bytes) -> Message:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):  # ValueError: not JSON, not Unicode, or a number of too many digits
        raise SessionError("protocol", "the message is not JSON; send a JSON object") from None
    if not isinstance(table, dict):
        raise SessionError("protocol", f"the message is {shorten(table)}; send a JSON object")
    return table


def shorten(value: object) -> str:
    """For error messages: ASCII, one line, bounded length."""
    text = ascii(value)
    return text if len(text) <= 40 else text[:40] + "…"


def string_field(table: Message, name: str, default: str | None = None) -> str:
    value = table.get(name, default)
    if not isinstance(value, str):
        raise SessionError("protocol", f"{name}: must be a string, not {shorten(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SessionError("protocol", f"{name}: has an unpaired surrogate; send whole characters") from None
    return value


def glossary_field(table: Message) -> Glossary:
    value = table.get("glossary") or {}
    if not isinstance(value, dict):
        form = '{"term": "translation"}, "" to leave a term as it is'
        raise SessionError("protocol", f"glossary: must be {form}, not {shorten(value)}")
    return make_glossary((string_field({"term": term}, "term"), string_field(value, term)) for term in value)


def number_field(table: Message, name: str) -> int:
    value = table.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SessionError("protocol", f"{name}: must be a whole number, not {shorten(value)}")
    return value


@dataclass
class MessageCounter:
    """Checks that `seq` has no gaps, and counts words up to the limit of a session."""

    limits: Limits
    seq: int = 0
    words: int = 0

    def check(self, message: Words | Finish) -> None:
        if message.seq != self.seq + 1:
            raise SessionError("sequence", f"seq {shorten(message.seq)} after {self.seq}: send {self.seq + 1}")
        if isinstance(message, Words):
            self.words += sum(math.ceil(len(word) / LETTERS) for word in message.text.split())
        if self.words > self.limits.words:
            limit = self.limits.words
            raise SessionError("too_many_words", f"more than {limit} words in a session; begin another one")
        self.seq = message.seq


def commit_message(ack: int, events: Sequence[Event]) -> Message:
    words = [
        {"text": event.text, "sentence": event.sentence, "source": event.position, "delay": event.delay}
        for event in events
        if isinstance(event, Word)
    ]
    ends = [
        {"sentence": event.sentence, "source": event.position, "length": event.length}
        for event in events
        if isinstance(event, SentenceEnd)
    ]
    return {"type": "commit", "ack": ack, "words": words, "ends": ends}


def final_message(ack: int, source_words: int, summary: Summary) -> Message:
    counts = {"source_words": source_words, "words": summary.words, "sentences": summary.sentences}
    lag = None if summary.mean_lag is None else round(summary.mean_lag, 3)
    return {"type": "final", "ack": ack, **counts, "average_lagging": lag}


class MessageEncoder:
    """JSON of server messages, with `seq` and the seconds since the first `ready`."""

    def __init__(self) -> None:
        self._seq = 0
        self._start: float | None = None

    def encode(self, message: Message, now: float) -> str:
        self._seq += 1
        if message["type"] == "ready" and self._start is None:
            self._start = now
        time = 0.0 if self._start is None else round(now - self._start, 4)
        # The type comes first, for people who read the messages.
        return json.dumps({"type": message["type"], "seq": self._seq, "time": time} | message, ensure_ascii=False)
