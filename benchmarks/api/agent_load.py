"""The process that plays many agents: one WebSocket each, heartbeats, and coming back when cut off.

The handshake and frames are written by hand and the timer is shared, so that ten thousand agents
take little of the machine that they share with the server. They wait, retry and give up as a real
agent does. Told by a JSON object in a file, it reports with a JSON line every quarter of a second.
"""

import asyncio
import random
import sys
import time
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from benchmarks.api.workload import hello
from roost.wire.agentlink import Heartbeat, encode

#: As a real agent: the first wait, the longest, and how long it waits for a first word.
RETRY_FIRST_S, RETRY_MOST_S, WELCOME_S = 0.5, 15.0, 10.0
_SLOTS = 100  # of one heartbeat period; an agent has its beat in one of them
_REPORT_S = 0.25
_UPGRADED = b"HTTP/1.1 101 "
_END_OF_HEAD = b"\r\n\r\n"
_NO_VMS = "0" * 16  # the digest of an empty list


class Orders(msgspec.Struct, frozen=True):
    """Where the server is, and the credentials of hosts 1, 2 and so on."""

    port: int
    heartbeat_s: float
    lease_s: float
    credentials: list[str]


class Status(msgspec.Struct):
    """How many were welcomed and are still connected, and what has happened since the start."""

    connected: int = 0
    beats: int = 0
    renewals: int = 0
    losses: int = 0  # connections that ended after a welcome
    silences: int = 0  # ... because the server said nothing for too long
    refusals: list[str] = []
    cpu_s: float = 0.0


def frame(payload: bytes) -> bytes:
    """Return a whole text frame from a client; masked with zeros, which changes nothing."""
    size = len(payload)
    head = bytes((0x81, 0x80 | size)) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    return head + b"\0\0\0\0" + payload


class Agent(asyncio.Protocol):
    """One agent, over all its connections."""

    def __init__(self, crowd: "Crowd", number: int, credential: str) -> None:
        self.crowd, self.number = crowd, number
        self.transport: asyncio.Transport | None = None
        self.welcomed = False
        self.heard_at = 0.0
        self.attempts = 0
        self._upgraded = False
        self._rest = b""
        self._request = (
            f"GET /api/v1/agents/connect HTTP/1.1\r\nHost: 127.0.0.1:{crowd.orders.port}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Bearer {credential}\r\n\r\n"
        ).encode()

    async def connect(self) -> None:
        """Connect once; what fails is tried again later."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, "127.0.0.1", self.crowd.orders.port)
        except OSError:
            self._come_back()

    def _come_back(self) -> None:
        delay = min(RETRY_MOST_S, RETRY_FIRST_S * 2.0**self.attempts)
        self.attempts = min(self.attempts + 1, 20)
        self.crowd.later(delay * random.uniform(0.5, 1.0), self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        self.transport = cast(asyncio.Transport, transport)
        self._upgraded, self._rest = False, b""
        self.heard_at = time.monotonic()
        self.transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Come back."""
        self.transport = None
        if self.welcomed:
            self.welcomed = False
            self.crowd.status.connected -= 1
            self.crowd.status.losses += 1
        self._come_back()

    def data_received(self, data: bytes) -> None:
        """Read the answer to the handshake, then messages."""
        self.heard_at = time.monotonic()
        data = self._rest + data if self._rest else data
        if not self._upgraded:
            end = data.find(_END_OF_HEAD)
            if end < 0:
                self._rest = data
                return
            if not data.startswith(_UPGRADED):
                self.crowd.refused(data[:200])
                self.drop()
                return
            self._upgraded, data = True, data[end + 4 :]
            self.send(frame(encode(hello(self.number))))
        at, end = 0, len(data)
        while end - at >= 2:
            size, body = data[at + 1], at + 2
            if size == 127:
                raise AssertionError(
                    "a frame of more than 64 KiB, which these agents are never sent"
                )
            if size == 126:
                size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            if body + size > end:
                break
            self._message(data[at], data[body : body + size])
            at = body + size
        self._rest = data[at:]

    def _message(self, first: int, payload: bytes) -> None:
        status = self.crowd.status
        if payload.startswith(b'{"type":"renewed"'):
            status.renewals += 1
        elif payload.startswith(b'{"type":"welcome"'):
            self.welcomed, self.attempts = True, 0
            status.connected += 1
            self.beat(self.crowd.beat)
        elif payload.startswith(b'{"type":"refused"') or first == 0x88:
            self.crowd.refused(payload)
            self.drop()

    def beat(self, data: bytes) -> None:
        """Send a heartbeat."""
        self.crowd.status.beats += 1
        self.send(data)

    def send(self, data: bytes) -> None:
        """Send a frame."""
        if self.transport is not None:
            self.transport.write(data)

    def drop(self) -> None:
        """Cut the connection."""
        if self.transport is not None:
            self.transport.abort()


class Crowd:
    """All agents, and the timers they share."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.status = Status()
        self.agents = [Agent(self, at, each) for at, each in enumerate(orders.credentials, 1)]
        self.beat = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def later(self, seconds: float, agent: Agent) -> None:
        """Connect an agent after some time."""
        asyncio.get_running_loop().call_later(seconds, self._connect, agent)

    def _connect(self, agent: Agent) -> None:
        task = asyncio.get_running_loop().create_task(agent.connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def refused(self, said: bytes) -> None:
        """Note what the server did not want."""
        self.status.refusals = [*self.status.refusals[-4:], said.decode(errors="replace")]

    async def run(self) -> None:
        """Connect all within a heartbeat period, then beat until the process is ended."""
        orders = self.orders
        self.beat = frame(encode(Heartbeat(0, _NO_VMS)))
        for agent in self.agents:
            self.later(random.uniform(0.0, orders.heartbeat_s), agent)
        turn, begun = 0, time.monotonic()
        reported = 0.0
        while True:
            slot = turn % _SLOTS
            if slot == 0:
                self.beat = frame(encode(Heartbeat(turn // _SLOTS + 1, _NO_VMS)))
            self._take_turns(slot)
            if time.monotonic() - reported >= _REPORT_S:
                reported = time.monotonic()
                self.status.cpu_s = time.process_time()
                sys.stdout.write(msgspec.json.encode(self.status).decode() + "\n")
                sys.stdout.flush()
            turn += 1
            due = begun + turn * orders.heartbeat_s / _SLOTS
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _take_turns(self, slot: int) -> None:
        limit = max(2.5 * self.orders.heartbeat_s, self.orders.lease_s / 2)
        now = time.monotonic()
        for agent in self.agents[slot::_SLOTS]:
            if agent.transport is None:
                continue
            if now - agent.heard_at > (limit if agent.welcomed else WELCOME_S):
                self.status.silences += 1
                agent.drop()
            elif agent.welcomed:
                agent.beat(self.beat)


def main(path: str) -> None:
    """Be the agents until ended."""
    orders = msgspec.json.decode(Path(path).read_bytes(), type=Orders)
    uvloop.run(Crowd(orders).run())


if __name__ == "__main__":
    main(sys.argv[1])
