"""What one client may cost a server: bytes, seconds, connections, requests and readers of events.

Everything here is a bound on somebody who is not known yet, or who is known and does too much; the
defaults are far above what an honest client or a whole fleet of agents behind one address needs.
"""

from dataclasses import dataclass

from roost.base.units import KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one server process. Times are in seconds, rates in requests a second."""

    #: Bytes of all headers of a request, and how many; bytes of its path and query.
    head_bytes: int = 64 * KIB
    headers: int = 128
    path_bytes: int = 16 * KIB
    #: For the first request and the head of each, and between two pieces of a body.
    request_s: float = 15.0
    #: That a connection may be idle between two requests.
    idle_s: float = 75.0
    #: That a client may take nothing of what is sent to it.
    stalled_s: float = 15.0
    #: Connections that have shown no good token yet, from one address; 0: any number.
    strangers: int = 1000
    #: Connections in all; 0: any number.
    connections: int = 0
    #: Streams of events that are read at once: in all, and with one token.
    readers: int = 4096
    token_readers: int = 256
    #: Requests with one token; without one, from one address; with a wrong one, from one address.
    #: 0: any number. A burst of so many seconds is let through.
    token_rate: float = 20_000.0
    address_rate: float = 200.0
    failure_rate: float = 20.0
    burst_s: float = 5.0
