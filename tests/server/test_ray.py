"""`whilst serve --ray`: two replicas on one machine translate as a session does; without Ray it says so."""

import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.helpers.runs import ENVIRONMENT, command
from tests.helpers.sites import Client, until
from tests.server.test_serve import expected, make_run
from whilst.core.errors import UserError
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.server.ray import deployment
from whilst.server.run import ServeOptions

MISSING = importlib.util.find_spec("ray") is None


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'whilst\[ray\]'"):
        deployment(ServeOptions("run"))


def ask(port: int) -> dict[str, int]:
    """The replica that answers, and how many sessions it has had."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:  # not yet
        return {}
    (process,) = re.findall(r'whilst_resident_bytes{process="(\d+)"}', text)
    had = re.findall(r'whilst_sessions_total{process="\d+", kind="stream"} (\d+)', text)
    return {process: sum(map(int, had))}


@pytest.mark.skipif(MISSING, reason="Ray is not installed: pip install 'whilst[ray]'")
def test_two_replicas(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> None:
    run = make_run(tmp_path / "run", toy_data, toy_dataset)
    words = " ".join(toy_dataset.text("test")[0][:3]).split()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = command("serve", "--ray", "--workers", "2", "--model", run, "--port", str(port))
    process = subprocess.Popen(line, env=ENVIRONMENT | {"RAY_USAGE_STATS_ENABLED": "0"}, start_new_session=True)

    replicas: dict[str, int] = {}

    def both() -> bool:
        assert process.poll() is None, "it ended before it should"
        replicas.update(ask(port))  # each question is answered by one of them
        return len(replicas) == 2

    try:
        until(both, "starting both", 300)
        with contextlib.ExitStack() as left:
            url = f"ws://127.0.0.1:{port}/v1/stream"
            clients = [left.enter_context(Client(url, {})) for _ in range(8)]
            for client in clients:
                client.start(latency="low")
                for word in words:
                    client.say(word)
            for client in clients:
                client.finish()
                assert client.receive_until("final")["source_words"] == len(words)
                assert client.words == expected(run, words, "agent-1")

        def busy() -> bool:
            replicas.update(ask(port))
            return sum(replicas.values()) == len(clients)

        until(busy, "all sessions are counted")
        assert min(replicas.values()) > 0, "both have had sessions"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
