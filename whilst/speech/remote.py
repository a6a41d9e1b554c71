"""A session on a running `whilst serve`, over its WebSocket."""

import contextlib
import json
from typing import Any

from whilst.core.errors import UserError
from whilst.live.session import Event, SentenceEnd, Word


class RemoteSession:
    """Has the methods of `Session`. Each waits until the server has translated what it was sent."""

    def __init__(self, url: str, latency: str, token: str = "") -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        self._url, self._error, self._seq = url, WebSocketException, 0
        self._open = contextlib.ExitStack()
        scheme, separator, rest = url.partition("://")
        if not separator or scheme not in ("http", "https", "ws", "wss"):
            raise UserError(f"--serve {url}: give the address of a server, such as http://127.0.0.1:8000")
        address = f"{scheme.replace('http', 'ws')}://{rest.rstrip('/')}/v1/stream"
        try:
            self._socket = self._open.enter_context(connect(address, compression=None))
        except (OSError, WebSocketException) as error:
            raise UserError(f"--serve {url}: no connection ({error}); is `whilst serve` running there?") from None
        self._exchange({"type": "start", "latency": latency, "token": token}, "ready")

    def close(self) -> None:
        self._open.close()

    def feed(self, words: str) -> list[Event]:
        self._seq += 1
        return self._exchange({"type": "words", "seq": self._seq, "text": words}, "commit")

    def finish(self) -> list[Event]:
        self._seq += 1
        return self._exchange({"type": "finish", "seq": self._seq}, "final")

    def _exchange(self, message: dict[str, Any], answer: str) -> list[Event]:
        """The events up to the answer that acknowledges the message."""
        events: list[Event] = []
        try:
            self._socket.send(json.dumps(message))
            while True:
                reply = json.loads(self._socket.recv())
                if reply["type"] == "error":
                    raise UserError(f"{self._url}: {reply['message']}")
                if reply["type"] == "commit":
                    events += events_of(reply)
                if reply["type"] == answer and reply.get("ack", self._seq) >= self._seq:
                    return events
        except (OSError, self._error) as error:
            raise UserError(f"{self._url}: the connection is lost ({error})") from None


def events_of(reply: dict[str, Any]) -> list[Event]:
    """Of a commit, in the order of a session: the end of a sentence comes after its words."""
    words: list[Event] = [
        Word(word["text"], word["sentence"], word["source"], word["delay"]) for word in reply["words"]
    ]
    ends = [SentenceEnd(end["sentence"], end["source"], end["length"]) for end in reply["ends"]]
    return sorted([*words, *ends], key=lambda event: event.sentence)
