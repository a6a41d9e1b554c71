"""Tokens and origins, by WebSocket and HTTP."""

from collections.abc import Iterator

import pytest

from tests.helpers.serving import LocalServer, fetch, local_server, make_served, post
from whilst.model.transformer import Translator
from whilst.server.sessions import AccessControl


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
