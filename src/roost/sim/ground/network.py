"""The network between agents and planes, message by message: late, lost, twice, cut.

A connection keeps the order of its messages, as TCP does, unless it is `rough`: then messages that
the protocol allows to be lost, repeated or overtaken are. What is sent through a cut waits in the
sender's buffer until the cut heals or somebody gives the connection up.
"""

import asyncio
from collections.abc import Callable
from random import Random

from roost.control.agents.sessions import Session
from roost.control.plane import Plane
from roost.hostkit.talk.link import LinkLost
from roost.parts.access import Principal
from roost.sim.ground.lives import Life

Note = Callable[[str, str, str], None]

#: What may be lost, repeated or overtaken: agents repeat reports in full, deltas name their base.
_ROUGH = (b'"type":"report"', b'"type":"delta"', b'"type":"samples"')
#: Closing codes do not matter to agents.
_LOST = "the connection is gone"


class Wire:
    """How one host is connected."""

    def __init__(self) -> None:
        self.up = True  # from the host to the planes
        self.down = True
        self.rough = 0.0  # chance of mischief per message
        self.loss = 0.5  # share of the mischief that loses a message; else it comes twice
        self.late_s = 1.0  # how late a message may come that is overtaken
        self.slow_s = 0.0  # more delay

    @property
    def is_whole(self) -> bool:
        """Return whether the wire has no fault."""
        return self.up and self.down and not self.rough and not self.slow_s


class Network:
    """Every wire, and the planes that listen."""

    def __init__(self, random: Random, note: Note) -> None:
        self.random, self.note = random, note
        self.wires: dict[str, Wire] = {}
        self.planes: dict[str, tuple[Plane, Life]] = {}
        self.connections: list[Connection] = []

    def wire(self, host: str) -> Wire:
        """Return how a host is connected."""
        return self.wires.setdefault(host, Wire())

    def cut(self, host: str, *, up: bool, down: bool) -> None:
        """Cut one or both directions."""
        wire = self.wire(host)
        wire.up, wire.down = wire.up and not up, wire.down and not down

    def heal(self, host: str) -> None:
        """Mend a host's wire; what waits is sent."""
        wire = self.wire(host)
        wire.rough = wire.slow_s = 0.0
        self.rejoin(host)

    def rejoin(self, host: str) -> None:
        """End a cut; what waits is sent."""
        wire = self.wire(host)
        wire.up = wire.down = True
        for connection in list(self.connections):
            if connection.host == host:
                connection.push()

    def plane_died(self, life: Life) -> None:
        """Reset the connections of a plane that is gone."""
        for connection in list(self.connections):
            if connection.plane_life is life:
                connection.reset()


class HostTransport:
    """Implements the agent's `Transport` for one life of one host's agent."""

    def __init__(self, network: Network, host: str, life: Life) -> None:
        self._network, self._host, self._life = network, host, life

    async def connect(self, server: str, credential: str) -> "Connection":
        """Connect to a plane; a cut looks like silence, a dead plane like a refusal."""
        await asyncio.sleep(0.001 + self._network.random.random() * 0.004)
        await self._life.gate()
        wire = self._network.wire(self._host)
        found = self._network.planes.get(server)
        if not (wire.up and wire.down):
            await asyncio.sleep(5.0)
            self._life.check()
            raise LinkLost(f"{server} does not answer")
        if found is None or not found[1].alive or found[1].frozen is not None:
            raise LinkLost(f"{server} refuses")
        return Connection(self._network, self._host, self._life, *found)


class Connection:
    """One connection: the agent's `Link` and, as `_PlaneEnd`, the plane's."""

    def __init__(
        self, network: Network, host: str, agent_life: Life, plane: Plane, plane_life: Life
    ) -> None:
        self.host, self.plane_life = host, plane_life
        self._network, self._agent_life = network, agent_life
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._up: list[bytes] = []
        self._down: list[bytes] = []
        self._last = {"up": 0.0, "down": 0.0}
        self.open = True
        network.connections.append(self)
        network.note("net.open", host, plane_life.name)
        who = Principal(f"agent/{host}", "agent", None, host)
        self._session: Session = plane.agents.connect(_PlaneEnd(self), who)

    # The agent's end

    async def send(self, data: bytes) -> None:
        """Send one message to the plane."""
        await self._agent_life.gate()
        if not self.open:
            raise LinkLost(_LOST)
        self._up.append(data)
        self.push()

    async def receive(self) -> bytes:
        """Return the next message from the plane."""
        data = await self._inbox.get()
        await self._agent_life.gate()
        if data is None:
            self._inbox.put_nowait(None)
            raise LinkLost(_LOST)
        return data

    async def close(self) -> None:
        """Close the connection from the agent's side; never raises while it lives."""
        if self._agent_life.alive:
            self.reset()

    # The wire

    def push(self) -> None:
        """Deliver queued messages, if the wire is whole."""
        wire = self._network.wire(self.host)
        if wire.up:
            waiting, self._up = self._up, []
            for data in waiting:
                self._carry(data, "up", self._arrive_up)
        if wire.down:
            waiting, self._down = self._down, []
            for data in waiting:
                self._carry(data, "down", self._arrive_down)

    def _carry(self, data: bytes, way: str, arrive: Callable[[bytes], None]) -> None:
        loop, random = asyncio.get_running_loop(), self._network.random
        wire = self._network.wire(self.host)
        delay = 0.0005 + random.random() * 0.002 + wire.slow_s * random.random()
        times, late = 1, 0.0
        if wire.rough and any(kind in data[:40] for kind in _ROUGH):
            if random.random() < wire.rough:
                times = 0 if random.random() < wire.loss else 2
                kind = "net.lost" if times == 0 else "net.twice"
                self._network.note(kind, self.host, f"message:{_kind(data)} {way}")
            if random.random() < wire.rough:
                late = random.random() * wire.late_s
                self._network.note("net.late", self.host, f"message:{_kind(data)} {way}")
        for _ in range(times):
            at = loop.time() + delay + late
            if not late:
                at = self._last[way] = max(at, self._last[way] + 1e-6)
            loop.call_at(at, arrive, data)

    def _arrive_up(self, data: bytes) -> None:
        if not self.open or not self.plane_life.alive:
            return
        if self.plane_life.frozen is not None:
            self._up.append(data)
            return
        self._network.note("net.up", self.host, _kind(data))
        token = self.plane_life.enter()
        try:
            self._session.received(data)
        finally:
            self.plane_life.leave(token)

    def _arrive_down(self, data: bytes) -> None:
        if self.open:
            self._network.note("net.down", self.host, _kind(data))
            self._inbox.put_nowait(data)

    def send_down(self, data: bytes) -> None:
        """Send one message to the agent."""
        if self.open and self.plane_life.alive:
            self._down.append(data)
            self.push()

    def reset(self) -> None:
        """Reset the connection for both sides."""
        if not self.open:
            return
        self.open = False
        self._network.connections.remove(self)
        self._network.note("net.gone", self.host, self.plane_life.name)
        self._inbox.put_nowait(None)
        if self.plane_life.alive:
            token = self.plane_life.enter()
            try:
                self._session.closed()
            finally:
                self.plane_life.leave(token)


class _PlaneEnd:
    """The plane's end. Implements `roost.control.agents.sessions.Link`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.peer = connection.host

    def send(self, data: bytes) -> None:
        """Send a message without waiting."""
        self._connection.send_down(data)

    def close(self, code: int, reason: str) -> None:
        """End the connection, after what was sent before has gone out."""
        asyncio.get_running_loop().call_later(0.003, self._connection.reset)


def _kind(message: bytes) -> str:
    """Return the type of a message, which is its first field."""
    return message[9 : message.find(b'"', 9)].decode(errors="replace")
