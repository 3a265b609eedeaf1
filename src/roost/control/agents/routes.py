"""Consoles over HTTP. Not for viewers: what a guest writes to its console may hold secrets."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, OPERATOR
from roost.parts.routes import Call, Route
from roost.wire import bodies as b
from roost.wire.queries import ReadConsole

if TYPE_CHECKING:
    from roost.control.agents.consoles import Consoles


async def _console(consoles: "Consoles", call: Call) -> b.ConsoleBody:
    asked = call.query
    return await consoles.console(
        call.path["vm"], asked.project, asked.start, asked.limit, call.who
    )


# fmt: off
def console_routes(consoles: "Consoles") -> tuple[Route, ...]:
    """Return the routes of consoles."""
    return (
        Route(method="GET", path="/api/v1/vms/{vm}/console", noun="vms", verb="console",
              call=lambda call: _console(consoles, call), roles=OPERATOR | MEMBER,
              summary="Show a piece of a VM's serial log", query=ReadConsole, reply=b.ConsoleBody,
              errors=("conflict", "agent_service_unavailable")),
    )
# fmt: on
