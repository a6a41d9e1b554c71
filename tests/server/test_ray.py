"""`whilst serve --ray`: two replicas on one machine."""

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
from tests.helpers.serving import Client, wait_until
from tests.server.test_serve import expected, make_run
from whilst.core.errors import UserError
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.server.ray import deployment
from whilst.server.run import ServeOptions

MISSING = importlib.util.find_spec("ray") is None


def test_a_missing_ray_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'whilst\[ray\]'"):
        deployment(ServeOptions(("run",)))


def sessions_opened(port: int) -> dict[str, int]:
    """Of the replica that answers, by process."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:  # not yet
        return {}
    (process,) = re.findall(r'whilst_resident_bytes{process="(\d+)"}', text)
    opened = re.findall(r'whilst_sessions_total{kind="stream"} (\S+)', text)
    return {process: int(sum(map(float, opened)))}


@pytest.mark.skipif(MISSING, reason="Ray is not installed: pip install 'whilst[ray]'")
def test_two_replicas(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> None:
    run = make_run(tmp_path / "run", toy_data, toy_dataset)
    words = " ".join(toy_dataset.text("test")[0][:3]).split()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = command("serve", "--ray", "--engine", "torch", "--workers", "2", "--model", run, "--port", str(port))
    process = subprocess.Popen(serve, env=ENVIRONMENT | {"RAY_USAGE_STATS_ENABLED": "0"}, start_new_session=True)

    replicas: dict[str, int] = {}

    def both() -> bool:
        assert process.poll() is None, "it ended before it should"
        replicas.update(sessions_opened(port))  # each request is answered by one of them
        return len(replicas) == 2

    try:
        wait_until(both, "both start", 300)
        with contextlib.ExitStack() as stack:
            url = f"ws://127.0.0.1:{port}/v1/stream"
            clients = [stack.enter_context(Client(url, {})) for _ in range(8)]
            for client in clients:
                client.start(latency="low")
                for word in words:
                    client.send_words(word)
            for client in clients:
                client.finish()
                assert client.receive_until("final")["source_words"] == len(words)
                assert client.words == expected(run, words, "agent-1")

        def busy() -> bool:
            replicas.update(sessions_opened(port))
            return sum(replicas.values()) == len(clients)

        wait_until(busy, "metrics of all sessions")
        assert min(replicas.values()) > 0, "both have sessions"
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(url, {})) for _ in range(4)]
            for client in clients:
                client.start(latency="low")
                for word in words[:-1]:
                    client.send_words(word)
                client.receive_until("commit")
            process.send_signal(signal.SIGTERM)
            for client in clients:
                assert client.receive_until("final")["source_words"] == len(words) - 1
                assert client.receive()["code"] == "shutdown"
                assert client.close_code() == 1012
                assert client.words == expected(run, words[:-1], "agent-1")
        assert process.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
