"""Events over HTTP: a page of them, or a stream that goes on."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from roost.api import authorize
from roost.api.answers import Reply, body
from roost.api.calls import Call
from roost.api.errors import Malformed
from roost.api.queries import MOST_COUNTED, ListEvents
from roost.api.sse import EventStream
from roost.wire.bodies import EventBody


async def list_events(call: Call[None, ListEvents]) -> Reply:
    """Return events, or follow them when the caller accepts a stream."""
    since = call.query.since
    if b"text/event-stream" not in call.headers.get(b"accept", b""):
        return body(200, await call.plane.events.page(since, call.query.limit, call.who))
    since = max(since, _last_event_id(call.headers.get(b"last-event-id")))
    return EventStream(_follow(call, since), call.site.clock, call.site.stopping)


async def _follow(call: Call[None, ListEvents], since: int) -> AsyncIterator[EventBody]:
    """Yield events for as long as the token is good: a stream must not outlive it."""
    events: Any = call.plane.events.stream(since, call.who)
    async with aclosing(events):
        async for event in events:
            await authorize.principal(call.plane.access, call.token)
            yield event


def _last_event_id(header: bytes | None) -> int:
    """Return where a reader left off; it knows better than the address it first asked with."""
    if not header:
        return 0
    if not header.isdigit() or int(header) > MOST_COUNTED:
        raise Malformed("Last-Event-ID is not the sequence number of an event")
    return int(header)
