"""The server from outside: what a session says it says here too, to many at once; mistakes have a code."""

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.helpers.sites import LATENCIES, Site, alone, make_served, site, texts, until
from tests.live.test_session import LETTERS
from whilst import __version__
from whilst.model.transformer import Translator
from whilst.server.protocol import Limits


@pytest.fixture(scope="module")
def here(model: Translator) -> Iterator[Site]:
    with site(make_served(model), Limits(sessions=8, message_bytes=2000, words=200)) as running:
        yield running


def make_talk(seed: int, count: int = 40) -> list[str]:
    random = Random(seed)
    return ["".join(random.choices(LETTERS, k=random.randint(1, 4))) for _ in range(count)]


def test_many_at_once_are_as_alone(here: Site, model: Translator) -> None:
    names = ["wait-1", "wait-2", "wait-3", "full", "low", "high", "wait-2", "wait-1"]
    found: dict[int, list[tuple[str, int, int]]] = {}

    def speak(number: int) -> None:
        with here.connect() as client:
            client.start(latency=names[number])
            for word in make_talk(number):
                client.say(word)
            client.finish()
            final = client.receive_until("final")
            assert (final["ack"], final["source_words"]) == (41, 40)
            assert final["words"] == len(client.words)
            found[number] = client.words

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, name in enumerate(names):
        assert found[number] == texts(alone(model, make_talk(number), LATENCIES.get(name, name)))
    assert len({str(words) for words in found.values()}) == len(names)


def test_every_message_is_acknowledged(here: Site, model: Translator) -> None:
    with here.connect() as client:
        ready = client.start(latency="low")
        assert ready["model"] == {"name": "src-tgt", "source": "src", "target": "tgt"}
        assert (ready["version"], ready["latency"], ready["time"]) == (__version__, "wait-1", 0)
        assert ready["latencies"][0] == {"name": "low", "policy": "wait-1"}
        assert ready["limits"] == {"message_bytes": 2000, "words": 200, "idle_seconds": 300}
        for number, words in enumerate(["ab", "c d", "", "   ", "em"], start=1):
            client.say(words)
            message = client.receive_done(number)
        assert message["ends"] == [{"sentence": 0, "source": 4, "length": 4}]
        client.finish()
        assert client.receive_until("final")["sentences"] == 1, "there was nothing left to finish"
        assert client.words == texts(alone(model, ["ab", "c", "d", "em"], "wait-1"))


def test_another_latency_from_the_next_sentence_on(here: Site, model: Translator) -> None:
    first, second = [*"abcde", "fm"], [*"ghijk", "lm"]
    with here.connect() as client:
        client.start(latency="wait-1")
        for word in first[:3]:
            client.say(word)
        client.send({"type": "start", "latency": "wait-4"})
        assert client.receive_until("ready")["latency"] == "wait-4"
        for word in first[3:] + second:
            client.say(word)
        client.finish()
        client.receive_until("final")
        wanted = texts(alone(model, first, "wait-1"))
        wanted += [(word, 1, at + len(first)) for word, _, at in texts(alone(model, second, "wait-4"))]
        assert client.words == wanted


def test_a_latency_that_there_is_not(here: Site) -> None:
    with here.connect() as client:
        message = client.start(latency="agent-99999999999999999999999999999999999999999999999999")
        assert (message["code"], message["fatal"]) == ("protocol", False)
        assert client.start(latency="wait-x")["type"] == "error"
        assert client.start(latency="wait-3")["latency"] == "wait-3"
        assert client.start(latency="oracle-1")["type"] == "error"
        client.say("am")
        client.receive_done(1)  # it goes on


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
def test_mistakes(here: Site, frames: list[str | bytes], code: str, close: int) -> None:
    with here.connect() as client:
        for frame in frames:
            client.socket.send(frame)
        while (message := client.receive())["type"] != "error":
            pass
        assert (message["code"], message["fatal"]) == (code, True)
        assert message["message"]
        assert client.closed() == close
    until(here.is_empty, "leaving")


def test_a_frame_far_too_big_ends_the_connection(here: Site) -> None:
    with here.connect() as client:
        client.start()
        client.socket.send("x" * 1_000_000)
        assert client.closed() == 1009
    until(here.is_empty, "leaving")


def test_too_many_words_finish_what_was_fed(here: Site, model: Translator) -> None:
    talk = make_talk(3, 200)
    with here.connect() as client:
        client.start()
        for word in talk:
            client.say(word)
        client.say("a")
        assert client.receive_until("final")["ack"] == 200
        assert client.receive()["code"] == "too_many_words"
        assert client.closed() == 1008
        assert client.words == texts(alone(model, talk))


def test_a_place_for_each(here: Site) -> None:
    with contextlib.ExitStack() as left:
        clients = []
        for _ in range(8):
            clients.append(left.enter_context(here.connect()))
            assert clients[-1].start()["type"] == "ready"
        with here.connect() as one_more:
            assert one_more.start()["code"] == "too_many_sessions"
            assert one_more.closed() == 1013
        status, _, body = post(here, {"text": "a"})
        assert (status, json.loads(body)["code"]) == (503, "too_many_sessions")
        clients[0].close()
        until(lambda: len(here.manager.sessions) == 7, "leaving")
        with here.connect() as client:
            assert client.start()["type"] == "ready"
    until(here.is_empty, "leaving")


def test_who_says_nothing_takes_no_place_of_others_for_ever(model: Translator) -> None:
    with site(make_served(model), Limits(sessions=2, handshake=0.3)) as running:
        with running.connect() as first, running.connect() as second, running.connect() as third:
            assert third.receive()["code"] == "too_many_sessions"
            for client in (first, second):
                assert client.receive()["code"] == "idle"
                assert client.closed() == 1008
        with running.connect() as client:
            assert client.start()["type"] == "ready"


# HTTP


def fetch(here: Site, path: str, data: bytes | None = None, **headers: str) -> tuple[int, str, str]:
    """Status, content type, body."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://127.0.0.1:{here.port}{path}", data, names)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def post(here: Site, table: object, **headers: str) -> tuple[int, str, str]:
    return fetch(here, "/v1/translate", json.dumps(table).encode(), **headers)


def events(body: str) -> list[dict[str, Any]]:
    found = []
    for block in body.strip().split("\n\n"):
        name, data = block.split("\n")
        message = json.loads(data.removeprefix("data: "))
        assert name == f"event: {message['type']}"
        found.append(message)
    return found


def test_translate(here: Site, model: Translator) -> None:
    talk = make_talk(5)
    status, kind, body = post(here, {"text": " ".join(talk), "latency": "high"})
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    found = events(body)
    assert [message["seq"] for message in found] == list(range(1, len(found) + 1))
    assert (found[0]["type"], found[0]["latency"], found[-1]["type"]) == ("ready", "wait-5", "final")
    words = [w for message in found if message["type"] == "commit" for w in message["words"]]
    assert [(w["text"], w["sentence"], w["source"]) for w in words] == texts(alone(model, talk, "wait-5"))
    assert found[-1]["source_words"] == 40
    until(here.is_empty, "leaving")


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"no", 400, "protocol"),
        (b"[]", 400, "protocol"),
        (b"{}", 400, "protocol"),
        (b'{"text":1}', 400, "protocol"),
        (b'{"text":"a","latency":"x"}', 400, "protocol"),
        (b"x" * 2001, 413, "too_big"),
        (json.dumps({"text": "a " * 201}).encode(), 413, "too_many_words"),
    ],
)
def test_translate_mistakes(here: Site, data: bytes, status: int, code: str) -> None:
    found, kind, body = fetch(here, "/v1/translate", data)
    assert (found, kind, json.loads(body)["code"]) == (status, "application/json", code)
    until(here.is_empty, "leaving")


def test_health_and_counts(here: Site) -> None:
    status, _, body = fetch(here, "/healthz")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    with here.connect() as client:
        client.start()
        client.say("a b c")
        client.receive_done(1)
        status, kind, body = fetch(here, "/metrics")
        assert status == 200
        assert kind.startswith("text/plain; version=0.0.4")
    samples = dict(line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#"))
    label = next(iter(samples)).partition('"')[2].partition('"')[0]
    assert float(samples[f'whilst_sessions{{process="{label}"}}']) == 1
    assert float(samples[f'whilst_source_words_total{{process="{label}"}}']) >= 3
    buckets = [float(value) for name, value in samples.items() if name.startswith("whilst_message_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == float(samples[f'whilst_message_seconds_count{{process="{label}"}}'])


@pytest.mark.parametrize("path", ["/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/no.js", "/static/"])
def test_no_file_outside_of_the_page(here: Site, path: str) -> None:
    status, _, body = fetch(here, path)
    assert status == 404
    assert "import" not in body


# The end


def test_what_was_fed_is_finished_when_the_server_stops(model: Translator) -> None:
    talk = make_talk(8, 12)
    with site(make_served(model)) as running:
        silent, client = running.connect(), running.connect()
        silent.start()
        client.start()
        for word in talk:
            client.say(word)
        client.receive_until("commit")
        running.server.should_exit = True
        assert client.receive_until("final")["source_words"] == 12
        assert client.words == texts(alone(model, talk))
        for one in (client, silent):
            assert one.receive()["code"] == "shutdown"
            assert one.closed() == 1012
            one.close()
    with pytest.raises(OSError, match="refused"):
        running.connect()


def test_nobody_begins_when_the_server_stops(here: Site) -> None:
    here.manager.stopping = True
    try:
        with here.connect() as client:
            assert client.receive()["code"] == "shutdown"
            assert client.closed() == 1012
        assert fetch(here, "/healthz")[0] == 503
        assert post(here, {"text": "a"})[0] == 503
    finally:
        here.manager.stopping = False
