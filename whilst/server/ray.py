"""Replicas on a Ray cluster: the same app in each, behind Ray Serve's proxy. Everything else is Ray's business."""

import signal
import time
from typing import Any

from starlette.applications import Starlette

from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.server.app import make_app
from whilst.server.meter import Meter
from whilst.server.run import Options
from whilst.server.talk import Hub

NAME = "whilst"


def deployment(options: Options) -> Any:
    """A Ray Serve application, for `ray.serve.run`; `options.workers` is the number of its replicas."""
    try:
        from ray import serve
    except ImportError:
        raise UserError("--ray needs the package ray: pip install 'whilst[ray]'") from None

    def app() -> Starlette:
        """Made in the replica: models do not travel."""
        return make_app(Hub(options.load(), options.limits, options.door, Meter()))

    class Replica:
        pass

    settings = serve.deployment(
        name=NAME,
        num_replicas=options.workers,
        # A session is a request that lasts; beyond our own limit the client is told so by us.
        max_ongoing_requests=2 * options.limits.sessions + 16,
        graceful_shutdown_timeout_s=options.limits.grace,
        ray_actor_options={"num_cpus": options.how.threads},
    )
    return settings(serve.ingress(app)(Replica)).bind()


def serve_ray(options: Options) -> None:
    """Until Ctrl-C or SIGTERM. Joins the cluster that RAY_ADDRESS names, or begins one on this machine."""
    application = deployment(options)
    import ray
    from ray import serve

    ray.init(logging_level="warning", log_to_driver=False)
    # Ray's own handler of SIGTERM ends in a crash report.
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
