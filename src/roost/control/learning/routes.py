"""Profiles of VMs and the report on a fleet, over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, VIEWER
from roost.parts.routes import Call, Route
from roost.wire.profiles import ProfileBody, ProfileQuery
from roost.wire.reports import FleetReportBody, ReportQuery

if TYPE_CHECKING:
    from roost.control.learning.learning import Learning


def learning_routes(learning: "Learning") -> tuple[Route, ...]:
    """Return the routes of what is learnt."""

    async def profile(call: Call) -> ProfileBody:
        query: ProfileQuery = call.query
        return await learning.profile(call.path["vm"], query, call.who)

    async def report(call: Call) -> FleetReportBody:
        query: ReportQuery = call.query
        return await learning.reporting.report(query)

    return (
        Route(
            method="GET",
            path="/api/v1/reports/fleet",
            noun="report",
            verb="fleet_report",
            call=report,
            roles=VIEWER,
            summary="Show what a week says of all VMs and hosts, or how far that report is",
            query=ReportQuery,
            reply=FleetReportBody,
            errors=("series_unavailable",),
        ),
        Route(
            method="GET",
            path="/api/v1/vms/{vm}/profile",
            noun="profile",
            verb="vm_profile",
            call=profile,
            roles=VIEWER | MEMBER,
            summary="Show what a VM does over time, what it will do, and what size would do",
            query=ProfileQuery,
            reply=ProfileBody,
            errors=("series_unavailable",),
        ),
    )
