"""HTTP POST /v1/translate: a text in, its translation out as server-sent events, each when it is ready."""

import asyncio
import time

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from whilst.server.protocol import (
    STATUS,
    Finish,
    Limits,
    Message,
    Numbering,
    SessionError,
    Words,
    check_size,
    load,
    text_of,
)
from whilst.server.talk import Hub, Talk

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would wait for more
]


def refuse(hub: Hub, fault: SessionError) -> Response:
    hub.meter.error(fault.code)
    return JSONResponse(fault.told(), STATUS.get(fault.code, 400))


async def translate(hub: Hub, request: Request) -> Response:
    try:
        hub.door.check_origin(request.headers)
        hub.door.check_token(request.headers)
        table = load(await body(request, hub.limits))
        policy = hub.policy(text_of(table, "latency", "medium"))
        talk = hub.begin("translate", policy)
        try:
            talk.tell(Words(1, text_of(table, "text")))
        except SessionError:
            hub.close(talk)
            raise
        talk.tell(Finish(2))
    except SessionError as fault:
        return refuse(hub, fault)
    except ClientDisconnect:
        return Response()
    return Events(talk)


async def body(request: Request, limits: Limits) -> bytes:
    found = b""
    try:
        async with asyncio.timeout(limits.greeting):
            async for chunk in request.stream():
                found += chunk
                check_size(len(found), limits)
    except TimeoutError:
        raise SessionError(
            "idle", f"the text did not come within {limits.greeting:g} seconds; send it at once"
        ) from None
    return found


class Events(Response):
    """What comes of a session, until it is final or the client leaves; a server that is stopped waits for that."""

    def __init__(self, talk: Talk) -> None:
        super().__init__()
        self.talk = talk
        self._number = Numbering()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(self._left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.talk.hub.close(self.talk)
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        if not sending.cancelled() and isinstance(error := sending.exception(), TimeoutError):
            self.talk.hub.meter.error("slow")
        elif not sending.cancelled() and error is not None and not isinstance(error, OSError):
            raise error

    async def _left(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        message = self.talk.ready()
        while True:
            last = message["type"] in ("final", "error")
            chunk = self._event(message)
            async with asyncio.timeout(self.talk.hub.limits.slow):
                await send({"type": "http.response.body", "body": chunk, "more_body": not last})
            if last:
                return
            try:
                message = await self.talk.next()
            except SessionError as fault:
                self.talk.hub.meter.error(fault.code)
                message = fault.told()

    def _event(self, message: Message) -> bytes:
        return f"event: {message['type']}\ndata: {self._number(message, time.monotonic())}\n\n".encode()
