"""The server over real sockets: translations equal those of a session, mistakes have an error code."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.serving import (
    LATENCIES,
    LocalServer,
    WordAt,
    fetch,
    local_server,
    make_served,
    make_words,
    post,
    translate_alone,
    wait_until,
)
from whilst import __version__
from whilst.model.transformer import Translator
from whilst.server.protocol import Limits


@pytest.fixture(scope="module")
def server(model: Translator) -> Iterator[LocalServer]:
    with local_server(make_served(model), Limits(sessions=8, message_bytes=2000, words=200)) as server:
        yield server


def test_concurrent_sessions_do_not_affect_each_other(server: LocalServer, model: Translator) -> None:
    names = ["wait-1", "wait-2", "wait-3", "full", "low", "high", "wait-2", "wait-1"]
    found: dict[int, list[WordAt]] = {}

    def translate(number: int) -> None:
        with server.connect() as client:
            client.start(latency=names[number])
            for word in make_words(number):
                client.send_words(word)
            client.finish()
            final = client.receive_until("final")
            assert (final["ack"], final["source_words"]) == (41, 40)
            assert final["words"] == len(client.words)
            found[number] = client.words

    threads = [threading.Thread(target=translate, args=(number,)) for number in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, name in enumerate(names):
        assert found[number] == translate_alone(model, make_words(number), LATENCIES.get(name, name))
    assert len({str(words) for words in found.values()}) == len(names)


def test_every_message_is_acknowledged(server: LocalServer, model: Translator) -> None:
    with server.connect() as client:
        ready = client.start(latency="low")
        assert ready["model"] == {"name": "src-tgt", "source": "src", "target": "tgt"}
        assert (ready["version"], ready["latency"], ready["time"]) == (__version__, "wait-1", 0)
        assert ready["latencies"][0] == {"name": "low", "policy": "wait-1"}
        assert ready["limits"] == {"message_bytes": 2000, "words": 200, "idle_seconds": 300}
        for number, words in enumerate(["ab", "c d", "", "   ", "em"], start=1):
            client.send_words(words)
            message = client.receive_ack(number)
        assert message["ends"] == [{"sentence": 0, "source": 4, "length": 4}]
        client.finish()
        assert client.receive_until("final")["sentences"] == 1, "the sentence was finished already"
        assert client.words == translate_alone(model, ["ab", "c", "d", "em"], "wait-1")


def test_a_new_latency_applies_from_the_next_sentence(server: LocalServer, model: Translator) -> None:
    first, second = [*"abcde", "fm"], [*"ghijk", "lm"]
    with server.connect() as client:
        client.start(latency="wait-1")
        for word in first[:3]:
            client.send_words(word)
        client.send({"type": "start", "latency": "wait-4"})
        assert client.receive_until("ready")["latency"] == "wait-4"
        for word in first[3:] + second:
            client.send_words(word)
        client.finish()
        client.receive_until("final")
        wanted = translate_alone(model, first, "wait-1")
        wanted += [(word, 1, at + len(first)) for word, _, at in translate_alone(model, second, "wait-4")]
        assert client.words == wanted


def test_an_unknown_latency(server: LocalServer) -> None:
    with server.connect() as client:
        message = client.start(latency="agent-99999999999999999999999999999999999999999999999999")
        assert (message["code"], message["fatal"]) == ("protocol", False)
        assert client.start(latency="wait-x")["type"] == "error"
        assert client.start(latency="wait-3")["latency"] == "wait-3"
        assert client.start(latency="oracle-1")["type"] == "error"
        client.send_words("am")
        client.receive_ack(1)  # the session goes on


BAD: list[tuple[list[str | bytes], str, int]] = [
    (["no"], "protocol", 1008),
    (['{"type":"words","seq":1,"text":"a"}'], "protocol", 1008),
    ([b"\x00\x01"], "protocol", 1008),
    (['{"type":"start"}', '{"type":"words","seq":2,"text":"a"}'], "sequence", 1008),
    (['{"type":"start"}', '{"type":"finish","seq":1}', '{"type":"finish","seq":1}'], "sequence", 1008),
    (['{"type":"start"}', '{"type":"words","seq":1,"text":7}'], "protocol", 1008),
    (['{"type":"start"}', " " * 2001], "too_big", 1009),
    (["x" * 5000], "too_big", 1009),
    (['{"type":"start"}', json.dumps({"type": "words", "seq": 1, "text": "a " * 201})], "too_many_words", 1008),
]


@pytest.mark.parametrize(("frames", "code", "close"), BAD)
def test_client_errors(server: LocalServer, frames: list[str | bytes], code: str, close: int) -> None:
    with server.connect() as client:
        for frame in frames:
            client.socket.send(frame)
        while (message := client.receive())["type"] != "error":
            pass
        assert (message["code"], message["fatal"]) == (code, True)
        assert message["message"]
        assert client.close_code() == close
    wait_until(server.is_idle, "sessions close")


def test_a_huge_frame_closes_the_connection(server: LocalServer) -> None:
    with server.connect() as client:
        client.start()
        client.socket.send("x" * 1_000_000)
        assert client.close_code() == 1009
    wait_until(server.is_idle, "sessions close")


def test_words_before_the_word_limit_are_translated(server: LocalServer, model: Translator) -> None:
    words = make_words(3, 200)
    with server.connect() as client:
        client.start()
        for word in words:
            client.send_words(word)
        client.send_words("a")
        assert client.receive_until("final")["ack"] == 200
        assert client.receive()["code"] == "too_many_words"
        assert client.close_code() == 1008
        assert client.words == translate_alone(model, words)


def test_the_session_limit(server: LocalServer) -> None:
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(8):
            clients.append(stack.enter_context(server.connect()))
            assert clients[-1].start()["type"] == "ready"
        with server.connect() as extra:
            assert extra.start()["code"] == "too_many_sessions"
            assert extra.close_code() == 1013
        status, _, body = post(server, {"text": "a"})
        assert (status, json.loads(body)["code"]) == (503, "too_many_sessions")
        clients[0].close()
        wait_until(lambda: len(server.manager.sessions) == 7, "sessions close")
        with server.connect() as client:
            assert client.start()["type"] == "ready"
    wait_until(server.is_idle, "sessions close")


def test_connections_without_a_start_message_are_closed(model: Translator) -> None:
    with local_server(make_served(model), Limits(sessions=2, handshake=0.3)) as server:
        with server.connect() as first, server.connect() as second, server.connect() as third:
            assert third.receive()["code"] == "too_many_sessions"
            for client in (first, second):
                assert client.receive()["code"] == "idle"
                assert client.close_code() == 1008
        with server.connect() as client:
            assert client.start()["type"] == "ready"


def events(body: str) -> list[dict[str, Any]]:
    found = []
    for block in body.strip().split("\n\n"):
        name, data = block.split("\n")
        message = json.loads(data.removeprefix("data: "))
        assert name == f"event: {message['type']}"
        found.append(message)
    return found


def test_translate(server: LocalServer, model: Translator) -> None:
    words = make_words(5)
    status, kind, body = post(server, {"text": " ".join(words), "latency": "high"})
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    found = events(body)
    assert [message["seq"] for message in found] == list(range(1, len(found) + 1))
    assert (found[0]["type"], found[0]["latency"], found[-1]["type"]) == ("ready", "wait-5", "final")
    found_words = [w for message in found if message["type"] == "commit" for w in message["words"]]
    assert [(w["text"], w["sentence"], w["source"]) for w in found_words] == translate_alone(model, words, "wait-5")
    assert found[-1]["source_words"] == 40
    wait_until(server.is_idle, "sessions close")


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"no", 400, "protocol"),
        (b"[]", 400, "protocol"),
        (b"{}", 400, "protocol"),
        (b'{"text":1}', 400, "protocol"),
        (b'{"text":"a","latency":"x"}', 400, "protocol"),
        (b'{"text":"a","glossary":"x"}', 400, "protocol"),
        (b"x" * 2001, 413, "too_big"),
        (json.dumps({"text": "a " * 201}).encode(), 413, "too_many_words"),
    ],
)
def test_http_errors(server: LocalServer, data: bytes, status: int, code: str) -> None:
    found, kind, body = fetch(server, "/v1/translate", data)
    assert (found, kind, json.loads(body)["code"]) == (status, "application/json", code)
    wait_until(server.is_idle, "sessions close")


def test_a_session_has_its_own_glossary(server: LocalServer) -> None:
    for glossary, count in (({"kk a": "Z"}, 1), ({}, 0)):
        data = json.dumps({"text": "a kk A b", "glossary": glossary}).encode()
        status, _, body = fetch(server, "/v1/translate", data)
        assert (status, body.count('"text": "Z"')) == (200, count)


def test_health_and_metrics(server: LocalServer) -> None:
    for path in ("/healthz", "/readyz"):
        status, _, body = fetch(server, path)
        assert (status, json.loads(body)["status"]) == (200, "ok")
    with server.connect() as client:
        client.start()
        client.send_words("a b c")
        client.receive_ack(1)
        status, kind, body = fetch(server, "/metrics")
        assert status == 200
        assert kind.startswith("text/plain; version=0.0.4")
    samples = dict(line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#"))
    assert float(samples[f'whilst_open_sessions{{process="{os.getpid()}"}}']) == 1
    assert float(samples["whilst_source_words_total"]) >= 3
    buckets = [float(value) for name, value in samples.items() if name.startswith("whilst_message_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == float(samples["whilst_message_seconds_count"])


@pytest.mark.parametrize("path", ["/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/no.js", "/static/"])
def test_only_files_of_the_page_are_served(server: LocalServer, path: str) -> None:
    status, _, body = fetch(server, path)
    assert status == 404
    assert "import" not in body


def test_words_so_far_are_translated_when_the_server_stops(model: Translator) -> None:
    words = make_words(8, 12)
    with local_server(make_served(model)) as server:
        silent, client = server.connect(), server.connect()
        silent.start()
        client.start()
        for word in words:
            client.send_words(word)
        client.receive_until("commit")
        server.uvicorn.should_exit = True
        assert client.receive_until("final")["source_words"] == 12
        assert client.words == translate_alone(model, words)
        for one in (client, silent):
            assert one.receive()["code"] == "shutdown"
            assert one.close_code() == 1012
            one.close()
    with pytest.raises(OSError, match="refused"):
        server.connect()


def test_no_session_opens_when_the_server_stops(server: LocalServer) -> None:
    server.manager.stopping = True
    try:
        with server.connect() as client:
            assert client.receive()["code"] == "shutdown"
            assert client.close_code() == 1012
        assert fetch(server, "/readyz")[0] == 503
        assert json.loads(fetch(server, "/healthz")[2])["status"] == "stopping"
        assert post(server, {"text": "a"})[0] == 503
    finally:
        server.manager.stopping = False
