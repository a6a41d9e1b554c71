"""WebSocket /v1/stream: one client's conversation, from its greeting to its end, however it ends."""

import asyncio
import time
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from whilst.server.protocol import GENTLE, Limits, Message, Numbering, SessionError, Start, parse
from whilst.server.talk import Hub, Talk

ABORT = "whilst.abort"  # in a scope's extensions: cuts the connection off (run.py)


class SlowError(Exception):
    """The client does not take what we send."""


class Line:
    """What is sent, with its number and its time."""

    def __init__(self, websocket: WebSocket, limits: Limits) -> None:
        self._websocket, self._limits = websocket, limits
        self._number = Numbering()

    async def send(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._limits.slow):
                await self._websocket.send_text(self._number(message, time.monotonic()))
        except TimeoutError:
            raise SlowError from None

    async def fail(self, fault: SessionError) -> None:
        await self.send(fault.told())
        await self._websocket.close(fault.close)

    def cut(self) -> None:
        """Without a word: there is no way to tell it."""
        for cut in self._websocket.scope.get("extensions", {}).get(ABORT, {}).values():
            cut()


async def converse(hub: Hub, websocket: WebSocket) -> None:
    await websocket.accept()
    line = Line(websocket, hub.limits)
    try:
        try:
            await session(hub, websocket, line)
        except SessionError as fault:
            hub.meter.error(fault.code)
            await line.fail(fault)
    except SlowError:
        hub.meter.error("slow")
        line.cut()
    except WebSocketDisconnect:
        pass


async def session(hub: Hub, websocket: WebSocket, line: Line) -> None:
    """Ends with a fault, or with a client that leaves."""
    hub.door.check_origin(websocket.headers)
    hub.check_open(hub.greeting)
    hub.greeting += 1
    try:
        async with asyncio.timeout(hub.limits.greeting):
            policy = await greet(hub, websocket, line)
    except TimeoutError:
        wait = hub.limits.greeting
        raise SessionError("idle", f"no start message within {wait:g} seconds; send one at once") from None
    finally:
        hub.greeting -= 1
    talk = hub.begin("stream", policy)
    try:
        await line.send(talk.ready())
        await exchange(talk, websocket, line)
    finally:
        hub.close(talk)


async def receive(websocket: WebSocket) -> str | bytes:
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005))
    frame: str | bytes | None = message.get("text")
    return message["bytes"] if frame is None else frame


async def greet(hub: Hub, websocket: WebSocket, line: Line) -> str:
    """The policy that the client wants; it may ask again for one that there is."""
    while True:
        message = parse(await receive(websocket), hub.limits)
        if not isinstance(message, Start):
            raise SessionError("protocol", 'the first message must be {"type":"start"}')
        hub.door.check_token(websocket.headers, message.token)
        try:
            return hub.policy(message.latency)
        except SessionError as fault:
            await line.send(fault.told())


async def exchange(talk: Talk, websocket: WebSocket, line: Line) -> None:
    """Both directions at once. Where that is fair, what was fed is finished before the end."""
    hearing = asyncio.create_task(hear(talk, websocket))
    saying = asyncio.create_task(say(talk, line))
    tasks = {hearing, saying}
    try:
        ends: list[asyncio.Future[Any]] = [hearing, saying, talk.stopped]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        fault = why(talk, hearing, saying)
        if fault.code in GENTLE:
            hearing.cancel()
            ending = asyncio.create_task(talk.end())
            tasks.add(ending)
            await asyncio.wait({ending, saying}, timeout=talk.hub.limits.grace, return_when=asyncio.FIRST_COMPLETED)
            if saying.done():
                saying.result()
        raise fault
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def why(talk: Talk, hearing: asyncio.Task[None], saying: asyncio.Task[None]) -> SessionError:
    """What ended it; raises what is none of its faults: a client that left, or is too slow."""
    try:
        for task in (saying, hearing):
            if task.done():
                task.result()
    except SessionError as fault:
        return fault
    return talk.stopped.result()


async def hear(talk: Talk, websocket: WebSocket) -> None:
    """The client's messages, until something is wrong with one, or none comes."""
    limits = talk.hub.limits
    while True:
        await talk.room()
        try:
            async with asyncio.timeout(limits.idle):
                frame = await receive(websocket)
        except TimeoutError:
            raise SessionError(
                "idle", f"nothing came for {limits.idle:g} seconds; connect again when it does"
            ) from None
        message = parse(frame, limits)
        if not isinstance(message, Start):
            talk.tell(message)
            continue
        try:
            talk.use(message.latency)
            talk.outbox.put_nowait(talk.ready())
        except SessionError as fault:
            talk.outbox.put_nowait(fault.told())


async def say(talk: Talk, line: Line) -> None:
    while True:
        await line.send(await talk.next())
        talk.outbox.task_done()
