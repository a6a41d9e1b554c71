"""The Starlette app: its routes, and the life of its worker."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from whilst import __version__
from whilst.server.protocol import SessionError
from whilst.server.sessions import SessionManager
from whilst.server.translate import error_response, translate
from whilst.server.websocket import handle_websocket

PAGE = Path(__file__).parent / "page"
PROBES = "/healthz", "/readyz"
HEADERS = {  # of the page: it may load from this server only, and a new version is used at once
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(manager: SessionManager) -> Starlette:
    """The manager's worker starts and stops with the app."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        manager.start()
        try:
            yield
        finally:
            await manager.drain()
            await manager.stop()

    routes = [
        WebSocketRoute("/v1/stream", partial(handle_websocket, manager)),
        Route("/v1/translate", partial(translate, manager), methods=["POST"]),
        *(Route(path, partial(health, manager)) for path in PROBES),
        Route("/metrics", partial(metrics, manager)),
        Route("/", page_file),
        Route("/captions", page_file),
        Route("/static/{name:path}", page_file),
    ]
    return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guard, manager)])


class Guard:
    """Refuses requests for other hosts or with too many headers, before any of them is handled."""

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
            most = f"{limits.headers} headers of {limits.header_bytes} bytes in all"
            raise SessionError("headers", f"{len(headers)} headers of {size} bytes: the limit is {most}")
        if scope["path"] not in PROBES:  # which come by address, service name or none
            self._manager.access.check_host(Headers(raw=headers))


async def health(manager: SessionManager, request: Request) -> Response:
    """/healthz: whether the process works. /readyz: whether it takes sessions."""
    status = "failed" if not manager.worker.is_alive() else "stopping" if manager.stopping else "ok"
    body = {
        "status": status,
        "version": __version__,
        "model": manager.served.name,
        "precision": manager.served.precision,
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


async def page_file(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    if name not in {path.name for path in PAGE.iterdir()}:
        return PlainTextResponse(f"{name}: not found\n", 404)
    return FileResponse(PAGE / name, headers=HEADERS)
