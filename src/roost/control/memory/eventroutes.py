"""Events over HTTP: a page of them, or a stream that goes on."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, VIEWER
from roost.parts.routes import Route
from roost.wire import bodies as b
from roost.wire.queries import ListEvents

if TYPE_CHECKING:
    from roost.control.memory.eventlog import EventLog


# fmt: off
def event_routes(events: "EventLog") -> tuple[Route, ...]:
    """Return the routes of events."""
    return (
        Route(method="GET", path="/api/v1/events", noun="events", verb="list_events",
              call=lambda call: events.listed(call.query, call.who),
              roles=VIEWER | MEMBER,
              summary="List events, or follow all of them with Accept: text/event-stream",
              query=ListEvents, reply=b.EventPage,
              errors=("not_found",),
              stream=lambda call, since: events.followed_by(call.query, since, call.who)),
    )
# fmt: on
