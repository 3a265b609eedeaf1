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
              call=lambda call: events.page(
                  call.query.since, call.query.limit, call.who, tx=call.query.tx),
              roles=VIEWER | MEMBER,
              summary="List events, or follow them with Accept: text/event-stream",
              query=ListEvents, reply=b.EventPage,
              stream=lambda call, since: events.stream(since, call.who, tx=call.query.tx)),
    )
# fmt: on
