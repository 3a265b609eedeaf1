"""Whether the process lives and is ready, its metrics, and the doctor: over HTTP."""

from collections.abc import Awaitable, Callable, Sequence

from roost.parts.part import Part
from roost.parts.roles import ADMIN, ANYONE
from roost.parts.routes import Answered, Call, Route
from roost.wire.bodies import DoctorBody, HealthBody
from roost.wire.queries import Hosts, ScrapeMetrics

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

#: Sending the metrics of a thousand hosts takes as long as so many other answers.
METRICS_WEIGHT = 10


class Health(Part):
    """Serves liveness, readiness, metrics and the doctor."""

    def __init__(
        self,
        doctor: Callable[[], Awaitable[DoctorBody]],
        readiness: Callable[[], HealthBody],
        metrics: Callable[[Hosts], Awaitable[bytes]],
    ) -> None:
        self._doctor, self._readiness, self._metrics = doctor, readiness, metrics

    # fmt: off
    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return (
            Route(method="GET", path="/api/v1/doctor", noun="health", verb="doctor",
                  call=lambda call: self._doctor(), roles=ADMIN,
                  summary="Check the invariants of the live database", reply=DoctorBody),
            Route(method="GET", path="/healthz", noun="health", verb="healthz",
                  call=self._healthz, roles=ANYONE,
                  summary="Say that the process lives", reply=HealthBody),
            Route(method="GET", path="/readyz", noun="health", verb="readyz",
                  call=self._readyz, roles=ANYONE, summary="Say whether requests can be served",
                  reply=HealthBody, statuses=(200, 503)),
            Route(method="GET", path="/metrics", noun="health", verb="metrics",
                  call=self._metrics_text, roles=ANYONE, summary="Metrics for Prometheus",
                  query=ScrapeMetrics, media=PROMETHEUS, reply=str, weight=METRICS_WEIGHT),
        )
    # fmt: on

    async def _healthz(self, call: Call) -> HealthBody:
        return HealthBody(status="alive")

    async def _readyz(self, call: Call) -> Answered:
        health = self._readiness()
        return Answered(200 if health.status == "ready" else 503, health)

    async def _metrics_text(self, call: Call) -> bytes:
        return await self._metrics(call.query.hosts)
