"""Speech over the WebSocket: audio in, words out, each of them once, also after a lost connection."""

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.helpers.serving import (
    Client,
    LocalServer,
    fetch,
    local_server,
    make_served,
    make_words,
    translate_alone,
    wait_until,
)
from tests.helpers.speech import COUNTING, Counter, program, say
from tests.speech.test_recogniser import needs_moonshine
from whilst.live.input import BREAK
from whilst.model.transformer import Translator
from whilst.server import speech
from whilst.server.protocol import Limits
from whilst.server.speech import speech_missing
from whilst.speech.audio import RATE, SECOND, WIDTH, open_file
from whilst.speech.recogniser import recording

LIMITS = Limits(sessions=8, speakers=1, audio=2.0)
PARTS = [[1, 2, 3, 4, 5, 0, 6, 7, 0], [8, 9, 10, 0, 0, 11, 12, 13, 14]]
ALL = [f"w{number}" for part in PARTS for number in part if number]
Heard = dict[str, Any]


@pytest.fixture
def server(model: Translator, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServer]:
    monkeypatch.setattr(speech, "open_recogniser", lambda _: Counter)
    with local_server(make_served(model), LIMITS, recogniser="counter") as server:
        yield server
        wait_until(server.is_idle, "sessions and recognisers closed")


def listen(client: Client, said: str = "") -> Heard:
    client.send({"type": "listen", "said": said})
    return client.receive()


def send_audio(client: Client, pcm: bytes) -> None:
    for place in range(0, len(pcm), 3200):
        client.socket.send(pcm[place : place + 3200])


def heard_until(client: Client, samples: int) -> list[Heard]:
    found = [client.receive_until("heard")]
    while found[-1]["audio"] < samples and not found[-1]["end"]:
        found.append(client.receive_until("heard"))
    return found


def words_in(messages: list[Heard]) -> list[str]:
    return [word for message in messages for word in message["words"] if word != BREAK]


def test_audio_is_answered_with_words_which_are_translated_as_others(
    server: LocalServer, model: Translator
) -> None:
    with server.connect() as client:
        assert client.start()["speech"] == {"available": True, "reason": ""}
        first = listen(client)
        empty = {"words": [], "partial": "", "audio": 0, "settled": 0, "said": "", "end": False}
        assert {name: first[name] for name in empty} == empty
        pcm = b"".join(map(say, PARTS))
        send_audio(client, pcm)
        client.socket.send(b"")
        found = heard_until(client, sys.maxsize)
        assert words_in(found) == ALL
        assert [message["end"] for message in found] == [False] * (len(found) - 1) + [True]
        assert any(message["partial"] for message in found)
        for name in ("audio", "settled"):
            numbers = [message[name] for message in found]
            assert numbers == sorted(numbers)
        assert found[-1]["audio"] == len(pcm) // WIDTH
        assert client.words == [], "words are translated once the client sends them"
        words = make_words(5, 9)
        client.send_words(" ".join(words))
        client.finish()
        client.receive_until("final")
        assert client.words == translate_alone(model, words)
        assert listen(client)["audio"] == 0, "again"
    wait_until(server.is_idle, "the recogniser is closed")
    [counted] = re.findall(r"^whilst_audio_seconds_total (.+)$", fetch(server, "/metrics")[2], re.MULTILINE)
    assert float(counted) == pytest.approx(len(pcm) / SECOND), "a sum over chunks of any size"


@pytest.mark.parametrize("sent", range(1, 5))
def test_no_word_is_lost_or_doubled_by_a_lost_connection(server: LocalServer, sent: int) -> None:
    """After so many seconds of audio: between utterances, and inside one of which words were final."""
    pcm = b"".join(map(say, PARTS))
    with server.connect() as client:
        client.start()
        listen(client)
        send_audio(client, pcm[: sent * SECOND])
        before = heard_until(client, sent * RATE)
    wait_until(server.is_idle, "the connection is lost")
    settled, said = before[-1]["settled"], before[-1]["said"]
    with server.connect() as client:
        client.start()
        listen(client, said)
        send_audio(client, pcm[settled * WIDTH :])
        client.socket.send(b"")
        after = heard_until(client, sys.maxsize)
    assert words_in(before + after) == ALL


def test_more_speakers_than_the_limit(server: LocalServer) -> None:
    with server.connect() as client, server.connect() as other:
        client.start()
        other.start()
        listen(client)
        refused = listen(other)
        assert (refused["type"], refused["code"], refused["fatal"]) == ("error", "too_many_speakers", False)
        assert refused["message"] == "the server recognises no more speakers at a time than 1; try again later"
        send_audio(other, say([1, 2, 3, 4]))  # was on its way, and is ignored
        other.socket.send(b"")
        other.send_words("a b c")
        assert other.receive()["type"] == "commit"
        client.socket.send(b"")
        heard_until(client, sys.maxsize)
        assert listen(other)["type"] == "heard"
        assert 'whilst_errors_total{code="too_many_speakers"} 1.0' in fetch(server, "/metrics")[2]


def test_misuse(server: LocalServer) -> None:
    for message, about in (("", "audio without"), ('{"type":"listen"}', 'wait for "end": true')):
        with server.connect() as client:
            client.start()
            if message:
                listen(client)
            client.socket.send(message or b"")
            error = client.receive()
            assert (error["code"], error["fatal"]) == ("protocol", True)
            assert about in error["message"]
            assert client.close_code() == 1008
        wait_until(server.is_idle, "the session is closed")


def test_a_program_as_recogniser_and_one_that_ends(model: Translator) -> None:
    with local_server(make_served(model), LIMITS, recogniser=COUNTING) as server, server.connect() as client:
        client.start()
        listen(client)
        send_audio(client, say([1, 2, 0, 3]))
        client.socket.send(b"")
        assert words_in(heard_until(client, sys.maxsize)) == ["w1", "w2", "w3"]
    with (
        local_server(make_served(model), LIMITS, recogniser=program("")) as server,
        server.connect() as client,
        contextlib.suppress(ConnectionClosed),
    ):
        client.start()
        message = listen(client)
        while message["type"] == "heard":
            send_audio(client, say([1, 2, 3, 4]))
            message = client.receive()
        assert (message["code"], message["fatal"]) == ("speech", False)
        assert message["message"] == "the recogniser of this server failed; speak again"
        client.send_words("a b c")
        assert client.receive_until("commit")["ack"] == 1


def test_a_program_that_takes_no_audio(model: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stops reading from that client, holds little audio, and gives the program up after a while."""
    monkeypatch.setattr(speech, "BEAT", 0.5)
    deaf = program("import time\ntime.sleep(600)")
    with local_server(make_served(model), replace(LIMITS, recognition=5.0), recogniser=deaf) as server:
        client = server.connect()
        client.start()
        listen(client)
        most = 0.0

        def waits() -> bool:
            nonlocal most
            with contextlib.suppress(TimeoutError):
                send_audio(client, bytes(SECOND // 10))
            [stream] = server.manager.speech.streams  # until the time is over
            most = max(most, stream.waiting)
            return most >= LIMITS.audio

        wait_until(waits, "back-pressure")
        for _ in range(50):
            waits()
        assert most < LIMITS.audio + 0.2, most
        with server.connect() as other:
            other.start()
            other.send_words("a b c")
            assert other.receive()["type"] == "commit", "other sessions go on"
        for _ in range(2):
            assert client.receive_until("heard")["words"] == [], "it is still at work"
        assert client.receive_until("error")["code"] == "speech"
        client.send_words("a b c")
        assert client.receive_until("commit")["ack"] == 1
        listen(client)
        send_audio(client, bytes(SECOND))
        client.close()
        wait_until(server.is_idle, "the program ends with the session")


@pytest.mark.parametrize(
    ("command", "speakers", "language", "about"),
    [
        ("", 2, "de", "recognises English speech only, and the source language is de"),
        ("", 0, "en", "--speakers 0"),
        ("cat", 0, "de", "--speakers 0"),
        ("cat", 2, "de", ""),
        ("", 2, "en", "without the extra `speech`"),
    ],
)
def test_a_server_says_why_it_does_not_recognise(
    command: str, speakers: int, language: str, about: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "moonshine_voice", None)
    found = speech_missing(command, Limits(speakers=speakers), language)
    assert about in found if about else not found


def test_a_server_that_does_not_recognise(model: Translator) -> None:
    with local_server(make_served(model)) as server, server.connect() as client:
        said = client.start()["speech"]
        assert not said["available"]
        error = listen(client)
        assert (error["code"], error["message"], error["fatal"]) == ("speech", said["reason"], False)
        client.send_words("a b c")
        assert client.receive()["type"] == "commit"


@needs_moonshine
@pytest.mark.slow
def test_a_human_voice(model: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "LANGUAGES", ("src",))
    with local_server(make_served(model), LIMITS) as server, server.connect() as client:
        assert client.start()["speech"]["available"]
        listen(client)
        send_audio(client, b"".join(open_file(recording()))[: 10 * SECOND])
        client.socket.send(b"")
        words = " ".join(words_in(heard_until(client, sys.maxsize))).lower()
        assert "best of times" in words
