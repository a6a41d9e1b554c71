"""Any frame is parsed to a message or to an error with a code and one line of text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whilst.core.errors import UserError
from whilst.evaluation.metrics import average_lagging
from whilst.live.session import Event, SentenceEnd, Summary, Word
from whilst.server.protocol import (
    ERRORS,
    LETTERS,
    Audio,
    ClientMessage,
    Finish,
    Limits,
    Listen,
    MessageCounter,
    MessageEncoder,
    SessionError,
    Start,
    Words,
    commit_message,
    final_message,
    parse_message,
    parse_object,
)

LIMITS = Limits(message_bytes=200, words=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
kinds = st.sampled_from(["start", "words", "finish", "listen", "", "ready"]) | json_values
messages = st.fixed_dictionaries(
    {"type": kinds}, optional=dict.fromkeys(("seq", "text", "latency", "token", "said"), json_values)
)


def parse_or_error(frame: str | bytes) -> ClientMessage | SessionError:
    try:
        return parse_message(frame, LIMITS)
    except SessionError as error:
        return error


@given(st.text(max_size=300) | st.binary(max_size=300) | messages.map(json.dumps) | json_values.map(json.dumps))
def test_any_frame_is_a_message_or_an_error(frame: str | bytes) -> None:
    message = parse_or_error(frame)
    if isinstance(message, SessionError):
        assert message.code in ("protocol", "too_big")
        assert len(message.message) < 300
        assert "\n" not in message.message
        assert json.loads(json.dumps(message.to_message())) == message.to_message()
        return
    if isinstance(frame, bytes):
        assert isinstance(message, Audio)
        return
    assert len(frame.encode()) <= LIMITS.message_bytes
    if isinstance(message, Words):
        message.text.encode()  # no surrogates
    if isinstance(message, Words | Finish):
        assert type(message.seq) is int


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        ('{"type":"start"}', Start("medium", "")),
        ('{"type":"start","latency":"agent-3","token":"t","more":1}', Start("agent-3", "t")),
        ('{"type":"start","glossary":{"A b":" c  d","e":""}}', Start(glossary={("a", "b"): "c d", ("e",): ""})),
        ('{"type":"words","seq":1,"text":"xin chào"}', Words(1, "xin chào")),
        ('{"type":"finish","seq":2}', Finish(2)),
        ('{"type":"listen"}', Listen("")),
        ('{"type":"listen","said":"xin chào"}', Listen("xin chào")),
        (b"\x01\x80", Audio(b"\x01\x80")),
        (b"", Audio(b"")),
    ],
)
def test_messages(frame: str | bytes, wanted: object) -> None:
    assert parse_message(frame, LIMITS) == wanted


@pytest.mark.parametrize(
    ("frame", "code", "about"),
    [
        ("", "protocol", "not JSON"),
        ("[1]", "protocol", "object"),
        ("[" * 150, "protocol", "JSON"),
        ('{"type":"words","seq":1}', "protocol", "text: must be a string"),
        ('{"type":"words","seq":true,"text":"a"}', "protocol", "seq: must be a whole number"),
        ('{"type":"words","seq":1.0,"text":"a"}', "protocol", "seq: must be a whole number"),
        ('{"type":"words","seq":1,"text":"\\ud800"}', "protocol", "surrogate"),
        ('{"type":"start","glossary":["a"]}', "protocol", "glossary: must be"),
        ('{"type":"start","glossary":{"a":1}}', "protocol", "a: must be a string"),
        ('{"type":"stop"}', "protocol", "'stop': unknown"),
        (b'{"type": "start"}', "protocol", "17 bytes: audio has samples of 16 bits"),
        (bytes(202), "too_big", "202 bytes"),
        ("x" * 201, "too_big", "201 bytes"),
        ("ầ" * 67, "too_big", "201 bytes"),  # three bytes each
    ],
)
def test_errors(frame: str | bytes, code: str, about: str) -> None:
    with pytest.raises(SessionError) as caught:
        parse_message(frame, LIMITS)
    assert (caught.value.code, caught.value.fatal) == (code, True)
    assert about in caught.value.message


def test_numbers_of_too_many_digits() -> None:
    with pytest.raises(SessionError, match="not JSON"):
        parse_object("9" * 10_000)


@given(st.lists(st.integers(-2, 6), max_size=6))
def test_seq_has_no_gaps(numbers: list[int]) -> None:
    counter = MessageCounter(LIMITS)
    for expected, number in enumerate(numbers, start=1):
        if number != expected:
            with pytest.raises(SessionError, match=f"send {expected}") as caught:
                counter.check(Finish(number))
            assert caught.value.code == "sequence"
            return
        counter.check(Words(number, "a"))
        assert (counter.seq, counter.words) == (expected, expected)


def test_words_are_counted() -> None:
    counter = MessageCounter(LIMITS)
    counter.check(Words(1, " a b\tc "))
    counter.check(Words(2, " ".join("defghij")))
    with pytest.raises(SessionError, match="more than 10 words") as caught:
        counter.check(Words(3, "k"))
    assert caught.value.code == "too_many_words"
    assert counter.seq == 2, "it is not accepted"


def test_a_long_word_counts_more_than_once() -> None:
    counter = MessageCounter(Limits(words=4))
    counter.check(Words(1, f"{'a' * LETTERS} {'b' * (LETTERS + 1)}"))
    assert counter.words == 3
    with pytest.raises(SessionError, match="more than 4 words"):
        counter.check(Words(2, "今" * (LETTERS + 1)))


def test_commit_and_final() -> None:
    events: list[Event] = [Word("xin", 0, 3, 3), Word("chào", 0, 4, 4), SentenceEnd(0, 4, 4), Word("a", 1, 6, 2)]
    message = commit_message(7, events)
    assert message["words"][0] == {"text": "xin", "sentence": 0, "source": 3, "delay": 3}
    assert [len(message["words"]), message["ends"]] == [3, [{"sentence": 0, "source": 4, "length": 4}]]
    summary = Summary()
    for event in [*events, SentenceEnd(1, 6, 2), SentenceEnd(2, 7, 1)]:  # the last one has no words
        summary.add(event)
    lag = (average_lagging([3, 4], 4, 2) + average_lagging([2], 2, 1)) / 2
    wanted = {"type": "final", "ack": 7, "source_words": 6, "words": 3, "sentences": 3, "average_lagging": lag}
    assert final_message(7, 6, summary) == wanted
    assert final_message(1, 0, Summary())["average_lagging"] is None


def test_seq_and_time() -> None:
    encode = MessageEncoder().encode
    first = json.loads(encode({"type": "error", "code": "protocol"}, 50.0))
    assert (first["seq"], first["time"]) == (1, 0)
    assert json.loads(encode({"type": "ready"}, 100.0)) == {"type": "ready", "seq": 2, "time": 0}
    assert json.loads(encode({"type": "final"}, 101.5)) == {"type": "final", "seq": 3, "time": 1.5}
    assert json.loads(encode({"type": "ready"}, 102.0))["time"] == 2.0, "time counts from the first"
    assert "chào" in encode({"type": "commit", "words": ["chào"]}, 103.0)


def test_every_code_has_a_close_code() -> None:
    assert {close for close, _ in ERRORS.values()} <= {1008, 1009, 1011, 1012, 1013}
    for code, (close, status) in ERRORS.items():
        error = SessionError(code, "why")
        assert (error.close_code, error.http_status) == (close, status)


@pytest.mark.parametrize("name", ["message_bytes", "words", "sessions", "idle", "send"])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(UserError, match=name):
        Limits(**{name: 0})
