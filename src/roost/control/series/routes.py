"""Series of VMs and hosts, over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import Call, Route
from roost.wire.series import ImportedBody, ImportSeries, SeriesBody, Span, VMSpan

if TYPE_CHECKING:
    from roost.control.series.reading import Series


# fmt: off
def series_routes(series: "Series") -> tuple[Route, ...]:
    """Return the routes of series."""
    async def of_vm(call: Call) -> SeriesBody:
        return await series.of_vm(call.path["vm"], call.query.project, call.query, call.who)

    return (
        Route(method="GET", path="/api/v1/vms/{vm}/series", noun="series", verb="vm_series",
              call=of_vm, roles=VIEWER | MEMBER, summary="Show what a VM has used over time",
              query=VMSpan, reply=SeriesBody, errors=("series_unavailable",)),
        Route(method="GET", path="/api/v1/hosts/{name}/series", noun="series", verb="host_series",
              call=lambda call: series.of_host(call.path["name"], call.query), roles=VIEWER,
              summary="Show what a host has used over time", query=Span, reply=SeriesBody,
              errors=("series_unavailable",)),
        Route(method="POST", path="/api/v1/series:import", noun="series", verb="import_series",
              call=lambda call: series.bring(call.body, call.who), roles=OPERATOR,
              summary="Bring in readings that were made elsewhere", body=ImportSeries,
              reply=ImportedBody, errors=("series_unavailable", "not_found")),
    )
# fmt: on
