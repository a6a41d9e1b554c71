"""`whilst serve` as a process of its own, for tests that talk to it from outside."""

import contextlib
import dataclasses
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import make_model
from tests.helpers.runs import ENVIRONMENT, command, short_recipe
from whilst.core.settings import Data, Evaluate
from whilst.data.dataset import Dataset
from whilst.model.checkpoint import save_tensors, write_run

PATIENCE = 100.0  # seconds: a shared machine is slow at times


def write_run_without_agent(folder: Path, dataset: Dataset, data: Data) -> Path:
    """A run that was never trained: it says nonsense, but other nonsense for another source, and not too much."""
    evaluate = Evaluate(max_ratio=1.0, max_extra=3, unknown="keep")  # every unit is a word, and can be counted
    recipe = dataclasses.replace(short_recipe(data, folder), evaluate=evaluate)
    write_run(folder, recipe, dataset.source, dataset.target)
    model = make_model(recipe.model, (len(dataset.source), len(dataset.target)), seed=8).float()
    save_tensors(folder / "model.safetensors", model.state_dict(), {})
    return folder


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port: int = place.getsockname()[1]
        return port


class Serving:
    """A server at a port of its own, which it has again when it is started again."""

    def __init__(self, model: str | Path, *options: str) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._command = command("serve", "--model", model, "--port", str(self.port), *options)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=ENVIRONMENT, stderr=subprocess.PIPE)
        end = time.monotonic() + PATIENCE
        while not self._healthy():
            if self._process.poll() is not None:
                assert self._process.stderr is not None
                raise AssertionError(self._process.stderr.read().decode())
            assert time.monotonic() < end, "it takes too long to start"
            time.sleep(0.05)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.communicate(timeout=PATIENCE)
        self._process = None


@contextlib.contextmanager
def serving(model: str | Path, *options: str) -> Iterator[Serving]:
    server = Serving(model, *options)
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGKILL)
