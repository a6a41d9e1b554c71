"""WebSocket /v1/stream: a session from its handshake to its close. /v1/watch/NAME: a watcher of a session."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from whilst.server.audience import Channel
from whilst.server.protocol import (
    DRAINED,
    Audio,
    ClientMessage,
    Limits,
    Listen,
    Message,
    MessageEncoder,
    SessionError,
    Start,
    parse_message,
)
from whilst.server.served import Served
from whilst.server.sessions import ClientSession, SessionManager, find_policy

ABORT = "whilst.abort"  # extension of the ASGI scope: closes the connection without a handshake (run.py)


class SlowClientError(Exception):
    """The client has not read a message in time."""


class Connection:
    def __init__(self, websocket: WebSocket, limits: Limits) -> None:
        self.headers, self.query, self.path = websocket.headers, websocket.query_params, websocket.path_params
        self._websocket, self._limits = websocket, limits
        self._encoder = MessageEncoder()

    async def send(self, message: Message) -> None:
        await self.send_text(self._encoder.encode(message, time.monotonic()))

    async def send_text(self, text: str) -> None:
        try:
            async with asyncio.timeout(self._limits.send):
                await self._websocket.send_text(text)
        except TimeoutError:
            raise SlowClientError from None

    async def receive(self) -> ClientMessage:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        frame: str | bytes | None = message.get("text")
        return parse_message(message["bytes"] if frame is None else frame, self._limits)

    async def close(self, error: SessionError) -> None:
        await self.send(error.to_message())
        await self._websocket.close(error.close_code)

    def abort(self) -> None:
        for abort in self._websocket.scope.get("extensions", {}).get(ABORT, {}).values():
            abort()


Run = Callable[[SessionManager, Connection], Awaitable[None]]


async def handle_websocket(run: Run, manager: SessionManager, websocket: WebSocket) -> None:
    """`run` ends with an exception: a `SessionError`, or the client's disconnect."""
    await websocket.accept()
    connection = Connection(websocket, manager.limits)
    try:
        try:
            await run(manager, connection)
        except SessionError as error:
            manager.metrics.count_error(error.code)
            await connection.close(error)
    except SlowClientError:
        manager.metrics.count_error("slow")
        connection.abort()
    except WebSocketDisconnect:
        pass


async def run_session(manager: SessionManager, connection: Connection) -> None:
    manager.access.check_origin(connection.headers)
    manager.check_open(manager.handshakes)
    manager.handshakes += 1
    try:
        async with asyncio.timeout(manager.limits.handshake):
            start, served, policy = await handshake(manager, connection)
    except TimeoutError:
        seconds = manager.limits.handshake
        raise SessionError("idle", f"no start message within {seconds:g} seconds; send one at once") from None
    finally:
        manager.handshakes -= 1
    session = manager.open("stream", served, policy, start.glossary)
    try:
        if name := connection.query.get("publish"):
            session.publication = await manager.audience.publish(name, start.key, start.sentence, served.describe())
        await connection.send(session.ready_message())
        await exchange(session, connection)
    finally:
        manager.close(session)


async def handshake(manager: SessionManager, connection: Connection) -> tuple[Start, Served, str]:
    """The client's start message, its model and policy. If one of these is unknown, the client may send another."""
    while True:
        message = await connection.receive()
        if not isinstance(message, Start):
            raise SessionError("protocol", 'the first message must be {"type":"start"}')
        manager.access.check_token(connection.headers, message.token)
        try:
            served = manager.find_model(message.model)
            return message, served, find_policy(served, message.latency)
        except SessionError as error:
            await connection.send(error.to_message())


async def exchange(session: ClientSession, connection: Connection) -> None:
    """Receive and send until an error. Before errors in DRAINED, the words received so far are translated."""
    receiving = asyncio.create_task(receive_messages(session, connection))
    sending = asyncio.create_task(send_messages(session, connection))
    tasks = {receiving, sending}
    try:
        ends: list[asyncio.Future[Any]] = [sending, receiving, session.stopped]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        error = next(end.exception() for end in ends if end.done())
        assert error is not None
        if isinstance(error, SessionError) and error.code in DRAINED:
            receiving.cancel()
            draining = asyncio.create_task(session.drain())
            tasks.add(draining)
            seconds = session.manager.limits.drain
            await asyncio.wait({draining, sending}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def receive_messages(session: ClientSession, connection: Connection) -> None:
    idle = session.manager.limits.idle
    while True:
        await session.wait_for_backlog()
        try:
            async with asyncio.timeout(idle):
                message = await connection.receive()
        except TimeoutError:
            error = f"no message for {idle:g} seconds; connect again when there is one"
            raise SessionError("idle", error) from None
        try:
            match message:
                case Start():
                    if message.model not in ("", session.served.name):
                        problem = "the model of a session cannot be changed; begin another session"
                        raise SessionError("protocol", problem, fatal=False)
                    session.set_latency(message.latency)
                    session.outbox.put_nowait(session.ready_message())
                case Listen() | Audio():
                    session.add_audio(message)
                case _:
                    session.add(message)
        except SessionError as error:
            if error.fatal:
                raise
            session.manager.metrics.count_error(error.code)
            session.outbox.put_nowait(error.to_message())


async def send_messages(session: ClientSession, connection: Connection) -> None:
    while True:
        await connection.send(await session.next_message())
        session.outbox.task_done()


async def run_watch(manager: SessionManager, connection: Connection) -> None:
    """Serve a watcher, who needs the name but no token. Any message from a watcher is an error."""
    manager.access.check_origin(connection.headers)
    channel = manager.join(connection.path["name"])
    receiving = asyncio.create_task(connection.receive())
    sending = asyncio.create_task(send_frames(channel, connection))
    try:
        await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
        if receiving.done():
            receiving.result()
            raise SessionError("protocol", "watchers cannot send messages")
        sending.result()
    finally:
        manager.leave(channel)
        receiving.cancel()
        sending.cancel()
        await asyncio.gather(receiving, sending, return_exceptions=True)


async def send_frames(channel: Channel, connection: Connection) -> None:
    async for _, text in channel.frames(connection.query.get("after", "")):
        await connection.send_text(text)
