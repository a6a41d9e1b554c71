"""Tokens, origins, names of the server and headers, by WebSocket and HTTP."""

import json
import socket
from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus

from tests.helpers.serving import Client, LocalServer, fetch, local_server, make_served, post
from whilst.model.transformer import Translator
from whilst.server.sessions import AccessControl, default_hosts


@pytest.fixture(scope="module")
def server(model: Translator) -> Iterator[LocalServer]:
    with local_server(make_served(model), access=AccessControl("söcret", ("https://good.example",))) as server:
        yield server


@pytest.mark.parametrize("token", ["", "wrong", "söcre"])
def test_a_wrong_token(server: LocalServer, token: str) -> None:
    with server.connect() as client:
        assert client.start(token=token)["code"] == "unauthorized"
        assert client.close_code() == 1008
    assert post(server, {"text": "a"}, authorization=f"Bearer {token.encode().decode('latin-1')}")[0] == 401
    assert fetch(server, "/metrics")[0] == 401
    assert fetch(server, "/healthz")[0] == 200


def test_the_right_token(server: LocalServer) -> None:
    token = "bearer " + "söcret".encode().decode("latin-1")
    with server.connect() as client:
        assert client.start(token="söcret")["type"] == "ready"
    with server.connect(additional_headers={"authorization": token}) as client:
        assert client.start()["type"] == "ready"
    assert post(server, {"text": "a"}, authorization=token)[0] == 200
    assert fetch(server, "/metrics", authorization=token)[0] == 200


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://good.example", True),
        ("http://127.0.0.1:{port}", True),
        ("https://bad.example", False),
        ("https://good.example.bad.example", False),
        ("http://127.0.0.1:1", False),
        ("null", False),
        ("http://[", False),
    ],
)
def test_origins(server: LocalServer, origin: str, allowed: bool) -> None:
    origin = origin.format(port=server.port)
    with server.connect(additional_headers={"origin": origin}) as client:
        message = client.start(token="söcret") if allowed else client.receive()
        assert message["type"] == ("ready" if allowed else "error")
        if not allowed:
            assert (message["code"], client.close_code()) == ("origin", 1008)
    header = {"authorization": "Bearer " + "söcret".encode().decode("latin-1")}
    assert post(server, {"text": "a"}, origin=origin, **header)[0] == (200 if allowed else 403)


@pytest.fixture(scope="module")
def local(model: Translator) -> Iterator[LocalServer]:
    with local_server(make_served(model), access=AccessControl(hosts=("localhost",))) as server:
        yield server


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:80", "192.0.2.7"])
def test_the_names_of_the_server(local: LocalServer, host: str) -> None:
    assert fetch(local, "/", host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example", "[x"])
def test_other_names(local: LocalServer, host: str) -> None:
    """A page of evil.example whose name now leads here has the right origin."""
    status, _, body = fetch(local, "/", host=host)
    assert (status, json.loads(body)["code"]) == (421, "host")
    assert fetch(local, "/readyz", host=host)[0] == 200, "probes use any name"


def test_other_names_by_websocket(local: LocalServer) -> None:
    with (
        socket.create_connection(("127.0.0.1", local.port)) as connection,
        pytest.raises(InvalidStatus, match="421"),
    ):
        Client("ws://evil.example/v1/stream", {"sock": connection, "origin": "http://evil.example"})


def test_the_names_of_a_server_that_others_reach() -> None:
    assert default_hosts("127.0.0.1") == default_hosts("::1") == default_hosts("localhost") == ("localhost",)
    assert default_hosts("0.0.0.0") == default_hosts("example.org") == ("*",)


def test_headers_are_limited(local: LocalServer) -> None:
    many = {f"x_{number}": "" for number in range(70)}
    for headers in (many, {"x": "a" * 17_000}):
        status, _, body = fetch(local, "/", None, **headers)
        assert (status, json.loads(body)["code"]) == (431, "headers")
    with socket.create_connection(("127.0.0.1", local.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000)
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 4")


def test_a_connection_without_a_request_is_closed(local: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whilst.server.run.HEADER_TIMEOUT", 0.2)
    with socket.create_connection(("127.0.0.1", local.port)) as client, local.connect() as other:
        client.sendall(b"GET / HT")
        client.settimeout(30)
        assert client.recv(1) == b""
        assert other.start()["type"] == "ready", "one with a request stays"
