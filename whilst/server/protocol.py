"""The messages of a live session: JSON in, JSON out, and what is wrong with those that are not (docs/serving.md).

Pure: knows neither sockets nor models.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from whilst.core.errors import UserError
from whilst.evaluation.metrics import average_lagging
from whilst.live.session import Event, SentenceEnd, Word

Message = dict[str, Any]

# What ends a session, and the code that the WebSocket is closed with.
CLOSE = {
    "unauthorized": 1008,
    "origin": 1008,
    "protocol": 1008,
    "sequence": 1008,
    "too_big": 1009,
    "too_many_words": 1008,
    "too_many_sessions": 1013,
    "idle": 1008,
    "slow": 1008,
    "internal": 1011,
    "shutdown": 1012,
}
# The same for a POST, where it is not a bad request.
STATUS = {
    "unauthorized": 401,
    "origin": 403,
    "idle": 408,
    "too_big": 413,
    "too_many_words": 413,
    "too_many_sessions": 503,
    "shutdown": 503,
}
GENTLE = {"too_many_words", "idle", "shutdown"}  # what was fed before is finished


@dataclass(frozen=True)
class Limits:
    message_bytes: int = 16_384
    words: int = 100_000  # of a session: nine hours of talk
    sessions: int = 100
    idle: float = 300.0  # seconds without a message from the client
    greeting: float = 10.0  # seconds until the first one
    slow: float = 10.0  # seconds that a client may let us wait to send
    grace: float = 30.0  # seconds to finish what was fed when a session is ended
    backlog: int = 64  # messages of a session on their way, each direction, before no more are taken

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
                raise UserError(f"limit {name}: must be more than 0, not {value}")

    def told(self) -> Message:
        return {"message_bytes": self.message_bytes, "words": self.words, "idle_seconds": self.idle}


class SessionError(Exception):
    """What a client is told went wrong."""

    def __init__(self, code: str, message: str, fatal: bool = True) -> None:
        super().__init__(message)
        assert code in CLOSE
        self.code, self.message, self.fatal = code, message, fatal

    @property
    def close(self) -> int:
        return CLOSE[self.code]

    def told(self) -> Message:
        return {"type": "error", "code": self.code, "message": self.message, "fatal": self.fatal}


@dataclass(frozen=True)
class Start:
    latency: str = "medium"
    token: str = ""


@dataclass(frozen=True)
class Words:
    seq: int
    text: str


@dataclass(frozen=True)
class Finish:
    seq: int


FORMS = '{"type":"start"}, {"type":"words","seq":1,"text":"…"} or {"type":"finish","seq":2}'


def parse(frame: str | bytes, limits: Limits) -> Start | Words | Finish:
    """A client's message."""
    check_size(len(frame.encode("utf-8", "surrogatepass") if isinstance(frame, str) else frame), limits)
    if isinstance(frame, bytes):
        raise SessionError("protocol", f"a binary frame: messages are text frames with JSON; send {FORMS}")
    table = load(frame)
    match table.get("type"):
        case "start":
            return Start(text_of(table, "latency", "medium"), text_of(table, "token", ""))
        case "words":
            return Words(seq_of(table), text_of(table, "text"))
        case "finish":
            return Finish(seq_of(table))
    raise SessionError("protocol", f"a message of type {short(table.get('type'))}: unknown; send {FORMS}")


def check_size(size: int, limits: Limits) -> None:
    if size > limits.message_bytes:
        raise SessionError(
            "too_big", f"a message of {size} bytes: at most {limits.message_bytes} are taken; send it in parts"
        )


def load(text: str | bytes) -> Message:
    """A JSON object; whatever else it is, is a fault."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):  # ValueError: no JSON, no Unicode, or a number too long to be one
        raise SessionError("protocol", "what came is no JSON; send a JSON object") from None
    if not isinstance(table, dict):
        raise SessionError("protocol", f"what came is {short(table)}; send a JSON object")
    return table


def short(value: object) -> str:
    """As it stands in an error: one line of some length at most."""
    text = ascii(value)
    return text if len(text) <= 40 else text[:40] + "…"


def text_of(table: Message, name: str, default: str | None = None) -> str:
    value = table.get(name, default)
    if not isinstance(value, str):
        raise SessionError("protocol", f"{name}: must be a string, not {short(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SessionError("protocol", f"{name}: has half a character (a surrogate); send whole ones") from None
    return value


def seq_of(table: Message) -> int:
    value = table.get("seq")
    if not isinstance(value, int) or isinstance(value, bool):
        raise SessionError("protocol", f"seq: must be a whole number, not {short(value)}")
    return value


@dataclass
class Order:
    """Whether a client's words and finishes come one after the other, and how many words that makes."""

    limits: Limits
    seq: int = 0
    words: int = 0

    def take(self, message: Words | Finish) -> None:
        if message.seq != self.seq + 1:
            raise SessionError("sequence", f"seq {short(message.seq)} after {self.seq}: send {self.seq + 1}")
        if isinstance(message, Words):
            self.words += len(message.text.split())
        if self.words > self.limits.words:
            raise SessionError(
                "too_many_words", f"more than {self.limits.words} words in a session; begin another one"
            )
        self.seq = message.seq


@dataclass
class Tally:
    """What a session has come to."""

    source_words: int = 0
    words: int = 0
    sentences: int = 0
    lag: float = 0.0  # the sum over the sentences that have one
    lags: int = 0
    _delays: list[int] = field(default_factory=list)  # of the sentence under way

    def add(self, event: Event) -> None:
        if isinstance(event, Word):
            self.words += 1
            self._delays.append(event.delay)
            return
        self.sentences += 1
        if self._delays and event.length:
            self.lag += average_lagging(self._delays, event.length, len(self._delays))
            self.lags += 1
        self._delays = []

    def told(self, ack: int) -> Message:
        counts = {"source_words": self.source_words, "words": self.words, "sentences": self.sentences}
        lag = round(self.lag / self.lags, 3) if self.lags else None
        return {"type": "final", "ack": ack, **counts, "average_lagging": lag}


def commit(ack: int, events: list[Event]) -> Message:
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


class Numbering:
    """Gives what is sent its number and its time."""

    def __init__(self) -> None:
        self.seq = 0
        self.began: float | None = None

    def __call__(self, message: Message, now: float) -> str:
        self.seq += 1
        if message["type"] == "ready" and self.began is None:
            self.began = now
        time = 0.0 if self.began is None else round(now - self.began, 4)
        kind, rest = message["type"], {name: value for name, value in message.items() if name != "type"}
        return json.dumps({"type": kind, "seq": self.seq, "time": time, **rest}, ensure_ascii=False)
