"""The command `whilst serve --ray`: replicas of the app on a Ray cluster, behind Ray Serve's proxy."""

import asyncio
import contextlib
import signal
import time
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette

from whilst.core.console import notes
from whilst.core.errors import name_missing_extra
from whilst.core.settings import DEFAULT_MODEL
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.server.app import make_app
from whilst.server.run import ServeOptions
from whilst.server.sessions import SessionManager

NAME = "whilst"
PROXY = 1.0  # seconds for the last messages to pass Ray's proxy, which ends with the cluster
# The managers of this process, a replica. Ray copies the objects that it pickles, but not those of a module.
MANAGERS: list[SessionManager] = []


def make_replica_app(options: ServeOptions) -> Starlette:
    """Called in the replica, because a model cannot be pickled."""
    MANAGERS.append(options.manager())
    return make_app(MANAGERS[-1])


async def drain_replica() -> None:
    for manager in MANAGERS:
        await manager.drain()
    await asyncio.sleep(PROXY)


def deployment(options: ServeOptions) -> Any:
    """A Ray Serve application, for `ray.serve.run`; `options.workers` is the number of replicas."""
    with name_missing_extra():
        from ray import serve

    class Replica:
        async def drain(self) -> None:
            """Called before a stop: Ray itself only waits until sessions end."""
            await drain_replica()

    limits = options.limits
    settings = serve.deployment(
        name=NAME,
        num_replicas=options.workers,
        # A session or a watcher is one request. Higher than our own limits, which are reported as errors.
        max_ongoing_requests=2 * limits.sessions + limits.watchers + 16,
        # Time for the sessions of a replica that is no longer needed to end.
        graceful_shutdown_timeout_s=3600,
        ray_actor_options={"num_cpus": options.engine_options.threads},
    )
    return settings(serve.ingress(lambda: make_replica_app(options))(Replica)).bind()


def build(arguments: dict[str, str]) -> Any:
    """For the configuration of `serve deploy`. Arguments: `model`, one or more separated by spaces; `token`."""
    options = ServeOptions(tuple(arguments.get("model", DEFAULT_MODEL).split()))
    return deployment(replace(options, access=replace(options.access, token=arguments.get("token", ""))))


def serve_ray(options: ServeOptions) -> None:
    """Serve until SIGINT or SIGTERM. Joins the cluster that RAY_ADDRESS names, or starts one on this machine."""
    application = deployment(options)
    import ray
    from ray import serve
    from ray.serve.exceptions import RayServeException

    ray.init(logging_level="warning", log_to_driver=False)
    # Ray's own handler of SIGTERM ends with a crash report.
    with handle_signals(STOP_SIGNALS, signal.default_int_handler):
        try:
            serve.start(http_options={"host": options.host, "port": options.port})
            serve.run(application, name=NAME, route_prefix="/")
            notes.print(f"Ray Serve: {options.workers} replicas at http://{options.host}:{options.port}")
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            with contextlib.suppress(RayServeException):  # it was not deployed yet
                serve.get_app_handle(NAME).broadcast("drain").results(timeout_s=3 * options.limits.drain)
        finally:
            serve.shutdown()
            ray.shutdown()
