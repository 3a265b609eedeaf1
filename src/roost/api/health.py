"""Whether the process lives and is ready, its metrics, and the doctor."""

from roost.api.answers import Answer, body
from roost.api.calls import Call
from roost.wire.bodies import HealthBody

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


async def healthz(call: Call[None, None]) -> Answer:
    """Say that the process lives."""
    return body(200, HealthBody(status="alive"))


async def readyz(call: Call[None, None]) -> Answer:
    """Say whether requests can be served."""
    health = call.plane.readiness()
    return body(200 if health.status == "ready" else 503, health)


async def metrics(call: Call[None, None]) -> Answer:
    """Return what Prometheus scrapes."""
    return Answer(200, call.plane.metrics_text(), ((b"content-type", PROMETHEUS.encode()),))


async def finish_upgrade(call: Call[None, None]) -> Answer:
    """End what is done for processes of the release before."""
    return body(200, await call.plane.finish_upgrade(call.who))


async def doctor(call: Call[None, None]) -> Answer:
    """Check the invariants of the live database."""
    return body(200, await call.plane.doctor())
