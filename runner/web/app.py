"""The web application: ``/metrics``, ``/livez`` and ``/readyz`` (also ``/healthz``)."""

from collections.abc import Callable

from fastapi import FastAPI, Response

from ...schema.clock import Clock
from ..metrics import CONTENT_TYPE, Metrics
from .access import Gate, Rules

_NO_STORE = {"cache-control": "no-store"}

Ready = Callable[[], str | None]
"""None when ready, else one sentence on what is missing."""


def make_app(*, metrics: Metrics | None, probes: bool, ready: Ready, rules: Rules, clock: Clock) -> Gate:
    """Make the application; ``metrics`` None leaves them out, ``probes`` says whether the probes are in."""
    app = FastAPI(title="resweep", docs_url=None, redoc_url=None, openapi_url=None)
    started_at = clock.monotonic()

    if probes:

        @app.get("/livez")
        def livez() -> dict[str, object]:
            """Whether the process lives: asks nothing and nobody."""
            return {"status": "alive", "uptime_seconds": round(clock.monotonic() - started_at, 1)}

        @app.get("/readyz")
        @app.get("/healthz")
        def readyz(response: Response) -> dict[str, object]:
            """Whether the process can do its work: asks the database."""
            missing = ready()
            response.headers.update(_NO_STORE)
            if missing is None:
                return {"status": "ready"}
            response.status_code = 503
            return {"status": "unavailable", "reason": missing}

    if metrics is not None:
        counted = metrics

        @app.get("/metrics")
        def exposition() -> Response:
            """Everything in OpenMetrics text."""
            return Response(counted.exposition(), media_type=CONTENT_TYPE, headers=_NO_STORE)

    return Gate(app, rules)
