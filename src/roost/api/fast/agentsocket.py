"""The server's end of the agents' WebSockets, as a plain asyncio protocol: no task per connection.

    upgrade -> handshake (path, token) -> 101 -> session.received ... -> session.closed

Ten thousand agents are connected and nearly always idle. So an open connection holds no parser:
messages in one frame, which is what agents send, are unmasked right out of the chunk that arrived.
For any other frame (pings, closing, fragments) a `ServerProtocol` of websockets is made, fed, and
let go when no message is under way.
"""

import asyncio
import logging
from struct import Struct
from time import thread_time
from typing import Any, ClassVar, cast

import msgspec
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.utils import apply_mask

from roost.api import authorize
from roost.api.answers import Answer
from roost.api.errors import Malformed, answer
from roost.base.errors import NotFound, RoostError, Unauthorized, Unavailable
from roost.parts.access import Principal
from roost.parts.roles import Roles
from roost.parts.serving import ServedPlane, Session
from roost.wire.agentlink import MOST_BYTES

PATH = "/api/v1/agents/connect"
AGENT: Roles = frozenset({"agent"})

#: Bytes that may wait for a peer before one more message drops it.
MOST_WAITING_BYTES = 4 * 2**20
#: Seconds that a peer may take none of them, or leave a closing unanswered.
STALLED_S = 30.0
CLOSING_S = 5.0

# First byte of a text or binary message in one frame: FIN and the opcode, nothing else.
_WHOLE_TEXT = 0x81
_WHOLE = (_WHOLE_TEXT, 0x82)
_MASKED = 0x80
_short = Struct("!BB").pack
_medium = Struct("!BBH").pack
_long = Struct("!BBQ").pack

log = logging.getLogger("roost.api.agents")

# websockets logs every connection at INFO; ten thousand of them say nothing.
_quiet = logging.getLogger("roost.api.fast.agentsocket.wire")
_quiet.setLevel(logging.ERROR)


def agent_protocol(plane: ServedPlane, gate: authorize.Gate) -> type[asyncio.Protocol]:
    """Return the class that uvicorn makes one of for each upgraded connection."""

    class BoundAgentSocket(AgentSocket):
        """An agent's connection to this control plane."""

        __slots__ = ()

    BoundAgentSocket.plane = plane
    BoundAgentSocket.gate = gate
    return BoundAgentSocket


class AgentSocket(asyncio.Protocol):
    """One agent's connection. It is the `link` of its session."""

    __slots__ = (
        "_checking",
        "_connections",
        "_fragments",
        "_needed",
        "_part",
        "_resting",
        "_session",
        "_timer",
        "_wire",
        "transport",
    )

    plane: ClassVar[ServedPlane]
    gate: ClassVar[authorize.Gate]

    def __init__(self, config: Any, server_state: Any, app_state: Any) -> None:
        self._connections: set[object] = server_state.connections
        self.transport = cast(asyncio.Transport, None)
        self._wire: ServerProtocol | None = _new_wire(State.CONNECTING)
        self._part: bytearray | None = None  # of a frame
        self._needed = 0
        self._fragments: list[bytes] | None = None  # of a message
        self._session: Session | None = None
        self._checking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None

    @property
    def checking(self) -> asyncio.Task[None] | None:
        """Return the task that looks at the token, while it does."""
        return self._checking

    # What the session sees

    @property
    def peer(self) -> str:
        """Return where the agent connects from."""
        name = self.transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "")

    def send(self, data: bytes) -> None:
        """Send one message; a peer that leaves too many waiting is dropped."""
        if self.transport.is_closing() or self._is_closing():
            return
        if self.transport.get_write_buffer_size() > MOST_WAITING_BYTES:
            self.transport.abort()
            return
        size = len(data)
        if size < 126:
            head = _short(_WHOLE_TEXT, size)
        elif size < 65536:
            head = _medium(_WHOLE_TEXT, 126, size)
        else:
            head = _long(_WHOLE_TEXT, 127, size)
        self.transport.write(head + data)

    def close(self, code: int, reason: str) -> None:
        """Begin the closing handshake; the peer gets a few seconds to answer."""
        if self.transport.is_closing() or self._is_closing():
            return
        wire = self._wire = self._wire or _new_wire(State.OPEN)
        # A reason has at most 123 bytes; cut in the middle of a character it would not be UTF-8.
        wire.send_close(code, reason.encode()[:123].decode(errors="ignore"))
        self._flush(wire)

    def _is_closing(self) -> bool:
        return self._wire is not None and self._wire.state is not State.OPEN

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a connection that asked to be upgraded."""
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the session that the connection is lost."""
        self._connections.discard(self)
        self._stop_timer()
        if self._resting is not None:
            self._resting.cancel()
        if self._checking is not None:
            self._checking.cancel()
        session, self._session = self._session, None
        if session is not None:
            session.closed()

    def eof_received(self) -> None:
        """Let the transport close: a half-open agent is of no use."""

    def pause_writing(self) -> None:
        """Give a peer that does not read some time, then drop it."""
        if self._timer is None:
            self._abort_after(STALLED_S)

    def resume_writing(self) -> None:
        """Lift the deadline of a peer that reads again."""
        if not self._is_closing():
            self._stop_timer()

    def shutdown(self) -> None:
        """Close because the server stops; agents come back by themselves."""
        if self._session is not None:
            self.close(1012, "the server stops")
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes frame by frame; an incomplete frame waits for the rest."""
        if self._wire is not None and self._wire.state is State.CONNECTING:
            self._parse(self._wire, data)
            return
        if self._part is not None:
            self._part += data
            if len(self._part) < self._needed:
                return
            data, self._part = bytes(self._part), None
        start, end = 0, len(data)
        while start < end and not self.transport.is_closing():
            stop, body = _frame_end(data, start)
            if stop > end:
                self._part, self._needed = bytearray(data[start:]), stop - start
                return
            if stop < 0:
                stop = end  # no frame at all: the parser says so to the peer
            if body and self._wire is None and data[start] in _WHOLE:
                self._deliver(apply_mask(data[body:stop], data[body - 4 : body]))
            else:
                self._wire = self._wire or _new_wire(State.OPEN)
                self._parse(self._wire, data[start:stop])
            start = stop

    def _parse(self, wire: ServerProtocol, data: bytes) -> None:
        wire.receive_data(data)
        for event in wire.events_received():
            if isinstance(event, Request):
                self._shake_hands(wire, event)
            elif isinstance(event, Frame):
                self._frame(event)
        self._flush(wire)
        # It was given whole frames only, so it is between two of them.
        if wire.state is State.OPEN and wire.current_size is None:
            self._wire = None

    def _frame(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT) or self._is_closing():
            return
        if self._fragments is None:
            if frame.fin:
                self._deliver(bytes(frame.data))
            else:
                self._fragments = [bytes(frame.data)]
            return
        self._fragments.append(bytes(frame.data))
        if frame.fin:
            whole, self._fragments = b"".join(self._fragments), None
            self._deliver(whole)

    def _deliver(self, message: bytes) -> None:
        session = self._session
        if session is None:
            return
        begun = thread_time()  # of this thread: a pause of the process is nobody's fault
        try:
            session.received(message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.close(1007, f"not a message: {error}")
        except RoostError as error:
            self.close(1008, error.message)
        except Exception:  # what one agent says must not end more than its connection
            log.exception("a message of %s cannot be taken", self.peer)
            self.close(1011, "a message that cannot be taken")
        if (rest := session.rest_s(thread_time() - begun)) > 0.0:
            self._rest(rest)

    def _rest(self, seconds: float) -> None:
        """Read nothing for a while: this agent's messages take more than their share of time."""
        self.transport.pause_reading()
        self._resting = asyncio.get_running_loop().call_later(seconds, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _flush(self, wire: ServerProtocol) -> None:
        for data in wire.data_to_send():
            if data:
                self.transport.write(data)
            else:
                self.transport.close()
        if wire.close_expected() and not self.transport.is_closing():
            self._abort_after(CLOSING_S)

    def _abort_after(self, seconds: float) -> None:
        self._stop_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The handshake

    def _shake_hands(self, wire: ServerProtocol, request: Request) -> None:
        try:
            path = request.path.partition("?")[0]
            if path != PATH:
                raise NotFound(f"there is no WebSocket at {path}", path=path)
            header = request.headers.get_all("Authorization")
            if len(header) > 1:
                raise authorize.said_twice(b"authorization")
            token = authorize.bearer(header[0].encode() if header else None)
            who = self.plane.access.principal(token)
        except RoostError as error:
            _refuse(wire, answer(error))
            return
        if who is not None:
            self._admit(wire, request, who)
            return
        # Not known without asking the ledger: the only moment at which a connection has a task.
        self.transport.pause_reading()
        self._checking = asyncio.ensure_future(self._check(wire, request, token))

    async def _check(self, wire: ServerProtocol, request: Request, token: str) -> None:
        try:
            self._admit(wire, request, await self._who(token))
        except RoostError as error:
            _refuse(wire, answer(error))
        self._checking = None
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self._parse(wire, b"")

    async def _who(self, token: str) -> Principal:
        try:
            return await self.plane.access.check(token)
        except Unauthorized:
            self.gate.failed(self.peer.rpartition(":")[0])
            raise

    def _admit(self, wire: ServerProtocol, request: Request, who: Principal) -> None:
        try:
            authorize.allow(AGENT, who)
        except RoostError as error:
            _refuse(wire, answer(error))
            return
        response = wire.accept(request)
        if response.status_code != 101:
            text = response.body.decode().partition("\n")[0]
            _refuse(wire, answer(Malformed(text)), response)
            return
        wire.send_response(response)
        self._flush(wire)
        try:
            self._session = self.plane.agents.connect(self, who)
        except RoostError as error:
            self.close(1013 if isinstance(error, Unavailable) else 1008, error.message)


def _frame_end(data: bytes, start: int) -> tuple[int, int]:
    """Return where a frame ends (or how far one must read to know) and where its payload begins.

    The end is -1 for what an agent may not send: unmasked, or too large.
    """
    if len(data) < start + 2:
        return start + 2, 0
    second = data[start + 1]
    if second < _MASKED:
        return -1, 0
    size, body = second - _MASKED, start + 6
    if size > 125:
        body += 2 if size == 126 else 8
        if len(data) < body:
            return body, 0
        size = int.from_bytes(data[start + 2 : body - 4], "big")
        if size > MOST_BYTES:
            return -1, 0
    return body + size, body


def _new_wire(state: State) -> ServerProtocol:
    return ServerProtocol(state=state, max_size=MOST_BYTES, logger=_quiet)


def _refuse(wire: ServerProtocol, refusal: Answer, base: Response | None = None) -> None:
    """Answer the handshake with an error in the one shape."""
    response = wire.reject(base.status_code if base else refusal.status, "")
    del response.headers["Content-Type"]
    del response.headers["Content-Length"]
    for name, value in refusal.headers:
        response.headers[name.decode()] = value.decode()
    response.headers["Content-Length"] = str(len(refusal.body))
    wire.send_response(
        Response(response.status_code, response.reason_phrase, response.headers, refusal.body)
    )
