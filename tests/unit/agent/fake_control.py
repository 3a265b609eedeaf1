"""A control plane of a few lines that speaks the agent link, over WebSocket or in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from roost.base.clock import Clock
from roost.hostkit.talk.link import Link, LinkLost
from roost.wire.agentlink import (
    Delta,
    Desired,
    DesiredVM,
    Heartbeat,
    Hello,
    Refused,
    Renewed,
    Report,
    Samples,
    SeenVM,
    ToAgent,
    Tombstone,
    Welcome,
    decode_from_agent,
    encode,
    list_digest,
)

#: The longest that a test waits for anything; far more than anything needs.
PATIENCE_S = 20.0


def vm(vm_id: str = "vm-1", generation: int = 1, **changes: object) -> DesiredVM:
    """Return an order for a small running VM."""
    given: dict[str, object] = {
        "id": vm_id,
        "name": vm_id,
        "project": "default",
        "generation": generation,
        "power": "running",
        "cpu_milli": 1000,
        "memory_bytes": 2**30,
        "disk_bytes": 2**30,
    }
    return DesiredVM(**{**given, **changes})  # type: ignore[arg-type]


def listing(*orders: DesiredVM | Tombstone) -> Desired:
    """Return a list with its digest."""
    vms = [order for order in orders if isinstance(order, DesiredVM)]
    tombstones = [order for order in orders if isinstance(order, Tombstone)]
    desired = Desired("", vms, tombstones)
    desired.digest = list_digest(desired)
    return desired


class FakeControl:
    """Serves one host. What it heard is in plain attributes; `news` is set on everything heard."""

    def __init__(
        self, *, heartbeat_s: float = 0.05, lease_s: float = 30.0, full_list_s: float = 300.0
    ) -> None:
        self.welcome = Welcome(1, heartbeat_s, lease_s, full_list_s)
        self.desired = listing()
        self.hellos: list[Hello] = []
        self.beats: list[Heartbeat] = []
        self.reports: list[Report] = []
        self.samples: list[Samples] = []
        self.seen: dict[str, SeenVM] = {}
        self.credentials: list[str] = []
        self.lists_sent = 0
        self.renews = True
        self.answers = True
        self.refusal: Refused | None = None
        self.news = asyncio.Event()
        self._sends: list[Callable[[ToAgent], None]] = []

    # What a test does

    def order(self, *orders: DesiredVM | Tombstone) -> None:
        """Send a whole new list."""
        self.desired = listing(*orders)
        self._push(self.desired)

    def change(self, delta: Delta, *orders: DesiredVM | Tombstone) -> None:
        """Send a delta; `orders` is the list afterwards."""
        self.desired = listing(*orders)
        self._push(delta)

    def refuse(self, refused: Refused) -> None:
        """Refuse the agents that are connected."""
        self._push(refused)

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait until something is true, looking after everything heard."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def until_seen(self, vm_id: str, seen: str, generation: int | None = None) -> SeenVM:
        """Wait until a VM was reported in a state."""

        def is_so() -> bool:
            found = self.seen.get(vm_id)
            right = found is not None and found.seen == seen
            return right and generation in (None, found.generation if found else None)

        await self.until(is_so, f"{vm_id} {seen}")
        return self.seen[vm_id]

    # The conversation

    async def talk(self, link: Link) -> None:
        """Speak with one agent until the link is lost."""
        outbox: asyncio.Queue[ToAgent] = asyncio.Queue()
        self._sends.append(outbox.put_nowait)
        sender = asyncio.create_task(self._send_all(link, outbox))
        try:
            while True:
                self._hear(decode_from_agent(await link.receive()), outbox.put_nowait)
                self.news.set()
        except LinkLost:
            pass
        finally:
            self._sends.remove(outbox.put_nowait)
            sender.cancel()

    def _hear(self, message: object, send: Callable[[ToAgent], None]) -> None:
        match message:
            case Hello():
                self.hellos.append(message)
                if self.answers:
                    send(self.refusal or self.welcome)
                    self._send_list_unless(message.digest, send)
            case Heartbeat():
                self.beats.append(message)
                if self.answers and self.renews:
                    send(Renewed(message.number))
                if self.answers:
                    self._send_list_unless(message.digest, send)
            case Report():
                self.reports.append(message)
                if message.full:
                    self.seen.clear()
                self.seen.update({each.id: each for each in message.vms})
            case Samples():
                self.samples.append(message)

    def _send_list_unless(self, digest: str, send: Callable[[ToAgent], None]) -> None:
        if digest != self.desired.digest:
            self.lists_sent += 1
            send(self.desired)

    def _push(self, message: ToAgent) -> None:
        for send in self._sends:
            send(message)

    async def _send_all(self, link: Link, outbox: "asyncio.Queue[ToAgent]") -> None:
        try:
            while True:
                await link.send(encode(await outbox.get()))
        except LinkLost:
            pass

    # Over WebSocket

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a free port of loopback; yields the address."""

        async def handle(socket: ServerConnection) -> None:
            assert socket.request is not None
            self.credentials.append(socket.request.headers["Authorization"])
            assert socket.request.path == "/api/v1/agents/connect"
            await self.talk(_ServerLink(socket))

        async with serve(handle, "127.0.0.1", 0, compression=None, close_timeout=1) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            yield f"http://127.0.0.1:{port}"


class _ServerLink:
    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        try:
            await self._socket.send(data)
        except ConnectionClosed as error:
            raise LinkLost from error

    async def receive(self) -> bytes | str:
        try:
            return await self._socket.recv()
        except ConnectionClosed as error:
            raise LinkLost from error

    async def close(self) -> None:
        await self._socket.close()


# In memory


class MemoryLink:
    """One end of a link in memory."""

    def __init__(self, inbox: "asyncio.Queue[bytes | None]", outbox: "asyncio.Queue[bytes | None]"):
        self._inbox = inbox
        self._outbox = outbox
        self._closed = False

    async def send(self, data: bytes) -> None:
        if self._closed:
            raise LinkLost("closed")
        self._outbox.put_nowait(data)

    async def receive(self) -> bytes | str:
        data = None if self._closed else await self._inbox.get()
        if data is None:
            self._closed = True
            raise LinkLost("closed")
        return data

    async def close(self) -> None:
        self._closed = True
        self._outbox.put_nowait(None)
        self._inbox.put_nowait(None)


class MemoryTransport:
    """Connects an agent to a fake control plane in the same process. `up` False: cut off."""

    def __init__(self, control: FakeControl, clock: Clock) -> None:
        self.up = True
        self._control = control
        self._clock = clock
        self._links: list[MemoryLink] = []
        self._talks: set[asyncio.Task[None]] = set()

    async def connect(self, server: str, credential: str) -> Link:
        if not self.up:
            raise LinkLost("no way there")
        self._control.credentials.append(credential)
        there: asyncio.Queue[bytes | None] = asyncio.Queue()
        back: asyncio.Queue[bytes | None] = asyncio.Queue()
        ours, theirs = MemoryLink(back, there), MemoryLink(there, back)
        self._links = [ours, theirs]
        talk = asyncio.create_task(self._control.talk(theirs))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)
        return ours

    async def cut(self) -> None:
        """Lose the link and let no new one be made."""
        self.up = False
        for link in self._links:
            await link.close()
