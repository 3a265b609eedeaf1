"""Events as a text/event-stream: how one event, an error and a sign of life are written.

One frame is the same bytes for everybody who may see the event, so that it is encoded once however
many read along.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from roost.wire.bodies import EventBody

#: Keeps an idle connection open; readers skip it.
SIGN_OF_LIFE = b": still here\n\n"

_encode = msgspec.json.Encoder(enc_hook=str).encode


def event_frame(event: EventBody) -> bytes:
    """Write one event; its JSON has no line breaks."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), _encode(event))


def error_frame(error: Mapping[str, Any]) -> bytes:
    """Write the error that ends a stream, in the one shape of errors."""
    return b"event: error\ndata: %s\n\n" % _encode(error)
