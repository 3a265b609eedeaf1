"""Events as a text/event-stream: how one event, an error, places and a sign of life are written.

One frame is the same bytes for everybody who may see the event, so that it is encoded once however
many read along.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from roost.wire.bodies import EventBody

#: Keeps an idle connection open; readers skip it.
SIGN_OF_LIFE = b": still here\n\n"

_encode = msgspec.json.Encoder(enc_hook=str).encode


def event_frame(event: EventBody) -> bytes:
    """Write one event; its JSON has no line breaks."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), _encode(event))


def places_frame(places: Iterable[tuple[int, str]]) -> bytes:
    """Write which transactions made some events, oldest first; without data, so readers skip it."""
    return b"".join(b"tx: %d %s\n" % (seq, tx.encode()) for seq, tx in places) + b"\n"


def read_place(value: str) -> tuple[int, str] | None:
    """Read one line of `places_frame`; None for what a later release may write there."""
    seq, _, tx = value.partition(" ")
    return (int(seq), tx) if seq.isascii() and seq.isdigit() and tx else None


def error_frame(error: Mapping[str, Any]) -> bytes:
    """Write the error that ends a stream, in the one shape of errors."""
    return b"event: error\ndata: %s\n\n" % _encode(error)
