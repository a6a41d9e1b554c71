"""HTTP POST /v1/translate: a text in, its translation out as server-sent events."""

import asyncio
import time

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from whilst.server.protocol import (
    Finish,
    Limits,
    MessageEncoder,
    SessionError,
    Words,
    check_size,
    parse_object,
    string_field,
)
from whilst.server.sessions import ClientSession, SessionManager

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # for nginx
]


def error_response(manager: SessionManager, error: SessionError) -> Response:
    manager.metrics.count_error(error.code)
    return JSONResponse(error.to_message(), error.http_status)


async def translate(manager: SessionManager, request: Request) -> Response:
    try:
        manager.access.check_origin(request.headers)
        manager.access.check_token(request.headers)
        table = parse_object(await read_body(request, manager.limits))
        policy = manager.find_policy(string_field(table, "latency", "medium"))
        session = manager.open("translate", policy)
        try:
            session.add(Words(1, string_field(table, "text")))
        except SessionError:
            manager.close(session)
            raise
        session.add(Finish(2))
    except SessionError as error:
        return error_response(manager, error)
    except ClientDisconnect:
        return Response()
    return EventStream(session)


async def read_body(request: Request, limits: Limits) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(limits.handshake):
            async for chunk in request.stream():
                body += chunk
                check_size(len(body), limits)
    except TimeoutError:
        message = f"the text did not arrive within {limits.handshake:g} seconds; send it at once"
        raise SessionError("idle", message) from None
    return body


class EventStream(Response):
    """The messages of a session until it is final or the client disconnects."""

    def __init__(self, session: ClientSession) -> None:
        super().__init__()
        self.session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        manager = self.session.manager
        sending = asyncio.create_task(self._send(send))
        disconnect = asyncio.create_task(self._wait_for_disconnect(receive))
        try:
            await asyncio.wait({sending, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            manager.close(self.session)
            for task in (sending, disconnect):
                task.cancel()
            await asyncio.gather(sending, disconnect, return_exceptions=True)
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, TimeoutError):
            manager.metrics.count_error("slow")
        elif error is not None and not isinstance(error, OSError):  # OSError: the client has disconnected
            raise error

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _send(self, send: Send) -> None:
        manager, encoder = self.session.manager, MessageEncoder()
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        message = self.session.ready_message()
        while True:
            last = message["type"] in ("final", "error")
            data = encoder.encode(message, time.monotonic())
            chunk = f"event: {message['type']}\ndata: {data}\n\n".encode()
            async with asyncio.timeout(manager.limits.send):
                await send({"type": "http.response.body", "body": chunk, "more_body": not last})
            if last:
                return
            try:
                message = await self.session.next_message()
            except SessionError as error:
                manager.metrics.count_error(error.code)
                message = error.to_message()
