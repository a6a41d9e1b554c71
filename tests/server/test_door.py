"""Who may come in: tokens and the origins of pages, by WebSocket and by HTTP."""

from collections.abc import Iterator

import pytest

from tests.helpers.sites import Site, make_served, site
from tests.server.test_server import fetch, post
from whilst.model.transformer import Translator
from whilst.server.sessions import AccessControl


@pytest.fixture(scope="module")
def guarded(model: Translator) -> Iterator[Site]:
    with site(make_served(model), access=AccessControl("söcret", ("https://good.example",))) as running:
        yield running


@pytest.mark.parametrize("token", ["", "wrong", "söcre"])
def test_a_wrong_token(guarded: Site, token: str) -> None:
    with guarded.connect() as client:
        assert client.start(token=token)["code"] == "unauthorized"
        assert client.closed() == 1008
    assert post(guarded, {"text": "a"}, authorization=f"Bearer {token.encode().decode('latin-1')}")[0] == 401
    assert fetch(guarded, "/metrics")[0] == 401
    assert fetch(guarded, "/healthz")[0] == 200


def test_the_right_token(guarded: Site) -> None:
    token = "bearer " + "söcret".encode().decode("latin-1")
    with guarded.connect() as client:
        assert client.start(token="söcret")["type"] == "ready"
    with guarded.connect(additional_headers={"authorization": token}) as client:
        assert client.start()["type"] == "ready"
    assert post(guarded, {"text": "a"}, authorization=token)[0] == 200
    assert fetch(guarded, "/metrics", authorization=token)[0] == 200


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
def test_origins(guarded: Site, origin: str, allowed: bool) -> None:
    origin = origin.format(port=guarded.port)
    with guarded.connect(additional_headers={"origin": origin}) as client:
        message = client.start(token="söcret") if allowed else client.receive()
        assert message["type"] == ("ready" if allowed else "error")
        if not allowed:
            assert (message["code"], client.closed()) == ("origin", 1008)
    header = {"authorization": "Bearer " + "söcret".encode().decode("latin-1")}
    assert post(guarded, {"text": "a"}, origin=origin, **header)[0] == (200 if allowed else 403)
