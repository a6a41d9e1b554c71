"""The number of live streams that a server can carry, measured with WebSocket clients on the same machine.

Every client sends words at a fixed rate, however slow the server is. A word's delay is the time from when it was
due until the commit that acknowledges it.
"""

import asyncio
import contextlib
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from whilst.core.console import console, notes
from whilst.core.errors import UserError
from whilst.data import toy
from whilst.data.vocabulary import UNK, Language
from whilst.live.loading import resolve
from whilst.live.terminal import TALK
from whilst.research.bench.common import report

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

    due: list[float] = field(default_factory=list)  # time of each word
    delays: list[float] = field(default_factory=list)  # of words after the warm-up
    acked: int = 0
    seq: int = 0
    words: int = 0
    wrong: list[str] = field(default_factory=list)  # violations of the protocol, errors

    def take(self, message: dict[str, Any], now: float, since: float) -> None:
        if message["seq"] != self.seq + 1:
            self.wrong.append(f"seq {message['seq']} after {self.seq}")
        self.seq = message["seq"]
        if message["type"] == "error":
            self.wrong.append(message["message"])
        if message["type"] != "commit":
            return
        self.words += len(message["words"])
        if message["ack"] < self.acked:
            self.wrong.append(f"ack {message['ack']} after {self.acked}")
        for due in self.due[self.acked : message["ack"]]:
            if due >= since:
                self.delays.append(now - due)
        self.acked = min(message["ack"], len(self.due))


@dataclass(frozen=True)
class Result:
    streams: int
    words: int  # acknowledged after the warm-up
    p50: float  # ms
    p95: float
    p99: float
    most: float
    lost: int  # words without a commit
    wrong: int
    batch: float  # mean number of sessions in a call of the model
    megabytes: float  # of the server

    def holds(self, limit: float) -> bool:
        return self.p99 < limit and not self.lost and not self.wrong


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


async def stream(url: str, load: Load, words: Sequence[str], began: float, phase: float) -> Received:
    """One client: sends each word when it is due, receives all the while, and finishes."""
    from websockets.asyncio.client import connect

    received, since = Received(), began + WARM_UP
    async with connect(url, compression=None, max_queue=None, open_timeout=60) as client:
        await client.send(json.dumps({"type": "start", "latency": load.latency}))
        received.take(json.loads(await client.recv()), 0.0, since)

        async def listen() -> None:
            async for frame in client:
                message = json.loads(frame)
                received.take(message, time.monotonic(), since)
                if message["type"] == "final" and message["source_words"] != len(received.due):
                    received.wrong.append(f"{message['source_words']} of {len(received.due)} words")
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


async def probe(url: str, load: Load, words: Sequence[str]) -> list[Received]:
    """All streams: evenly spread in time, each at another place of the text."""
    began = time.monotonic() + 0.5 + load.streams / 200  # after all have connected
    step = len(words) // load.streams or 1
    tasks = []
    for number in range(load.streams):
        mine = [*words[number * step :], *words[: number * step]]
        tasks.append(stream(url, load, mine, began, number / load.streams))
    return await asyncio.gather(*tasks)


@contextlib.contextmanager
def serving(model: str, sessions: int, options: Sequence[str]) -> Iterator["Server"]:
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


def measure(server: Server, load: Load, words: Sequence[str]) -> Result:
    calls, rows = server.sum("whilst_steps_total"), server.sum("whilst_step_rows_total")
    found = asyncio.run(probe(f"ws://{server.host}/v1/stream", load, words))
    delays = sorted(1000 * delay for received in found for delay in received.delays)
    if not delays:
        raise UserError(f"no word was acknowledged: {found[0].wrong[:1]}")
    for line in {text for received in found for text in received.wrong}:
        notes.print(f"wrong: {line}")
    calls, rows = server.sum("whilst_steps_total") - calls, server.sum("whilst_step_rows_total") - rows
    p50, p95, p99 = (delays[math.ceil(share * len(delays)) - 1] for share in (0.5, 0.95, 0.99))
    lost = sum(len(received.due) - received.acked for received in found)
    wrong = sum(len(received.wrong) for received in found)
    memory = server.sum("whilst_resident_bytes") / 2**20
    return Result(load.streams, len(delays), p50, p95, p99, delays[-1], lost, wrong, rows / max(1, calls), memory)


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
    results: list[Result] = []
    with serving(model, max(most, streams or 0), options) as server:
        asyncio.run(probe(f"ws://{server.host}/v1/stream", Load(2, seconds=1), words))  # warms up
        idle = server.sum("whilst_resident_bytes") / 2**20
        precision = json.loads(server.get("/healthz"))["precision"]

        def attempt(number: int) -> bool:
            result = measure(server, replace(load, streams=number), words)
            notes.print(f"{number} streams: p99 {result.p99:.0f} ms")
            results.append(result)
            return result.holds(limit)

        found = largest(attempt, min(8, most) if streams is None else streams, streams or most)
    top = max(results, key=lambda result: result.streams)
    about = {
        "model": Path(model).name,
        "precision": precision,
        "words/s a stream": load.rate,
        "latency": load.latency,
        "seconds": load.seconds,
        "cores": os.cpu_count(),
        "options": " ".join(options),
        "MiB a session": (top.megabytes - idle) / top.streams,
        "limit of p99 (ms)": limit,
        "streams within it": found,
    }
    rows = [asdict(result) for result in sorted(results, key=lambda result: result.streams)]
    report("serve", about, rows, torch.device("cpu"), out)
    console.print(f"p99 below {limit:g} ms, nothing lost: {found} streams")
