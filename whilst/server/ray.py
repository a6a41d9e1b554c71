"""The command `whilst serve --ray`: replicas of the app on a Ray cluster, behind Ray Serve's proxy."""

import signal
import time
from typing import Any

from starlette.applications import Starlette

from whilst.core.console import notes
from whilst.core.errors import naming_extras
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.server.app import make_app
from whilst.server.run import ServeOptions

NAME = "whilst"


def deployment(options: ServeOptions) -> Any:
    """A Ray Serve application, for `ray.serve.run`; `options.workers` is the number of replicas."""
    with naming_extras():
        from ray import serve

    def app() -> Starlette:
        """Called in the replica, as a model cannot be pickled."""
        return make_app(options.manager())

    class Replica:
        pass

    settings = serve.deployment(
        name=NAME,
        num_replicas=options.workers,
        # A session is one request; above our own limit, which is answered with an error.
        max_ongoing_requests=2 * options.limits.sessions + 16,
        graceful_shutdown_timeout_s=options.limits.drain,
        ray_actor_options={"num_cpus": options.how.threads},
    )
    return settings(serve.ingress(app)(Replica)).bind()


def serve_ray(options: ServeOptions) -> None:
    """Until SIGINT or SIGTERM. Joins the cluster that RAY_ADDRESS names, or starts one on this machine."""
    application = deployment(options)
    import ray
    from ray import serve

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
            pass
        finally:
            serve.shutdown()
            ray.shutdown()
