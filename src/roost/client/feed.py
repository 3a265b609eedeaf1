"""The stream of events without I/O: lines in, events out, and where to go on after a break.

A connection may end at any time. The feed knows the last sequence it gave out and asks from there,
and drops what it has given out already, so nothing is lost and nothing comes twice. It says which
transaction made that event: a server whose ledger was restored from an older copy gives numbers
anew, and refuses. The feed then goes back until both have the same event, and gives out what is
new. Before its first event it has the places that the server told it as it began.
"""

from collections import deque
from collections.abc import Callable
from random import Random

import msgspec

from roost.base.errors import EventsRewritten, InvariantBroken, RoostError
from roost.client.calls import API
from roost.client.conversation import PAUSES, Send
from roost.client.failures import error_of
from roost.wire.bodies import EventBody
from roost.wire.eventstream import read_place

_decoder = msgspec.json.Decoder(EventBody)

#: Without a byte for so long (servers send comments in between) a connection counts as dead.
SILENCE_S = 60.0
#: How far back a feed remembers what it gave out.
MOST_REMEMBERED = 4096


class EventFeed:
    """Where one reader of the events is."""

    def __init__(
        self,
        since: int | None,
        patience_s: float | None,
        monotonic: Callable[[], float],
        random: Random,
    ) -> None:
        self._last = since
        self._patience_s = patience_s
        self._monotonic = monotonic
        self._random = random
        self._data: list[str] = []
        self._name = ""
        self._retry_s = 0.0
        self._attempt = 0
        self._lost_at: float | None = None
        self._given: deque[tuple[int, str]] = deque(maxlen=MOST_REMEMBERED)
        self._given_before: set[tuple[int, str]] = set()  # ... of these, taken back
        self._places: list[tuple[int, str]] = []
        self._step = 1

    def request(self, token: str | None) -> Send:
        """Return what asks for the events after the last one."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        query: tuple[tuple[str, str], ...] = ()
        if self._last is not None:
            query = (("since", str(self._last)),)
            if self._given:
                query += (("tx", self._given[-1][1]),)
            headers["Last-Event-ID"] = str(self._last)
        return Send("GET", f"{API}/events", query, headers, None)

    def connected(self) -> None:
        """Take note that the server answers; half an event of the last connection is void."""
        self._data.clear()
        self._places.clear()
        self._name = ""
        self._attempt, self._lost_at = 0, None
        self._step = 1

    def go_back(self, error: EventsRewritten) -> None:
        """Go back to an earlier event that the restored ledger may have; raise if there is none."""
        for _ in range(min(self._step, len(self._given))):
            self._given_before.add(self._given.pop())
        self._step *= 2
        if not self._given:
            raise error
        self._last = self._given[-1][0]

    def lost(self, error: RoostError) -> float:
        """Return how long to wait before the next try, or raise the error when patience ends."""
        now = self._monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        pause = max(self._retry_s, PAUSES.jittered_s(self._attempt, self._random))
        self._attempt += 1
        waited = now - self._lost_at + pause
        if self._patience_s is not None and waited > self._patience_s:
            raise error
        return pause

    def take(self, line: str) -> EventBody | None:
        """Take one line of the stream; return the event that it completes, if it is new."""
        if line:
            self._take_field(line)
            return None
        name, data = self._name, "\n".join(self._data)
        self._name = ""
        self._data.clear()
        if not data:
            self._take_places()
            return None
        if name == "error":  # the server's last word on this connection
            error, _ = error_of(503, data.encode())
            raise error
        event = _read(data)
        if self._last is not None and event.seq <= self._last:
            return None
        self._last = event.seq
        if event.tx:
            self._given.append((event.seq, event.tx))
            if (event.seq, event.tx) in self._given_before:
                self._given_before.discard((event.seq, event.tx))
                return None
        else:
            self._given.clear()  # of a server that does not say it: nothing can be compared
        return event

    def _take_places(self) -> None:
        """Know where the feed begins, as long as it has given out nothing itself."""
        if self._places and not self._given and self._places[-1][0] == self._last:
            self._given.extend(self._places)
        self._places.clear()

    def _take_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "tx" and (place := read_place(value)) is not None:
            self._places.append(place)
        elif name == "retry" and value.isascii() and value.isdigit():
            self._retry_s = int(value) / 1000


def _read(data: str) -> EventBody:
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise InvariantBroken(
            f"an event cannot be read: {error}",
            hint="Maybe client and server are of different versions.",
        ) from error
