"""HTTP POST /v1/translate: a text in, its translation out as server-sent events."""

import asyncio
import time
from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
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


class EventStream(EventSourceResponse):
    """The messages of a session until it is final or the client disconnects."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        limits = session.manager.limits
        events = self._events()
        super().__init__(events, sep="\n", send_timeout=limits.send, shutdown_grace_period=2 * limits.drain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        manager = self._session.manager
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            manager.metrics.count_error("slow")
        finally:
            manager.close(self._session)

    async def _events(self) -> AsyncIterator[dict[str, str]]:
        encoder, message = MessageEncoder(), self._session.ready_message()
        while True:
            yield {"event": message["type"], "data": encoder.encode(message, time.monotonic())}
            if message["type"] in ("final", "error"):
                return
            try:
                message = await self._session.next_message()
            except SessionError as error:
                self._session.manager.metrics.count_error(error.code)
                message = error.to_message()
