"""Measure how many live streams and watchers a server can carry, with WebSocket clients on the same machine.

Every client sends words at a fixed rate, however slow the server is. A word's delay is the time from when the word
was due until the commit that acknowledges it.
"""

import asyncio
import contextlib
import itertools
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
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch

from whilst.core.console import console, notes
from whilst.core.distributed import device_name
from whilst.core.errors import UserError
from whilst.core.files import find_model
from whilst.core.provenance import provenance
from whilst.data import toy
from whilst.data.vocabulary import UNK, Language
from whilst.live.terminal import TALK
from whilst.research.bench_report import Figures, report

WARM_UP = 2.0  # seconds at the start of a probe that are not measured


@dataclass(frozen=True)
class Load:
    """The load of one probe."""

    streams: int
    rate: float = 3.0  # words per second of each stream
    seconds: float = 10.0
    latency: str = "medium"


@dataclass
class Received:
    """What one client received."""

    due: list[float]  # when each source word was due
    acknowledged: list[float] = field(default_factory=list)  # when each source word was acknowledged
    # For each target word, when the last source word acknowledged with it was due, and when the target word came.
    written: list[tuple[float, float]] = field(default_factory=list)
    error: str = ""


def talk(language: Language) -> list[str]:
    """Words to send: the demo's with punctuation attached or apart, or the toy's, by the fewest unknown units."""

    def unknown(words: Sequence[str]) -> float:
        ids = language.encode(words)
        return ids.count(UNK) / len(ids)

    attached = TALK.read_text(encoding="utf-8")
    apart = re.sub(r"([.,])", r" \1", attached)
    toys = [word for pair in toy.pairs(200, 7) for word in pair.source]
    return min((attached.split(), apart.split(), toys), key=unknown)


def get(host: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{host}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def metric(host: str, name: str) -> float:
    """The sum of a metric over all labels and workers."""
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", get(host, "/metrics"), re.MULTILINE)
    return sum(map(float, values))


@contextlib.contextmanager
def serving(model: str, sessions: int, options: Sequence[str]) -> Iterator[str]:
    """A server in its own process; yields its host and port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "whilst", "serve", "--model", model, "--port", str(port)]
    process = subprocess.Popen([*command, "--sessions", str(sessions), *options])
    host, deadline = f"127.0.0.1:{port}", time.monotonic() + 120
    try:
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                get(host, "/readyz")
                break
            time.sleep(0.1)
        else:
            raise UserError("the server did not start; see its message above")
        yield host
    finally:
        process.terminate()
        process.wait(60)


async def stream(
    host: str, load: Load, words: Sequence[str], began: float, index: int, query: str = ""
) -> Received:
    """Run one client, which sends each word when it is due, receives meanwhile, and finishes.

    Streams are spread evenly in time; each begins at another position of the text.
    """
    from websockets.asyncio.client import connect

    count = int((WARM_UP + load.seconds) * load.rate)
    due = [began + (number + index / load.streams) / load.rate for number in range(count)]
    received = Received(due)
    text = itertools.islice(itertools.cycle(words), index * (len(words) // load.streams or 1), None)
    url = f"ws://{host}/v1/stream{query}"
    async with connect(url, compression=None, max_queue=None, open_timeout=60) as client:
        await client.send(json.dumps({"type": "start", "latency": load.latency}))

        async def listen() -> None:
            async for frame in client:
                message = json.loads(frame)
                match message["type"]:
                    case "commit":
                        new = min(message["ack"], len(due)) - len(received.acknowledged)  # finish has an ack too
                        now = time.monotonic()
                        received.acknowledged += [now] * new
                        last = due[min(message["ack"], len(due)) - 1]
                        received.written += [(last, now)] * len(message["words"])
                    case "error":
                        received.error = message["message"]
                        return
                    case "final":
                        return

        listening = asyncio.create_task(listen())
        for number, (moment, word) in enumerate(zip(due, text, strict=False), start=1):
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            await client.send(json.dumps({"type": "words", "seq": number, "text": word}))
        await client.send(json.dumps({"type": "finish", "seq": len(due) + 1}))
        try:
            await asyncio.wait_for(listening, 60)
        except TimeoutError:
            received.error = "no final"
    return received


async def probe(host: str, load: Load, words: Sequence[str]) -> list[Received]:
    began = time.monotonic() + 0.5 + load.streams / 200  # leaves time for all to connect
    return await asyncio.gather(*(stream(host, load, words, began, index) for index in range(load.streams)))


def percentiles(delays: Sequence[float]) -> Figures:
    values = np.percentile(delays, (50, 95, 99, 100), method="inverted_cdf").tolist()
    return dict(zip(("p50", "p95", "p99", "most"), values, strict=True))


def measure(host: str, load: Load, words: Sequence[str]) -> Figures:
    """Run one probe. Delays are in ms; `batch` is the mean number of sessions in a call of the model."""
    calls, rows = metric(host, "whilst_steps_total"), metric(host, "whilst_step_rows_total")
    clients = asyncio.run(probe(host, load, words))
    skipped = math.ceil(WARM_UP * load.rate)  # words of the warm-up
    times = [list(zip(client.due, client.acknowledged, strict=False))[skipped:] for client in clients]
    delays = [1000 * (acknowledged - due) for pairs in times for due, acknowledged in pairs]
    if not delays:
        raise UserError(f"no word was acknowledged: {clients[0].error or 'the server is too slow'}")
    errors = [client.error for client in clients if client.error]
    for error in set(errors):
        notes.print(f"streams failed: {error}")
    calls, rows = metric(host, "whilst_steps_total") - calls, metric(host, "whilst_step_rows_total") - rows
    return {
        "streams": load.streams,
        "words": len(delays),  # acknowledged after the warm-up
        **percentiles(delays),
        "lost": sum(len(client.due) - len(client.acknowledged) for client in clients),
        "wrong": len(errors),
        "batch": rows / max(1, calls),
        "megabytes": metric(host, "whilst_resident_bytes") / 2**20,
    }


def largest(attempt: Callable[[int], bool], first: int, most: int) -> int:
    """The largest number up to `most`, to about a tenth, for which `attempt` is true; 0 if `first` fails."""
    good, bad, number = 0, most + 1, first
    while bad - good > max(1, good // 10):
        good, bad = (number, bad) if attempt(number) else (good, number)
        if not good:
            break
        number = (good + bad) // 2 if bad <= most else min(2 * good, most)
    return good


def serve_bench(
    model: str, streams: int | None, load: Load, limit: float, most: int, options: Sequence[str], out: Path | None
) -> None:
    """Measure this number of streams, or search for the largest whose p99 delay stays below `limit` (ms)."""
    words = talk(Language.load(find_model(model), "source"))
    results: list[Figures] = []
    with serving(model, max(most, streams or 0), options) as host:
        idle = measure(host, Load(2, seconds=1), words)["megabytes"]  # also warms up
        precision = json.loads(get(host, "/healthz"))["precision"]

        def attempt(number: int) -> bool:
            result = measure(host, replace(load, streams=number), words)
            notes.print(f"{number} streams: p99 {result['p99']:.0f} ms")
            results.append(result)
            return result["p99"] < limit and not result["lost"] and not result["wrong"]

        carried = largest(attempt, min(8, most) if streams is None else streams, streams or most)
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
        "streams within it": carried,
    }
    report("serve", about, results, provenance(device_name(torch.device("cpu"))), out)
    console.print(f"p99 below {limit:g} ms, nothing lost: {carried} streams")


async def watch(host: str, name: str) -> list[float]:
    """Watch a stream until cancelled; returns when each word came."""
    from websockets.asyncio.client import connect

    arrivals: list[float] = []
    async with connect(f"ws://{host}/v1/watch/{name}", compression=None, open_timeout=120) as client:
        with contextlib.suppress(asyncio.CancelledError):
            async for frame in client:
                now = time.monotonic()
                arrivals += [now] * len(json.loads(frame).get("words", []))
    return arrivals


async def talk_to(host: str, load: Load, words: Sequence[str], watchers: int) -> tuple[Received, list[list[float]]]:
    """Run one speaker with this number of watchers, who are all connected before the first word."""
    name, watching = f"bench-{watchers}", []
    for number in range(watchers):
        watching.append(asyncio.create_task(watch(host, name)))
        if number % 50 == 49:
            await asyncio.sleep(0.2)  # not all at once
    while metric(host, "whilst_open_watchers") < watchers:
        await asyncio.sleep(0.1)
    received = await stream(host, load, words, time.monotonic() + 0.5, 0, f"?publish={name}")
    await asyncio.sleep(2)  # for watchers that are behind
    for task in watching:
        task.cancel()
    return received, await asyncio.gather(*watching)


def watch_bench(model: str, watchers: Sequence[int], load: Load, options: Sequence[str], out: Path | None) -> None:
    """Report delays from when a source word was due until speaker and watchers have the words written for it."""
    words = talk(Language.load(find_model(model), "source"))
    rows: list[Figures] = []
    with serving(model, 4, options) as host:
        measure(host, Load(2, seconds=1), words)  # warms up
        for count in watchers:
            speaker, heard = asyncio.run(talk_to(host, load, words, count))
            if speaker.error or not speaker.written:
                raise UserError(f"the speaker's session failed: {speaker.error or 'no word was written'}")
            due = [due for due, _ in speaker.written]
            delays = [1000 * (now - then) for arrivals in heard for then, now in zip(due, arrivals, strict=False)]
            of_speaker = percentiles([1000 * (now - then) for then, now in speaker.written])
            rows.append(
                {
                    "watchers": count,
                    "words": len(due),
                    **percentiles(delays),
                    "lost": sum(len(due) - len(arrivals) for arrivals in heard),
                    "speaker p50": of_speaker["p50"],
                    "speaker p99": of_speaker["p99"],
                    "megabytes": metric(host, "whilst_resident_bytes") / 2**20,
                }
            )
    about = {"model": Path(model).name, "words/s": load.rate, "seconds": load.seconds, "cores": os.cpu_count()}
    report("watch", about | {"options": " ".join(options)}, rows, provenance(device_name(torch.device("cpu"))), out)
