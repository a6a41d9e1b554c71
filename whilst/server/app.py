"""The Starlette app: its routes, start and shutdown, and the HTTP endpoints."""

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import segno
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from whilst import __version__
from whilst.server import protocol
from whilst.server.audience import Channel
from whilst.server.protocol import Finish, Limits, MessageEncoder, SessionError, Words
from whilst.server.sessions import ClientSession, SessionManager, find_policy
from whilst.server.websocket import handle_websocket, run_session, run_watch

PAGE = Path(__file__).parent / "page"
PAGE_FILES = frozenset(path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*.*"))
PROBES = "/healthz", "/readyz"
Events = AsyncIterator[dict[str, str]]
HEADERS = {  # of page files: they load from this server only, and browsers check for new versions
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(manager: SessionManager) -> Starlette:
    """The manager's workers start and stop with the app."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        manager.start()
        try:
            yield
        finally:
            await manager.drain()
            await manager.stop()

    routes = [
        WebSocketRoute("/v1/stream", partial(handle_websocket, run_session, manager)),
        WebSocketRoute("/v1/watch/{name}", partial(handle_websocket, run_watch, manager)),
        Route("/v1/watch/{name}", partial(watch, manager)),
        Route("/v1/qr.svg", qr_code),
        Route("/v1/translate", partial(translate, manager), methods=["POST"]),
        *(Route(path, partial(health, manager)) for path in PROBES),
        Route("/metrics", partial(metrics, manager)),
        Route("/", page_file),
        Route("/captions", page_file),
        Route("/watch/{talk}", page_file),
        Route("/static/{name:path}", page_file),
    ]
    return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guard, manager)])


class Guard:
    """Refuses requests for other hosts or with too many headers, before they are handled."""

    def __init__(self, app: ASGIApp, manager: SessionManager) -> None:
        self._app, self._manager = app, manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            try:
                self._check(scope)
            except SessionError as error:
                await error_response(self._manager, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        limits, headers = self._manager.limits, scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if size > limits.header_bytes or len(headers) > limits.headers:
            limit = f"{limits.headers} headers of {limits.header_bytes} bytes in all"
            raise SessionError("headers", f"{len(headers)} headers of {size} bytes: the limit is {limit}")
        if scope["path"] not in PROBES:  # probes may name any host, or none
            self._manager.access.check_host(Headers(raw=headers))


def error_response(manager: SessionManager, error: SessionError) -> Response:
    manager.metrics.count_error(error.code)
    return JSONResponse(error.to_message(), error.http_status)


async def translate(manager: SessionManager, request: Request) -> Response:
    """POST /v1/translate: translate a text; the answer is server-sent events."""
    try:
        manager.access.check_origin(request.headers)
        manager.access.check_token(request.headers)
        table = protocol.parse_object(await read_body(request, manager.limits))
        served = manager.find_model(protocol.string_field(table, "model", ""))
        policy = find_policy(served, protocol.string_field(table, "latency", "medium"))
        session = manager.open("translate", served, policy, protocol.glossary_field(table))
        try:
            session.add(Words(1, protocol.string_field(table, "text")))
        except SessionError:
            manager.close(session)
            raise
        session.add(Finish(2))
    except SessionError as error:
        return error_response(manager, error)
    except ClientDisconnect:
        return Response()
    return EventStream(manager, session_events(session), partial(manager.close, session))


async def session_events(session: ClientSession) -> Events:
    """The messages of a session up to `final` or `error`."""
    encoder, message = MessageEncoder(), session.ready_message()
    while True:
        yield {"event": message["type"], "data": encoder.encode(message, time.monotonic())}
        if message["type"] in ("final", "error"):
            return
        try:
            message = await session.next_message()
        except SessionError as error:
            session.manager.metrics.count_error(error.code)
            message = error.to_message()


async def watch(manager: SessionManager, request: Request) -> Response:
    """GET /v1/watch/NAME: a published session as server-sent events."""
    try:
        manager.access.check_origin(request.headers)
        channel = manager.join(request.path_params["name"])
    except SessionError as error:
        return error_response(manager, error)
    after = request.headers.get("last-event-id") or request.query_params.get("after", "")
    return EventStream(manager, watch_events(channel, after), partial(manager.leave, channel))


async def watch_events(channel: Channel, after: str) -> Events:
    try:
        async for kind, text in channel.frames(after):
            cursor = {"id": json.loads(text)["cursor"]} if kind == "commit" else {}
            yield {"event": kind, "data": text} | cursor
    except SessionError as error:
        yield {"event": "error", "data": json.dumps(error.to_message())}


async def read_body(request: Request, limits: Limits) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(limits.handshake):
            async for chunk in request.stream():
                body += chunk
                protocol.check_size(len(body), limits)
    except TimeoutError:
        message = f"the text did not arrive within {limits.handshake:g} seconds; send it at once"
        raise SessionError("idle", message) from None
    return body


class EventStream(EventSourceResponse):
    """Sends events until they end or the client disconnects, then calls `close`."""

    def __init__(self, manager: SessionManager, events: Events, close: Callable[[], None]) -> None:
        self._metrics, self._close = manager.metrics, close
        limits = manager.limits
        super().__init__(events, sep="\n", send_timeout=limits.send, shutdown_grace_period=2 * limits.drain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            self._metrics.count_error("slow")
        finally:
            self._close()


async def health(manager: SessionManager, request: Request) -> Response:
    """/healthz: whether the process works. /readyz: whether it accepts sessions."""
    alive = all(worker.is_alive() for worker in manager.workers.values())
    status = "failed" if not alive else "stopping" if manager.stopping else "ok"
    served = manager.find_model("")
    body = {
        "status": status,
        "version": __version__,
        "models": list(manager.served),
        "precision": served.precision,
        "sessions": len(manager.sessions),
        "most_sessions": manager.limits.sessions,
    }
    good = {"ok", "stopping"} if request.url.path == "/healthz" else {"ok"}
    return JSONResponse(body, 200 if status in good else 503)


async def metrics(manager: SessionManager, request: Request) -> Response:
    try:
        manager.access.check_token(request.headers)
    except SessionError as error:
        return error_response(manager, error)
    body, content_type = manager.metrics.render(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})


async def qr_code(request: Request) -> Response:
    """GET /v1/qr.svg?url=URL: the QR code of a page of this server."""
    url = request.query_params.get("url", "")
    if len(url) > 500 or urlsplit(url).netloc != request.headers.get("host"):
        return PlainTextResponse("url: must be the address of a page of this server\n", 400)
    picture = io.BytesIO()
    segno.make(url, micro=False).save(picture, kind="svg", border=4, omitsize=True, xmldecl=False, light="#fff")
    return Response(picture.getvalue(), media_type="image/svg+xml", headers=HEADERS)


async def page_file(request: Request) -> Response:
    """A file of the speaker's page or of /watch/NAME."""
    name = request.path_params.get("name", "watch.html" if "talk" in request.path_params else "index.html")
    if name not in PAGE_FILES:
        return PlainTextResponse(f"{name}: not found\n", 404)
    return FileResponse(PAGE / name, headers=HEADERS)
