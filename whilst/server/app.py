"""The routes. A process has one app, with one hub of sessions and one worker."""

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
from whilst.server.events import refuse, translate
from whilst.server.protocol import SessionError
from whilst.server.socket import converse
from whilst.server.talk import Hub

PAGE = Path(__file__).parent / "page"
# The page may load what comes from here, and nothing from anywhere else; a new version is used at once.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
SAVE = 1.0  # seconds between two notes of the counts for other workers


def make_app(hub: Hub) -> Starlette:
    """The hub's worker begins and ends with the app."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.hub = hub
        hub.start()
        saving = asyncio.create_task(save(hub))
        try:
            yield
        finally:
            saving.cancel()
            await hub.drain()
            await hub.stop()

    routes = [
        WebSocketRoute("/v1/stream", stream),
        Route("/v1/translate", post, methods=["POST"]),
        Route("/healthz", health),
        Route("/metrics", metrics),
        Route("/", page),
        Route("/captions", page),
        Route("/static/{path:path}", static),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def save(hub: Hub) -> None:
    while hub.meter.folder is not None:
        with contextlib.suppress(OSError):  # a full disk: the counts are as old as they look, and it may pass
            hub.meter.save()
        await asyncio.sleep(SAVE)


async def stream(websocket: WebSocket) -> None:
    await converse(websocket.app.state.hub, websocket)


async def post(request: Request) -> Response:
    return await translate(request.app.state.hub, request)


async def health(request: Request) -> Response:
    hub: Hub = request.app.state.hub
    status = "stopping" if hub.stopping else "ok" if hub.worker.is_alive() else "failed"
    code = 200 if status == "ok" else 503
    model = {"model": hub.served.name, "precision": hub.served.precision}
    counts = {"sessions": len(hub.talks), "most_sessions": hub.limits.sessions}
    return JSONResponse({"status": status, "version": __version__, **model, **counts}, code)


async def metrics(request: Request) -> Response:
    hub: Hub = request.app.state.hub
    try:
        hub.door.check_token(request.headers)
    except SessionError as fault:
        return refuse(hub, fault)
    return PlainTextResponse(hub.meter.text(), media_type="text/plain; version=0.0.4")


async def page(request: Request) -> Response:  # noqa: ARG001
    return file("index.html")


async def static(request: Request) -> Response:
    return file(request.path_params["path"])


def file(name: str) -> Response:
    """One of the page's files, and nothing else."""
    if name not in {path.name for path in PAGE.iterdir()}:
        return PlainTextResponse(f"{name}: this server has no such page\n", 404)
    return FileResponse(PAGE / name, headers=HEADERS)
