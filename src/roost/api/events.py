"""Events over HTTP as a stream that goes on, for as long as the caller's token is good."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from roost.api import authorize
from roost.api.errors import Malformed
from roost.api.sse import EventStream, Streams
from roost.parts.routes import Call
from roost.parts.serving import Tokens
from roost.wire.queries import MOST_COUNTED

Source = Callable[[Call, int], AsyncIterator[Any]]


def event_stream(source: Source, call: Call, access: Tokens, streams: Streams) -> EventStream:
    """Return the stream of events after the one that the caller saw last."""
    since = max(call.query.since, _last_event_id(call.headers.get(b"last-event-id")))
    return streams.open(_follow(source, call, since, access), call.token)


async def _follow(source: Source, call: Call, since: int, access: Tokens) -> AsyncIterator[bytes]:
    """Yield frames for as long as the token is good: a stream must not outlive it."""
    events: Any = source(call, since)
    async with aclosing(events):
        async for frames in events:
            await authorize.principal(access, call.token)
            yield frames


def _last_event_id(header: bytes | None) -> int:
    """Return the Last-Event-ID of a reader, which wins over the `since` of its URL."""
    if not header:
        return 0
    if not header.isdigit() or int(header) > MOST_COUNTED:
        raise Malformed("Last-Event-ID is not the sequence number of an event")
    return int(header)
