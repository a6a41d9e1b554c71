"""Command: serve."""

from typing import Annotated

import typer

from whilst.cli.options import Device, Model, Set
from whilst.core.settings import DEFAULT_MODEL

Engine = Annotated[
    str,
    typer.Option(
        help="batch: sessions share the model's steps; single: one by one; onnx: exported graphs."
        " Default: batch if PyTorch is installed, else onnx."
    ),
]
Precision = Annotated[
    str, typer.Option(help="fp32 or fp16 (faster); of onnx: int8 or fp32. Default: that of the model file.")
]
Workers = Annotated[int, typer.Option(help="Worker processes, each with the model.", min=1)]
Threads = Annotated[int, typer.Option(help="Threads of the model in each worker.", min=1)]


def serve(
    model: Model = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str, typer.Option(help="Clients must send the header Authorization: Bearer TOKEN.", envvar="WHILST_TOKEN")
    ] = "",
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Allow web pages of this origin, such as https://example.org. May be repeated."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name by which browsers reach this server, such as example.org; * for any. May be repeated."
            " Default: localhost if only this machine can connect, else any."
        ),
    ] = None,
    workers: Workers = 1,
    threads: Threads = 1,
    sessions: Annotated[int, typer.Option(help="Sessions at a time in each worker.", min=1)] = 100,
    words: Annotated[int, typer.Option(help="Source words of a session at most.", min=1)] = 100_000,
    idle: Annotated[float, typer.Option(help="Seconds without a message after which a session ends.")] = 300.0,
    engine: Engine = "",
    precision: Precision = "",
    ray: Annotated[bool, typer.Option("--ray", help="Run workers as replicas of Ray Serve.")] = False,
    set_: Set = [],  # noqa: B006
    device: Device = "cpu",
) -> None:
    """Serve live translation: WebSocket, HTTP, a web page.

    Ctrl-C finishes the translation of the words received so far, then exits.

    \b
    Examples:
        whilst serve
        whilst serve --host 0.0.0.0 --port 80 --workers 2 --origin https://example.org
        WHILST_TOKEN=secret whilst serve --model runs/mine --sessions 50 --idle 60
    """
    from whilst.server.protocol import Limits
    from whilst.server.run import ServeOptions, serve
    from whilst.server.served import EngineOptions, default_engine
    from whilst.server.sessions import AccessControl, default_hosts

    limits = Limits(words=words, sessions=sessions, idle=idle)
    access = AccessControl(token, tuple(origin or ()), tuple(allowed_host or default_hosts(host)))
    how = EngineOptions(engine or default_engine(), precision, device, threads)
    options = ServeOptions(model, host, port, workers, limits, access, tuple(set_), how)
    if ray:
        from whilst.server.ray import serve_ray

        serve_ray(options)
    else:
        serve(options)
