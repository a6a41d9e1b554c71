"""The number of live streams that a server can carry, measured with WebSocket clients on the same machine.

Every client sends words at a fixed rate, however slow the server is. A word's delay is the time from when it was
due until the commit that acknowledges it.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whilst.core.console import console, notes
from whilst.core.errors import UserError
from whilst.data import toy
from whilst.data.vocabulary import UNK, Language
from whilst.live.loading import resolve
from whilst.live.terminal import TALK
from whilst.research.bench.common import Figures, report

WARM_UP = 2.0  # seconds at the start of a probe that do not count


@dataclass(frozen=True)
class Load:
    """What one probe demands of the server."""

    streams: int
    rate: float = 3.0  # words per second of each stream
    seconds: float = 10.0
    latency: str = "medium"


@dataclass
class Received:
    """What one client received."""

    since: float  # time; words that are due before it belong to the warm-up
    due: list[float] = field(default_factory=list)  # time of each word
    delays: list[float] = field(default_factory=list)  # of words after the warm-up
    acked: int = 0
    seq: int = 0
    wrong: list[str] = field(default_factory=list)  # violations of the protocol, errors

    def take(self, message: dict[str, Any]) -> None:
        if message["seq"] != self.seq + 1:
            self.wrong.append(f"seq {message['seq']} after {self.seq}")
        self.seq = message["seq"]
        match message["type"]:
            case "error":
                self.wrong.append(message["message"])
            case "final" if message["source_words"] != len(self.due):
                self.wrong.append(f"{message['source_words']} of {len(self.due)} words")
            case "commit":
                self.acknowledge(message["ack"], time.monotonic())

    def acknowledge(self, count: int, now: float) -> None:
        if count < self.acked:
            self.wrong.append(f"ack {count} after {self.acked}")
        self.delays += [now - due for due in self.due[self.acked : count] if due >= self.since]
        self.acked = min(count, len(self.due))


def talk(language: Language) -> list[str]:
    """Words that suit the vocabulary: of the toy language, or the demo's, with punctuation attached or apart."""

    def units(words: Sequence[str]) -> float:
        """Units per letter; an unknown unit counts as one for each letter."""
        ids, _ = language.encode(words)
        letters = sum(map(len, words))
        return (len(ids) + letters * sum(unit == UNK for unit in ids) / len(ids)) / letters

    toys = [word for pair in toy.pairs(200, 7) for word in pair.source]
    attached = TALK.read_text(encoding="utf-8")
    apart = re.sub(r"([.,])", r" \1", attached)
    return min((toys, apart.split(), attached.split()), key=units)


@dataclass(frozen=True)
class Server:
    host: str

    def is_healthy(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.get("/readyz"))
        return False

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.host}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def sum(self, name: str) -> float:
        """The sum of a metric over all labels and workers."""
        found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        return sum(map(float, found))

    def megabytes(self) -> float:
        return self.sum("whilst_resident_bytes") / 2**20


@contextlib.contextmanager
def serving(model: str, sessions: int, options: Sequence[str]) -> Iterator[Server]:
    """A server in its own process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "whilst", "serve", "--model", model, "--port", str(port)]
    process = subprocess.Popen([*command, "--sessions", str(sessions), *options])
    server, deadline = Server(f"127.0.0.1:{port}"), time.monotonic() + 120
    try:
        while not server.is_healthy():
            if process.poll() is not None or time.monotonic() > deadline:
                raise UserError("the server did not start; see its message above")
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait(60)


async def stream(server: Server, load: Load, words: Sequence[str], began: float, phase: float) -> Received:
    """One client: sends each word when it is due, receives all the while, and finishes."""
    from websockets.asyncio.client import connect

    received = Received(since=began + WARM_UP)
    url = f"ws://{server.host}/v1/stream"
    async with connect(url, compression=None, max_queue=None, open_timeout=60) as client:
        await client.send(json.dumps({"type": "start", "latency": load.latency}))
        received.take(json.loads(await client.recv()))

        async def listen() -> None:
            async for frame in client:
                message = json.loads(frame)
                received.take(message)
                if message["type"] in ("final", "error"):
                    return

        listening = asyncio.create_task(listen())
        for number in range(int((WARM_UP + load.seconds) * load.rate)):
            due = began + (number + phase) / load.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            received.due.append(due)
            word = words[number % len(words)]
            await client.send(json.dumps({"type": "words", "seq": number + 1, "text": word}))
        await client.send(json.dumps({"type": "finish", "seq": len(received.due) + 1}))
        try:
            await asyncio.wait_for(listening, 60)
        except TimeoutError:
            received.wrong.append("no final")
    return received


async def probe(server: Server, load: Load, words: Sequence[str]) -> list[Received]:
    """All streams: evenly spread in time, each at another place of the text."""
    began = time.monotonic() + 0.5 + load.streams / 200  # after all have connected
    step = len(words) // load.streams or 1
    tasks = []
    for number in range(load.streams):
        mine = [*words[number * step :], *words[: number * step]]
        tasks.append(stream(server, load, mine, began, number / load.streams))
    return await asyncio.gather(*tasks)


def measure(server: Server, load: Load, words: Sequence[str]) -> Figures:
    """One probe. Delays are in ms; `batch` is the mean number of sessions in a call of the model."""
    calls, rows = server.sum("whilst_steps_total"), server.sum("whilst_step_rows_total")
    found = asyncio.run(probe(server, load, words))
    delays = [1000 * delay for received in found for delay in received.delays]
    if not delays:
        raise UserError(f"no word was acknowledged: {found[0].wrong[:1]}")
    for line in {text for received in found for text in received.wrong}:
        notes.print(f"wrong: {line}")
    calls, rows = server.sum("whilst_steps_total") - calls, server.sum("whilst_step_rows_total") - rows
    p50, p95, p99, most = np.percentile(delays, (50, 95, 99, 100), method="inverted_cdf").tolist()
    return {
        "streams": load.streams,
        "words": len(delays),  # acknowledged after the warm-up
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "most": most,
        "lost": sum(len(received.due) - received.acked for received in found),
        "wrong": sum(len(received.wrong) for received in found),
        "batch": rows / max(1, calls),
        "megabytes": server.megabytes(),
    }


def largest(attempt: Callable[[int], bool], first: int, most: int) -> int:
    """The largest number, to about a tenth, for which `attempt` is true; 0 if `first` is too many."""
    good, bad = 0, most + 1
    number = first
    while good < number <= most:
        if not attempt(number):
            bad = number
            break
        good, number = number, min(2 * number, most)
    while good and bad - good > max(1, good // 10):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if attempt(middle) else (good, middle)
    return good


def serve_bench(
    model: str, streams: int | None, load: Load, limit: float, most: int, options: Sequence[str], out: Path | None
) -> None:
    """Measure `streams`, or search for the largest number whose p99 delay stays below `limit` (ms)."""
    words = talk(Language.load(resolve(model), "source"))
    results: list[Figures] = []
    with serving(model, max(most, streams or 0), options) as server:
        asyncio.run(probe(server, Load(2, seconds=1), words))  # warms up
        idle = server.megabytes()
        precision = json.loads(server.get("/healthz"))["precision"]

        def attempt(number: int) -> bool:
            result = measure(server, replace(load, streams=number), words)
            notes.print(f"{number} streams: p99 {result['p99']:.0f} ms")
            results.append(result)
            return result["p99"] < limit and not result["lost"] and not result["wrong"]

        found = largest(attempt, min(8, most) if streams is None else streams, streams or most)
    results.sort(key=itemgetter("streams"))
    top = results[-1]
    about = {
        "model": Path(model).name,
        "precision": precision,
        "words/s a stream": load.rate,
        "latency": load.latency,
        "seconds": load.seconds,
        "cores": os.cpu_count(),
        "options": " ".join(options),
        "MiB a session": (top["megabytes"] - idle) / top["streams"],
        "limit of p99 (ms)": limit,
        "streams within it": found,
    }
    report("serve", about, results, torch.device("cpu"), out)
    console.print(f"p99 below {limit:g} ms, nothing lost: {found} streams")
