"""The Starlette app: its routes, and the life of its worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from whilst import __version__
from whilst.server.protocol import SessionError
from whilst.server.sessions import SessionManager
from whilst.server.translate import error_response, translate
from whilst.server.websocket import handle_websocket

PAGE = Path(__file__).parent / "page"
HEADERS = {  # of the page: it may load from this server only, and a new version is used at once
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
SAVE = 1.0  # seconds between two updates of the counts that other workers read


def make_app(manager: SessionManager) -> Starlette:
    """The manager's worker starts and stops with the app."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.manager = manager
        manager.start()
        saving = asyncio.create_task(save_counts(manager))
        try:
            yield
        finally:
            saving.cancel()
            await manager.drain()
            await manager.stop()

    routes = [
        WebSocketRoute("/v1/stream", stream),
        Route("/v1/translate", post_translate, methods=["POST"]),
        Route("/healthz", health),
        Route("/metrics", metrics),
        Route("/", index),
        Route("/captions", index),
        Route("/static/{path:path}", static),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def save_counts(manager: SessionManager) -> None:
    while manager.metrics.folder is not None:
        with contextlib.suppress(OSError):  # a full disk may be temporary
            manager.metrics.save()
        await asyncio.sleep(SAVE)


async def stream(websocket: WebSocket) -> None:
    await handle_websocket(websocket.app.state.manager, websocket)


async def post_translate(request: Request) -> Response:
    return await translate(request.app.state.manager, request)


async def health(request: Request) -> Response:
    manager: SessionManager = request.app.state.manager
    status = "stopping" if manager.stopping else "ok" if manager.worker.is_alive() else "failed"
    body = {
        "status": status,
        "version": __version__,
        "model": manager.served.name,
        "precision": manager.served.precision,
        "sessions": len(manager.sessions),
        "most_sessions": manager.limits.sessions,
    }
    return JSONResponse(body, 200 if status == "ok" else 503)


async def metrics(request: Request) -> Response:
    manager: SessionManager = request.app.state.manager
    try:
        manager.access.check_token(request.headers)
    except SessionError as error:
        return error_response(manager, error)
    return PlainTextResponse(manager.metrics.render(), media_type="text/plain; version=0.0.4")


async def index(request: Request) -> Response:  # noqa: ARG001
    return page_file("index.html")


async def static(request: Request) -> Response:
    return page_file(request.path_params["path"])


def page_file(name: str) -> Response:
    if name not in {path.name for path in PAGE.iterdir()}:
        return PlainTextResponse(f"{name}: not found\n", 404)
    return FileResponse(PAGE / name, headers=HEADERS)
